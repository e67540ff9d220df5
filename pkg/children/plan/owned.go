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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

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

// few is how many matchers are tried one by one.
const few = 16

// matchers find items of a list. A hook may return very long ones.
type matchers struct {
	list []matcher
	// byIndex, byValue and byKeys have the first one in list for each place, value, and values of key fields; nil for few.
	byIndex map[int]int
	byValue map[any]int
	byKeys  []keyed
}

// keyed are the matchers of items that have certain key fields.
type keyed struct {
	names []string
	first map[any]int
}

func newMatchers(set map[string]any) *matchers {
	m := &matchers{list: make([]matcher, 0, len(set))}
	for _, element := range slices.Sorted(maps.Keys(set)) {
		if one, ok := newMatcher(element, asSet(set[element])); ok {
			m.list = append(m.list, one)
		}
	}
	if len(m.list) > few {
		m.index()
	}
	return m
}

func (m *matchers) index() {
	m.byIndex, m.byValue = map[int]int{}, map[any]int{}
	for at := range m.list {
		one := &m.list[at]
		switch {
		case one.index >= 0:
			setFirst(m.byIndex, one.index, at)
		case one.keys == nil:
			setFirst(m.byValue, merge.MapKey(one.value), at)
		default:
			names := slices.Sorted(maps.Keys(one.keys))
			k := slices.IndexFunc(m.byKeys, func(k keyed) bool { return slices.Equal(k.names, names) })
			if k < 0 {
				k, m.byKeys = len(m.byKeys), append(m.byKeys, keyed{names, map[any]int{}})
			}
			if key, ok := m.byKeys[k].of(one.keys); ok {
				setFirst(m.byKeys[k].first, key, at)
			}
		}
	}
}

func setFirst[K comparable](first map[K]int, key K, at int) {
	if _, ok := first[key]; !ok {
		first[key] = at
	}
}

// of returns the values of the key fields, false if one is missing.
func (k keyed) of(fields map[string]any) (any, bool) {
	values := make([]any, len(k.names))
	for i, name := range k.names {
		value, ok := fields[name]
		if !ok {
			return nil, false
		}
		values[i] = value
	}
	if len(values) == 1 {
		return merge.MapKey(values[0]), true
	}
	return merge.MapKey(values), true
}

// find returns the first matcher of an item, nil if there is none.
func (m *matchers) find(index int, item any) *matcher {
	if m.byIndex == nil {
		at := slices.IndexFunc(m.list, func(one matcher) bool { return one.matches(index, item) })
		if at < 0 {
			return nil
		}
		return &m.list[at]
	}
	found := len(m.list)
	if at, ok := m.byIndex[index]; ok {
		found = at
	}
	if fields, ok := item.(map[string]any); ok {
		for _, k := range m.byKeys {
			if key, ok := k.of(fields); ok {
				if at, ok := k.first[key]; ok {
					found = min(found, at)
				}
			}
		}
	}
	if len(m.byValue) > 0 {
		if at, ok := m.byValue[merge.MapKey(item)]; ok {
			found = min(found, at)
		}
	}
	if found == len(m.list) {
		return nil
	}
	return &m.list[found]
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
		err = utiljson.Unmarshal([]byte(rest), &m.keys)
		ok = len(m.keys) > 0
	case "v":
		err = utiljson.Unmarshal([]byte(rest), &m.value)
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
