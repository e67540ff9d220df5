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

package plan

import (
	"encoding/json"
	"fmt"
	"strings"
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
	matchers := newMatchers(set)
	for i, item := range list {
		if m := matchers.find(i, item); m != nil {
			part = append(part, m.extract(item, leaf))
		}
	}
	return part
}

func asSet(below any) map[string]any {
	set, _ := below.(map[string]any)
	return set
}
