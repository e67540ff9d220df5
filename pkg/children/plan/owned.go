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
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// owned returns the part of an object that a set, of the fields of a manager, has. The result shares what is in content and must not be changed;
// it has the order of content in its lists. Fields that content does not have are left out. leaf is whole or outline.
func owned(content map[string]any, set *fieldpath.Set, leaf func(any) any) map[string]any {
	part, _ := extract(content, set, leaf).(map[string]any)
	return part
}

// whole keeps a value that is owned as a whole.
func whole(leaf any) any { return leaf }

// outline leaves a value that is owned as a whole empty. The API server completes such values with defaults, so not all that is in them was
// applied. Items of lists keep what names them: the key fields of one, or the value of an item of a set.
func outline(leaf any) any {
	switch leaf.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return leaf
}

// extract returns what a set has of a value, nil for all of it; leaf says what is returned of a value that is owned as a whole.
func extract(content any, set *fieldpath.Set, leaf func(any) any) any {
	switch content := content.(type) {
	case map[string]any:
		if set == nil {
			break
		}
		part := make(map[string]any, set.Members.Size())
		for name, field := range content {
			if inner, ok := below(set, fieldpath.PathElement{FieldName: &name}); ok {
				part[name] = extract(field, inner, leaf)
			}
		}
		return part
	case []any:
		if set == nil {
			break
		}
		part := make([]any, 0, min(len(content), set.Members.Size()))
		keys := keysOf(set)
		for i, item := range content {
			for element := range elementsOf(i, item, keys) {
				if inner, ok := below(set, element); ok {
					part = append(part, extractItem(item, element, inner, leaf))
					break
				}
			}
		}
		return part
	}
	return leaf(content)
}

// below returns what a set has below an element, nil for all of it; false if it has nothing.
func below(set *fieldpath.Set, element fieldpath.PathElement) (*fieldpath.Set, bool) {
	if inner, ok := set.Children.Get(element); ok {
		return inner, true
	}
	return nil, set.Members.Has(element)
}

// keysOf returns the names of the key fields by which a set names items of a list: mostly all by the same.
func keysOf(set *fieldpath.Set) (keys [][]string) {
	note := func(element fieldpath.PathElement) {
		if element.Key == nil || slices.ContainsFunc(keys, func(names []string) bool {
			return slices.EqualFunc(names, *element.Key, func(name string, field value.Field) bool { return name == field.Name })
		}) {
			return
		}
		names := make([]string, len(*element.Key))
		for i, field := range *element.Key {
			names[i] = field.Name
		}
		keys = append(keys, names)
	}
	set.Members.Iterate(note)
	set.Children.Iterate(note)
	return keys
}

// elementsOf yields the elements by which a set may name an item of a list.
func elementsOf(index int, item any, keys [][]string) iter.Seq[fieldpath.PathElement] {
	return func(yield func(fieldpath.PathElement) bool) {
		if !yield(fieldpath.PathElement{Index: &index}) {
			return
		}
		fields, _ := item.(map[string]any)
		for _, names := range keys {
			key := make(value.FieldList, 0, len(names))
			for _, name := range names {
				if field, ok := fields[name]; ok {
					key = append(key, value.Field{Name: name, Value: value.NewValueInterface(field)})
				}
			}
			if len(key) == len(names) && !yield(fieldpath.PathElement{Key: &key}) {
				return
			}
		}
		of := value.NewValueInterface(item)
		yield(fieldpath.PathElement{Value: &of})
	}
}

// extractItem returns what a set has of the item of a list that an element names.
func extractItem(item any, element fieldpath.PathElement, set *fieldpath.Set, leaf func(any) any) any {
	if set == nil && element.Value != nil {
		return item
	}
	part := extract(item, set, leaf)
	fields, ok := part.(map[string]any)
	if set != nil || element.Key == nil || !ok {
		return part
	}
	fields = maps.Clone(fields)
	for _, field := range *element.Key {
		fields[field.Name] = field.Value.Unstructured()
	}
	return fields
}

// entry is an entry of metadata.managedFields.
type entry struct {
	Manager string `json:"manager"`
	// Subresource is that through which it wrote, empty for the object itself.
	Subresource string         `json:"subresource"`
	Time        time.Time      `json:"time"`
	Fields      map[string]any `json:"fieldsV1"`
}

// Managers returns the field managers that own a place of an object, such as spec.ports[53,UDP].name, by its metadata.managedFields: the
// one that wrote last comes first. A manager of any item of a list counts for all of them. It fails if managed is no list of entries.
func Managers(managed []byte, place string) ([]string, error) {
	return managers(managed, func(e entry) bool { return owns(e.Fields, place) })
}

// All returns all field managers that wrote an object itself, and not a subresource: the one that wrote last comes first. It fails if managed is no
// list of entries.
func All(managed []byte) ([]string, error) {
	return managers(managed, func(e entry) bool { return e.Subresource == "" })
}

func managers(managed []byte, which func(entry) bool) ([]string, error) {
	var entries []entry
	if err := json.Unmarshal(managed, &entries); err != nil {
		return nil, fmt.Errorf("reading managedFields: %w", err)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return b.Time.Compare(a.Time) })
	var names []string
	for _, e := range entries {
		if which(e) && !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	return names, nil
}

// owns reports whether a set of fields has a place, or has what is around it as a whole.
func owns(set map[string]any, place string) bool {
	if strings.HasPrefix(place, "[") {
		return ownsItem(set, place)
	}
	for key, below := range set {
		name, ok := strings.CutPrefix(key, "f:")
		if !ok {
			continue
		}
		// A name may have dots.
		rest, ok := strings.CutPrefix(place, name)
		switch {
		case !ok:
		case rest == "", len(asSet(below)) == 0 && (rest[0] == '.' || rest[0] == '['):
			return true
		case rest[0] == '.' && owns(asSet(below), rest[1:]), rest[0] == '[' && owns(asSet(below), rest):
			return true
		}
	}
	return false
}

// ownsItem is owns for an item of a list, which a set names in another form.
func ownsItem(set map[string]any, place string) bool {
	_, rest, _ := strings.Cut(place, "]")
	for key, below := range set {
		if strings.HasPrefix(key, "f:") || key == "." {
			continue
		}
		switch fields := asSet(below); {
		case rest == "", len(fields) == 0:
			return true
		case rest[0] == '.' && owns(fields, rest[1:]), rest[0] == '[' && owns(fields, rest):
			return true
		}
	}
	return false
}

func asSet(below any) map[string]any {
	set, _ := below.(map[string]any)
	return set
}
