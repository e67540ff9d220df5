/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package sbom

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

// A text is a license by what stands in it, in the form of plain.
type text struct {
	// id is the identifier in the list of SPDX.
	id string
	// has are passages that must be there, lacks are those of another license that has these too.
	has, lacks []string
}

// The conditions and the disclaimer that both licenses of Berkeley share, and the condition that one of them has.
const (
	bsdConditions = "redistribution and use in source and binary forms with or without modification are permitted provided that the following " +
		"conditions are met redistributions of source code must retain the above copyright notice this list of conditions and the following disclaimer"
	bsdNames = "may be used to endorse or promote products derived from this software without specific prior written permission"
	bsdAds   = "all advertising materials mentioning features or use of this software must display"
)

// texts are the licenses that modules of ours have, and some more.
func texts() []text {
	return []text{
		{id: "Apache-2.0", has: []string{"apache license version 2 0 january 2004", "grant of patent license", "limitation of liability"}},
		{id: "BSD-2-Clause", has: []string{bsdConditions}, lacks: []string{bsdNames, bsdAds}},
		{id: "BSD-3-Clause", has: []string{bsdConditions, bsdNames}, lacks: []string{bsdAds}},
		{id: "CC0-1.0", has: []string{"cc0 1 0 universal", "statement of purpose"}},
		{id: "ISC", has: []string{"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted provided that " +
			"the above copyright notice and this permission notice appear in all copies"}},
		{id: "MIT", has: []string{
			"permission is hereby granted free of charge to any person obtaining a copy of this software and associated documentation files",
			"the above copyright notice and this permission notice shall be included in all copies or substantial portions of the software",
		}},
		{id: "MPL-2.0", has: []string{"mozilla public license version 2 0", "covered software is provided under this license on an as is basis"}},
		{id: "Unlicense", has: []string{"this is free and unencumbered software released into the public domain"}},
	}
}

// between is what a text may have between words: layout, punctuation, comment signs.
var between = regexp.MustCompile(`[^a-z0-9]+`)

// plain is a text as words alone.
func plain(data []byte) string {
	return strings.TrimSpace(between.ReplaceAllString(strings.ToLower(string(data)), " "))
}

// recognize returns the expression of the licenses of a module, or unknown.
func recognize(m *program.Module) (string, error) {
	files, err := m.Legal()
	if err != nil {
		return "", err
	}
	var found []string
	for _, f := range files {
		name := strings.ToUpper(path.Base(f.Name))
		// The others say who did what, or grant patents.
		if !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		ids := identify(plain(f.Data))
		if len(ids) == 0 {
			return unknown, nil
		}
		found = append(found, ids...)
	}
	if len(found) == 0 {
		return unknown, nil
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}

// identify returns the licenses in a text.
func identify(words string) []string {
	within := func(passage string) bool { return strings.Contains(words, passage) }
	var ids []string
	for _, t := range texts() {
		if !slices.ContainsFunc(t.has, func(passage string) bool { return !within(passage) }) && !slices.ContainsFunc(t.lacks, within) {
			ids = append(ids, t.id)
		}
	}
	return ids
}
