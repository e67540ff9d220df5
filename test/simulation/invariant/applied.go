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

package invariant

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// lastApplied is the annotation with what was applied last.
const lastApplied = "metacontroller.k8s.io/last-applied-configuration"

// appliedAs reports whether an object says of itself that its wanted fields are those applied last. It is true without the annotation.
func appliedAs(want, have object) bool {
	annotation := text(have.at("metadata", "annotations")[lastApplied])
	if annotation == "" {
		return true
	}
	applied := decode([]byte(annotation))
	for _, field := range []string{"spec", "data"} {
		if len(keys(applied.at(field), want.at(field))) != len(want.at(field)) {
			return false
		}
	}
	return true
}

// ownedAs reports whether all fields are wanted that server-side apply took away if they were not: those that the controller, and no
// other manager, owns. It is true of an object to which the controller has applied nothing.
func ownedAs(controller string, want, have object) bool {
	ours, others := owners(controller, have)
	for _, field := range []string{"f:spec", "f:data"} {
		if dropped(object(ours).at(field), below(others, field), want[strings.TrimPrefix(field, "f:")]) {
			return false
		}
	}
	return true
}

// owners returns the fields that a controller owns by its server-side apply, nil for none, and those of each other manager.
func owners(controller string, have object) (ours map[string]any, others []map[string]any) {
	entries, _ := have.at("metadata")["managedFields"].([]any) // Absent: none.
	for _, each := range entries {
		entry, _ := each.(map[string]any) // The API server has made it.
		fields := object(entry).at("fieldsV1")
		if encoded, ok := entry["fieldsV1"].(value.Encoded); ok {
			fields = decode(encoded.JSON())
		}
		if applies(entry, controller) {
			ours = fields
		} else {
			others = append(others, fields)
		}
	}
	return ours, others
}

// withoutTaken returns an object without the entries of maps that are not wanted, and that somebody else owns who has changed them: where a
// controller writes by server-side apply, they are not its own any more, and stay.
func withoutTaken(controller string, want, have object) object {
	ours, others := owners(controller, have)
	if ours == nil {
		return have
	}
	left := maps.Clone(have)
	for _, place := range []string{"metadata.labels", "metadata.annotations", "data", "spec.settings"} {
		path := strings.Split(place, ".")
		fields := strings.Split("f:"+strings.ReplaceAll(place, ".", ".f:"), ".")
		for name := range have.at(path...) {
			_, wanted := want.at(path...)[name]
			_, own := object(ours).at(fields...)["f:"+name]
			taken := slices.ContainsFunc(others, func(set map[string]any) bool { return object(set).at(fields...)["f:"+name] != nil })
			if !wanted && !own && taken {
				left.remove(name, path...)
			}
		}
	}
	return left
}

// remove removes an entry of the map at a path, of which others may share what is on it.
func (o object) remove(name string, path ...string) {
	m := map[string]any(o)
	for _, element := range path {
		m[element] = maps.Clone(object(m).at(element))
		m = object(m).at(element)
	}
	delete(m, name)
}

// applies reports whether an entry of managedFields is that of a controller's server-side apply.
func applies(entry map[string]any, controller string) bool {
	manager := text(entry["manager"])
	return text(entry["operation"]) == "Apply" && text(entry["subresource"]) == "" &&
		strings.HasPrefix(manager, "metacontroller/") && strings.HasSuffix(manager, "/"+controller)
}

func below(sets []map[string]any, element string) []map[string]any {
	var all []map[string]any
	for _, set := range sets {
		if set[element] != nil {
			all = append(all, object(set).at(element))
		}
	}
	return all
}

// dropped reports whether something in a set of owned fields is not in a wanted value, and in none of the sets of others.
func dropped(ours map[string]any, others []map[string]any, want any) bool {
	for element := range ours {
		if element == "." {
			continue
		}
		wants, wanted := part(want, element)
		mine, theirs := object(ours).at(element), below(others, element)
		if len(mine) == 0 && !wanted && len(theirs) == 0 || dropped(mine, theirs, wants) {
			return true
		}
	}
	return false
}

// part returns what is at an element of a path: a field, or the item with a name.
func part(whole any, element string) (any, bool) {
	kind, name, _ := strings.Cut(element, ":")
	switch kind {
	case "f":
		fields, _ := whole.(map[string]any) // What is none has no fields.
		field, ok := fields[name]
		return field, ok
	case "k":
		var key map[string]any
		if err := json.Unmarshal([]byte(name), &key); err != nil {
			panic(fmt.Sprintf("the API server names an item %s: %v", name, err)) //nolint:forbidigo // The simulation is wrong.
		}
		item, ok := named(whole)[text(key["name"])]
		return item, ok
	}
	return nil, false
}
