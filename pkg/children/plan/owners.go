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
	"slices"
	"strings"
	"time"
)

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
