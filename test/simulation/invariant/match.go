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
	"reflect"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// own begins the names of map entries and list items that hooks alone give, and foreign those that others alone give.
const (
	own     = "own-"
	foreign = "f-"
)

// difference says where an observed object is not as wanted, "" if it is. What the API server adds, defaults and prunes is no difference.
func difference(want, have object, e hooks.Edition) string {
	for _, field := range []string{"labels", "annotations"} {
		if d := entries("metadata."+field, want.at("metadata", field), have.at("metadata", field)); d != "" {
			return d
		}
	}
	if d := entries("data", want.at("data"), have.at("data")); d != "" {
		return d
	}
	wanted, got := want.at("spec"), have.at("spec")
	for name, value := range wanted {
		if name == "extra" && !e.Extra {
			continue
		}
		var d string
		switch name {
		case "settings", "matching":
			d = entries("spec."+name, want.at("spec", name), have.at("spec", name))
		case "ports", "stages":
			d = items("spec."+name, value, got[name])
		case "parts":
			d = parts(value, got[name])
		case "template":
			d = template(value, got[name])
		default:
			if !reflect.DeepEqual(value, got[name]) {
				d = fmt.Sprintf("spec.%s is %v, not %v", name, got[name], value)
			}
		}
		if d != "" {
			return d
		}
	}
	for _, name := range []string{"extra", "parts"} {
		if wanted != nil && wanted[name] == nil && got[name] != nil {
			return fmt.Sprintf("spec.%s is %v, and not wanted any more", name, got[name])
		}
	}
	return ""
}

// addedToWholes reports whether others have added to what server-side apply takes as a whole: that is a difference then, and stays where
// fields are merged.
func addedToWholes(have object) bool {
	begins := func(name string) bool { return strings.HasPrefix(name, foreign) }
	return slices.ContainsFunc(slices.Collect(maps.Keys(have.at("spec", "matching"))), begins) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(named(have.at("spec")["stages"]))), begins)
}

// entries compares maps: what is wanted is there, and no entry of a name that hooks alone give is left over.
func entries(where string, want, have map[string]any) string {
	for name, value := range want {
		if !reflect.DeepEqual(value, have[name]) {
			return fmt.Sprintf("%s.%s is %v, not %v", where, name, have[name], value)
		}
	}
	for name, value := range have {
		if _, wanted := want[name]; !wanted && strings.HasPrefix(name, own) {
			return fmt.Sprintf("%s.%s is %v, and not wanted any more", where, name, value)
		}
	}
	return ""
}

func named(list any) map[string]map[string]any {
	items, _ := list.([]any) // Absent: none.
	byName := map[string]map[string]any{}
	for _, each := range items {
		item, _ := each.(map[string]any) // The API server has validated it.
		byName[text(item["name"])] = item
	}
	return byName
}

// items compares lists that are maps by name. A note is of the hook alone.
func items(where string, want, have any) string {
	wanted, got := named(want), named(have)
	for name, item := range wanted {
		for field, value := range item {
			if !reflect.DeepEqual(value, got[name][field]) {
				return fmt.Sprintf("%s[%s].%s is %v, not %v", where, name, field, got[name][field], value)
			}
		}
		if note := got[name]["note"]; item["note"] == nil && note != nil {
			return fmt.Sprintf("%s[%s].note is %v, and not wanted any more", where, name, note)
		}
	}
	for name := range got {
		if _, ok := wanted[name]; !ok && strings.HasPrefix(name, own) {
			return fmt.Sprintf("%s[%s] is there, and not wanted any more", where, name)
		}
	}
	return ""
}

// parts compares atomic lists of objects with defaults.
func parts(want, have any) string {
	wanted, _ := want.([]any) // It is one of package hooks.
	got, _ := have.([]any)    // Absent: none.
	if len(wanted) != len(got) {
		return fmt.Sprintf("spec.parts is %v, not %v", have, want)
	}
	for i := range wanted {
		item, _ := got[i].(map[string]any)     // The API server has validated it.
		wants, _ := wanted[i].(map[string]any) // It is one of package hooks.
		for field, value := range wants {
			if !reflect.DeepEqual(value, item[field]) {
				return fmt.Sprintf("spec.parts[%d].%s is %v, not %v", i, field, item[field], value)
			}
		}
	}
	return ""
}

// template compares templates of Pods: labels, and containers with their variables, by name.
func template(want, have any) string {
	wanted, got := asObject(want), asObject(have)
	if d := entries("spec.template.metadata.labels", wanted.at("metadata", "labels"), got.at("metadata", "labels")); d != "" {
		return d
	}
	containers := named(got.at("spec")["containers"])
	for name, item := range named(wanted.at("spec")["containers"]) {
		container := containers[name]
		if container == nil || container["image"] != item["image"] {
			return fmt.Sprintf("the image of the container %s is %v, not %v", name, container["image"], item["image"])
		}
		if d := entries("the container "+name, variables(item), variables(container)); d != "" {
			return d
		}
	}
	for name := range containers {
		if named(wanted.at("spec")["containers"])[name] == nil && strings.HasPrefix(name, own) {
			return fmt.Sprintf("the container %s is there, and not wanted any more", name)
		}
	}
	return ""
}

func asObject(v any) object {
	o, _ := v.(map[string]any) // Whatever else it is has no fields.
	return o
}

// variables returns the values of a container's variables by their names.
func variables(container map[string]any) map[string]any {
	values := map[string]any{}
	for name, variable := range named(container["env"]) {
		values[name] = text(variable["value"]) // An empty one is not stored.
	}
	return values
}

// lostOfPods says which container, variable or annotation of others is in before and not the same in after, "" if none.
func lostOfPods(before, after object) string {
	was, is := before.at("spec", "template"), after.at("spec", "template")
	noted := object(is).at("metadata", "annotations")
	for name, value := range object(was).at("metadata", "annotations") {
		if strings.HasPrefix(name, foreign) && !reflect.DeepEqual(value, noted[name]) {
			return fmt.Sprintf("the annotation %s of the template was %v and is %v", name, value, noted[name])
		}
	}
	now := named(object(is).at("spec")["containers"])
	for name, container := range named(object(was).at("spec")["containers"]) {
		if strings.HasPrefix(name, foreign) && !reflect.DeepEqual(container, now[name]) {
			return fmt.Sprintf("the container %s was %v and is %v", name, container, now[name])
		}
		if now[name] == nil {
			continue
		}
		is := variables(now[name])
		for variable, value := range variables(container) {
			if strings.HasPrefix(variable, foreign) && !reflect.DeepEqual(value, is[variable]) {
				return fmt.Sprintf("the variable %s of the container %s was %v and is %v", variable, name, value, is[variable])
			}
		}
	}
	return ""
}

// lost says which field of others is in before and not the same in after, "" if none.
func lost(before, after object) string {
	for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "annotations"}, {"data"}, {"spec", "settings"}} {
		now := after.at(path...)
		for name, value := range before.at(path...) {
			if strings.HasPrefix(name, foreign) && !reflect.DeepEqual(value, now[name]) {
				return fmt.Sprintf("%s.%s was %v and is %v", strings.Join(path, "."), name, value, now[name])
			}
		}
	}
	if d := lostOfPods(before, after); d != "" {
		return d
	}
	was, is := before.at("spec"), after.at("spec")
	if !reflect.DeepEqual(was["foreign"], is["foreign"]) {
		return fmt.Sprintf("spec.foreign was %v and is %v", was["foreign"], is["foreign"])
	}
	now := named(is["ports"])
	for name, item := range named(was["ports"]) {
		if strings.HasPrefix(name, foreign) && !reflect.DeepEqual(item, now[name]) {
			return fmt.Sprintf("spec.ports[%s] was %v and is %v", name, item, now[name])
		}
		if comment := item["comment"]; comment != nil && now[name] != nil && !reflect.DeepEqual(comment, now[name]["comment"]) {
			return fmt.Sprintf("spec.ports[%s].comment was %v and is %v", name, comment, now[name]["comment"])
		}
	}
	return ""
}

// lastApplied is the annotation with what was applied last.
const lastApplied = "metacontroller.k8s.io/last-applied-configuration"

// appliedAs reports whether an object says of itself that its wanted fields are those applied last. It is true without the annotation.
func appliedAs(want, have object) bool {
	annotation := text(have.at("metadata", "annotations")[lastApplied])
	if annotation == "" {
		return true
	}
	applied := decode([]byte(annotation))
	return !leaves(applied["spec"], want["spec"]) && !leaves(applied["data"], want["data"])
}

// leaves reports whether a field of an object, or of an object in it, is in before and not in after. Lists of objects are compared by name
// where they have names, and else by place.
func leaves(before, after any) bool {
	switch was := before.(type) {
	case map[string]any:
		is, ok := after.(map[string]any)
		return !ok || lacks(was, is)
	case []any:
		is, _ := after.([]any) // Absent: none.
		if names := named(after); names[""] == nil && len(names) > 0 {
			return lacks(named(before), names)
		}
		for i := range min(len(was), len(is)) {
			if leaves(was[i], is[i]) {
				return true
			}
		}
	}
	return false
}

// lacks reports whether one of the values has no other of its name, or leaves a field.
func lacks[V any](before, after map[string]V) bool {
	for name, was := range before {
		if is, there := after[name]; !there || leaves(was, is) {
			return true
		}
	}
	return false
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
		if fields := fieldsOf(entry); applies(entry, controller) {
			ours = fields
		} else {
			others = append(others, fields)
		}
	}
	return ours, others
}

func fieldsOf(entry map[string]any) map[string]any {
	if encoded, ok := entry["fieldsV1"].(value.Encoded); ok {
		return decode(encoded.JSON())
	}
	return object(entry).at("fieldsV1")
}

// withoutTaken returns an object without the entries of maps, and the fields of its spec, that are not wanted, and that somebody else owns who
// has changed them: where a controller writes by server-side apply, they are not its own any more, and stay. So do the stages that others took
// over: nothing tells a controller that moves to merging that they were its own.
func withoutTaken(controller string, want, have object, stages []string) object {
	ours, others := owners(controller, have)
	if ours == nil {
		return have
	}
	left := maps.Clone(have)
	for _, place := range []string{"metadata.labels", "metadata.annotations", "data", "spec", "spec.settings"} {
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
	if len(stages) > 0 {
		wanted := named(want.at("spec")["stages"])
		list, _ := left.at("spec")["stages"].([]any) // Absent: none.
		left["spec"] = maps.Clone(left.at("spec"))
		var kept []any
		for _, stage := range list {
			fields, _ := stage.(map[string]any) // The API server has validated it.
			name := text(fields["name"])
			switch {
			case wanted[name] == nil && slices.Contains(stages, name):
				continue
			case wanted[name] != nil && wanted[name]["note"] == nil && slices.Contains(stages, noteOf(name)):
				fields = maps.Clone(fields)
				delete(fields, "note")
			}
			kept = append(kept, fields)
		}
		left.at("spec")["stages"] = kept
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

// applies reports whether an entry of managedFields is that of a controller's server-side apply; of any one if controller is "".
func applies(entry map[string]any, controller string) bool {
	manager := text(entry["manager"])
	return text(entry["operation"]) == "Apply" && text(entry["subresource"]) == "" &&
		strings.HasPrefix(manager, "metacontroller/") && (controller == "" || strings.HasSuffix(manager, "/"+controller))
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
