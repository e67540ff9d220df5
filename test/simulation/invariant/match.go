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
	"fmt"
	"reflect"
	"strings"

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
		case "settings":
			d = entries("spec.settings", want.at("spec", "settings"), have.at("spec", "settings"))
		case "ports":
			d = ports(value, got[name])
		case "parts":
			d = parts(value, got[name])
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

// ports compares lists that are maps by name.
func ports(want, have any) string {
	wanted, got := named(want), named(have)
	for name, item := range wanted {
		for field, value := range item {
			if !reflect.DeepEqual(value, got[name][field]) {
				return fmt.Sprintf("spec.ports[%s].%s is %v, not %v", name, field, got[name][field], value)
			}
		}
	}
	for name := range got {
		if _, ok := wanted[name]; !ok && strings.HasPrefix(name, own) {
			return fmt.Sprintf("spec.ports[%s] is there, and not wanted any more", name)
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
