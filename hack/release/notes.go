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

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	changelog  = "CHANGELOG.md"
	unreleased = "Unreleased"
	// notesName is the file of the notes.
	notesName = "RELEASE_NOTES.md"
)

// described matches versions that git made up for commits without a tag.
var described = regexp.MustCompile(`^v0\.0\.0-|-\d+-g[0-9a-f]+(-dirty)?$|-dirty$`)

// address matches the addresses of links, which stand at the end of a document.
var address = regexp.MustCompile(`^\[[^]]+\]: `)

// notes returns what the changelog says of the version: the section of its name, or for a commit without a tag what is not released. A
// release without a section is an error.
func (r *release) notes() ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(r.root, changelog))
	if err != nil {
		return nil, fmt.Errorf("reading what has changed: %w", err)
	}
	name := strings.TrimPrefix(r.version, "v")
	text, found := section(string(data), name)
	if !found && described.MatchString(r.version) {
		text, found = section(string(data), unreleased)
	}
	if !found {
		return nil, fmt.Errorf("%s has no section [%s]: what is under [%s] belongs there", changelog, name, unreleased)
	}
	return []byte("# " + r.version + "\n\n" + text + "\n"), nil
}

// section returns the text under a heading of the second level, such as "## [1.2.3] - 2026-01-02", and whether there is one that is not
// empty.
func section(text, name string) (string, bool) {
	var lines []string
	within := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "## ") {
			within = strings.HasPrefix(line, "## ["+name+"]")
			continue
		}
		if within && !address.MatchString(line) {
			lines = append(lines, line)
		}
	}
	found := strings.TrimSpace(strings.Join(lines, ""))
	return found, found != ""
}
