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
	"cmp"
	"slices"
	"strconv"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// compositeKind is the kind of CompositeControllers.
const compositeKind = "CompositeController"

// object is a decoded object. The zero value is that of an object that does not exist.
type object map[string]any

// decode decodes an object; nil for none.
func decode(data []byte) object {
	if len(data) == 0 {
		return nil
	}
	o, err := value.Decode(data)
	if err != nil {
		panic("the API server returned an object that is no JSON: " + err.Error()) //nolint:forbidigo // The simulation is wrong.
	}
	return o
}

func (o object) at(path ...string) map[string]any {
	return value.Map(o, path...)
}

func (o object) meta(field string) string { return hooks.Meta(o, field) }

func (o object) deleting() bool { return hooks.Deleting(o) }

func (o object) version() int64 {
	v, err := strconv.ParseInt(o.meta("resourceVersion"), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// kind returns the index of the object's kind, -1 if histories do not know it.
func (o object) kind() int { return hooks.KindOf(o) }

// kindOf returns the index of the kind that a rule of a controller names, -1 if histories do not know it.
func kindOf(rule map[string]any) int {
	group, _ := hooks.Split(text(rule["apiVersion"]))
	return hooks.ByResource(group, text(rule["resource"]))
}

func text(v any) string {
	s, _ := v.(string) // Whatever else it is counts as nothing.
	return s
}

func (o object) finalizers() []string { return value.Strings(o, "metadata", "finalizers") }

// owner is a controlling owner.
type owner struct {
	group, kind, name, uid string
}

// controller returns the controlling owner, false if there is none.
func (o object) controller() (owner, bool) {
	for _, each := range value.List(o, "metadata", "ownerReferences") {
		ref, _ := each.(map[string]any) // The API server has validated it.
		if controls, _ := ref["controller"].(bool); controls {
			group, _ := hooks.Split(text(ref["apiVersion"]))
			return owner{group, text(ref["kind"]), text(ref["name"]), text(ref["uid"])}, true
		}
	}
	return owner{}, false
}

// kept reports whether an object has a keeper: the namespace that it is in, or kube-system, owns it.
func (o object) kept() bool {
	return slices.ContainsFunc(value.List(o, "metadata", "ownerReferences"), func(each any) bool {
		ref, _ := each.(map[string]any) // The API server has validated it.
		return ref["apiVersion"] == "v1" && ref["kind"] == "Namespace" && ref["name"] == cmp.Or(o.meta("namespace"), "kube-system")
	})
}

// known reports whether the owner is of a kind of histories, and no stranger.
func (o owner) known() bool { return hooks.ByName(o.group, o.kind) >= 0 }

// IsChild reports whether an object is controlled by one of a kind of histories.
func IsChild(o map[string]any) bool {
	by, owned := object(o).controller()
	return owned && by.known()
}

// String names the object.
func (o object) String() string {
	name := o.meta("name")
	if namespace := o.meta("namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	return text(o["kind"]) + " " + name
}

// missing returns what is in a and not in b.
func missing(a, b []string) []string {
	var all []string
	for _, each := range a {
		if !slices.Contains(b, each) {
			all = append(all, each)
		}
	}
	return all
}
