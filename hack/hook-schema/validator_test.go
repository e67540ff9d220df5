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
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// validator checks values against a JSON Schema. It knows the keywords that the generator writes, and reports all others, so
// that no check is passed over in silence.
type validator struct {
	// document is where references lead to.
	document map[string]any
	root     map[string]any
	faults   []string
}

// annotations are keywords that allow and forbid nothing.
var annotations = []string{"$schema", "$defs", "title", "description", "format", "required", "properties", "additionalProperties"}

func (v *validator) validate(value any) []string {
	v.faults = nil
	v.check("", v.root, value)
	return v.faults
}

func (v *validator) faultf(at, format string, args ...any) {
	v.faults = append(v.faults, "at "+at+"/: "+fmt.Sprintf(format, args...))
}

func (v *validator) resolve(reference string) (map[string]any, error) {
	var current any = v.document
	for part := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		object, _ := current.(map[string]any)
		current = object[part]
	}
	s, ok := current.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the reference %s leads nowhere", reference)
	}
	return s, nil
}

func (v *validator) check(at string, s map[string]any, value any) {
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		switch argument := s[keyword]; keyword {
		case "$ref":
			target, err := v.resolve(argument.(string))
			if err != nil {
				v.faultf(at, "%v", err)
				continue
			}
			v.check(at, target, value)
		case "type":
			types, ok := argument.([]any)
			if !ok {
				types = []any{argument}
			}
			if !slices.ContainsFunc(types, func(t any) bool { return isOfType(value, t.(string)) }) {
				v.faultf(at, "is %T, want %v", value, argument)
			}
		case "minLength":
			if text, ok := value.(string); ok && float64(utf8.RuneCountInString(text)) < argument.(float64) {
				v.faultf(at, "is shorter than %v", argument)
			}
		case "enum":
			if !slices.Contains(argument.([]any), value) {
				v.faultf(at, "is none of %v", argument)
			}
		case "oneOf":
			v.oneOf(at, argument.([]any), value)
		case "items":
			if list, ok := value.([]any); ok {
				for i, item := range list {
					v.check(fmt.Sprintf("%s/%d", at, i), argument.(map[string]any), item)
				}
			}
		default:
			if !slices.Contains(annotations, keyword) {
				v.faultf(at, "the keyword %s is not checked", keyword)
			}
		}
	}
	if object, ok := value.(map[string]any); ok {
		v.object(at, s, object)
	}
}

func (v *validator) oneOf(at string, alternatives []any, value any) {
	matching := 0
	for _, alternative := range alternatives {
		inner := &validator{document: v.document, root: alternative.(map[string]any)}
		if len(inner.validate(value)) == 0 {
			matching++
		}
	}
	if matching != 1 {
		v.faultf(at, "matches %d of %d alternatives, want one", matching, len(alternatives))
	}
}

func (v *validator) object(at string, s, object map[string]any) {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			v.faultf(at, "%s is missing", name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, item := range object {
		if property, ok := properties[name].(map[string]any); ok {
			v.check(at+"/"+name, property, item)
			continue
		}
		switch additional := s["additionalProperties"].(type) {
		case bool:
			if !additional {
				v.faultf(at, "%s is unknown", name)
			}
		case map[string]any:
			v.check(at+"/"+name, additional, item)
		}
	}
}

func isOfType(value any, name string) bool {
	switch value := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || (name == "integer" && value == math.Trunc(value))
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}
