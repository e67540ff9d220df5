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

package owned

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

// Extract returns the part of an object that fields, a FieldsV1, say is owned. The result shares what is in content and must not
// be changed; it has the order of content in its lists. Fields that content does not have are left out. It fails if fields is
// no FieldsV1.
func Extract(content map[string]any, fields []byte) (map[string]any, error) {
	return extractObject(content, fields, func(leaf any) any { return leaf })
}

// Outline is Extract, with values that are owned as a whole left empty. The API server completes such values with defaults, so not
// all that is in them was applied. Items of lists keep what names them: the key fields of one, or the value of an item of a set.
func Outline(content map[string]any, fields []byte) (map[string]any, error) {
	return extractObject(content, fields, func(leaf any) any {
		switch leaf.(type) {
		case map[string]any:
			return map[string]any{}
		case []any:
			return []any{}
		default:
			return leaf
		}
	})
}

func extractObject(content map[string]any, fields []byte, leaf func(any) any) (map[string]any, error) {
	var set map[string]any
	if err := json.Unmarshal(fields, &set); err != nil {
		return nil, fmt.Errorf("reading the fields of a field manager: %w", err)
	}
	part, _ := extract(content, set, leaf).(map[string]any)
	return part, nil
}

// extract returns the owned part of a value; leaf says what is returned of a value that is owned as a whole.
func extract(value any, set map[string]any, leaf func(any) any) any {
	if len(set) == 0 {
		return leaf(value)
	}
	switch value := value.(type) {
	case map[string]any:
		part := make(map[string]any, len(set))
		for key, below := range set {
			name, ok := strings.CutPrefix(key, "f:")
			if !ok {
				continue
			}
			if field, ok := value[name]; ok {
				part[name] = extract(field, asSet(below), leaf)
			}
		}
		return part
	case []any:
		return extractItems(value, set, leaf)
	default:
		return value
	}
}

func extractItems(list []any, set map[string]any, leaf func(any) any) []any {
	part := make([]any, 0, min(len(list), len(set)))
	matchers := make([]matcher, 0, len(set))
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if m, ok := newMatcher(key, asSet(set[key])); ok {
			matchers = append(matchers, m)
		}
	}
	for i, item := range list {
		for _, m := range matchers {
			if m.matches(i, item) {
				part = append(part, m.extract(item, leaf))
				break
			}
		}
	}
	return part
}

func asSet(below any) map[string]any {
	set, _ := below.(map[string]any)
	return set
}

// matcher finds an item of a list by one element of a path.
type matcher struct {
	// keys are what an item has in its key fields, nil for other kinds of lists.
	keys map[string]any
	// value is an item of a set.
	value any
	// index is the place of an item, negative if another way counts.
	index int
	below map[string]any
}

// extract returns the owned part of an item that matches.
func (m matcher) extract(item any, leaf func(any) any) any {
	if len(m.below) > 0 {
		return extract(item, m.below, leaf)
	}
	if m.index < 0 && m.keys == nil {
		return item
	}
	whole := leaf(item)
	part, ok := whole.(map[string]any)
	fields, is := item.(map[string]any)
	if !ok || !is || len(part) == len(fields) {
		return whole
	}
	part = maps.Clone(part)
	for name := range m.keys {
		part[name] = fields[name]
	}
	return part
}

func newMatcher(element string, below map[string]any) (matcher, bool) {
	m := matcher{index: -1, below: below}
	kind, rest, ok := strings.Cut(element, ":")
	if !ok {
		return m, false
	}
	var err error
	switch kind {
	case "k":
		err = json.Unmarshal([]byte(rest), &m.keys)
		ok = len(m.keys) > 0
	case "v":
		err = json.Unmarshal([]byte(rest), &m.value)
	case "i":
		m.index, err = strconv.Atoi(rest)
	default:
		ok = false
	}
	return m, ok && err == nil
}

func (m matcher) matches(index int, item any) bool {
	if m.index >= 0 {
		return m.index == index
	}
	if m.keys == nil {
		return merge.Equal(item, m.value)
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range m.keys {
		if is, ok := fields[name]; !ok || !merge.Equal(is, want) {
			return false
		}
	}
	return true
}
