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
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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

// Managers returns the field managers that own a place of an object, such as spec.ports[53,UDP].name, by its metadata.managedFields: the
// one that wrote last comes first. A manager of any item of a list counts for all of them. For no place they are those that wrote the object
// itself, and not a subresource. It fails if managed is no list of entries.
func Managers(managed []byte, place string) ([]string, error) {
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(managed, &entries); err != nil {
		return nil, fmt.Errorf("reading managedFields: %w", err)
	}
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return ptr.Deref(b.Time, metav1.Time{}).Compare(ptr.Deref(a.Time, metav1.Time{}).Time)
	})
	var names []string
	for _, e := range entries {
		of := e.Subresource == ""
		if place != "" && e.FieldsV1 != nil {
			set, err := setOf(e.Manager, e.FieldsV1.GetRawBytes())
			if err != nil {
				return nil, err
			}
			of = owns(set, place)
		}
		if of && !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	return names, nil
}

// items are those of lists in a path.
var items = regexp.MustCompile(`\[[^]]*]`)

// owns reports whether a set of fields has a place, or something in it, or has what is around it as a whole.
func owns(set *fieldpath.Set, place string) (owns bool) {
	place = items.ReplaceAllString(place, "[]")
	set.Leaves().Iterate(func(path fieldpath.Path) {
		leaf := strings.TrimPrefix(items.ReplaceAllString(path.String(), "[]"), ".")
		owns = owns || within(leaf, place) || within(place, leaf)
	})
	return owns
}
