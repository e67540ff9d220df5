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

package ratcheting

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mistake is what makes two errors the same. The place in a list does not count: items move when others are added or removed.
type mistake struct {
	kind                field.ErrorType
	path, detail, value string
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// mistakeOf identifies an error in an object with these fields, by the value that the error repeats. Where it repeats none, or
// only a number of items, the value of its field counts.
func mistakeOf(err *field.Error, fields map[string]any) mistake {
	value := err.BadValue
	switch err.Type {
	case field.ErrorTypeRequired, field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTooFew:
		value = at(fields, err.Field)
	default:
		if _, omitted := value.(field.OmitValueType); omitted {
			value = at(fields, err.Field)
		}
	}
	text, failed := json.Marshal(value)
	if failed != nil {
		text = fmt.Append(nil, value)
	}
	return mistake{err.Type, indexes.ReplaceAllString(err.Field, "[]"), err.Detail, string(text)}
}

// newErrors returns those of errs, the errors of an object that looks like now, which are not among before, the errors that it
// had when it looked like then. Each earlier error excuses one error.
func newErrors(errs, before field.ErrorList, now, then map[string]any) field.ErrorList {
	excuses := map[mistake]int{}
	for _, err := range before {
		excuses[mistakeOf(err, then)]++
	}
	var kept field.ErrorList
	for _, err := range errs {
		if m := mistakeOf(err, now); excuses[m] > 0 {
			excuses[m]--
		} else {
			kept = append(kept, err)
		}
	}
	return kept
}

// at returns the value at the path of an error, nil if there is none. Keys of maps with a dot or a bracket are not found; errors
// about those repeat their value.
func at(tree any, path string) any {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch node := tree.(type) {
		case map[string]any:
			tree = node[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(node) {
				return nil
			}
			tree = node[i]
		default:
			return nil
		}
	}
	return tree
}
