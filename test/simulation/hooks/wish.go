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

package hooks

import "strconv"

// Wish is what a parent wants of the hooks, read from its spec, or from the data of a ConfigMap.
type Wish struct {
	// Children is the number of children of each declared kind.
	Children int64
	// Color and Level are copied into children.
	Color string
	Level int64
	// Shape has a bit for each variation of the children.
	Shape int64
	// Ordered asks for one child after the other: the next when those before are observed.
	Ordered bool
	// InTurn asks for one child of each kind more, or less, with each response: the next when that one is there, or gone.
	InTurn bool
	// Memory counts up to Level in the status, a step with each call.
	Memory bool
	// Expired asks decorators that may do so to delete the object.
	Expired bool
	// Related says what the customize hook selects: "labels", "names", "namespace", Kinded, or nothing.
	Related string
}

// Kinded is a value of Wish.Related: ConfigMaps, and objects of a custom kind.
const Kinded = "kinds"

// Bits of Wish.Shape.
const (
	// WithoutSize leaves a defaulted field to the API server.
	WithoutSize = 1 << iota
	// WithExtra gives a field that only some editions of the schema know.
	WithExtra
	// WithProtocol gives a defaulted field of the items of a map list, and Deployments another selector, which cannot be changed.
	WithProtocol
	// WithParts gives an atomic list whose items have a defaulted field.
	WithParts
	// WithLabels gives children a label and an annotation.
	WithLabels
	// WithMore gives children further entries of maps.
	WithMore
	// FinalizeAtOnce has the finalize hook say at once that it is done, FinalizeOneByOne take one child away with each call. Otherwise
	// all children are taken away, and it is done when they are gone.
	FinalizeAtOnce
	FinalizeOneByOne
	// WithResync asks for a resync while something is missing.
	WithResync
	// InOtherVersion gives every second child in another version than its rule's, where its kind has one.
	InOtherVersion
	// WithMatch gives a further entry of an atomic map, WithNotes a further field of the elements of a list whose type is not declared.
	WithMatch
	WithNotes

	// Shapes is the number of values of Wish.Shape.
	Shapes = 1 << iota
)

// WishOf returns what an object wants.
func WishOf(o map[string]any) Wish {
	if data, ok := o["data"].(map[string]any); ok {
		level, _ := strconv.ParseInt(text(data, "level"), 10, 64) // Whatever is no number counts as 0.
		return Wish{Children: 1 + level%2, Color: text(data, "color"), Level: level, Shape: level % Shapes}
	}
	spec, ok := o["spec"].(map[string]any)
	if !ok {
		return Wish{}
	}
	w := Wish{
		Children: number(spec, "children"), Color: text(spec, "color"), Level: number(spec, "level"), Shape: number(spec, "shape"),
		Ordered: flag(spec, "ordered"), InTurn: flag(spec, "inTurn"), Memory: flag(spec, "memory"), Expired: flag(spec, "expired"), Related: text(spec, "related"),
	}
	if size, ok := spec["size"]; ok { // A Gadget.
		w.Children, w.Shape = asNumber(size)%3, w.Level%Shapes
	}
	return w
}

// Spec returns the spec that WishOf reads.
func (w Wish) Spec() map[string]any {
	spec := map[string]any{"children": w.Children, "color": w.Color, "level": w.Level, "shape": w.Shape}
	for name, set := range map[string]bool{"ordered": w.Ordered, "inTurn": w.InTurn, "memory": w.Memory, "expired": w.Expired} {
		if set {
			spec[name] = true
		}
	}
	if w.Related != "" {
		spec["related"] = w.Related
	}
	return spec
}

func (w Wish) has(bit int64) bool { return w.Shape&bit != 0 }

func text(m map[string]any, name string) string {
	s, _ := m[name].(string) // Whatever else it is counts as nothing, as users write what they like.
	return s
}

func number(m map[string]any, name string) int64 { return asNumber(m[name]) }

func asNumber(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

func flag(m map[string]any, name string) bool {
	b, _ := m[name].(bool) // Whatever else it is counts as false.
	return b
}

func within(o map[string]any, path ...string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any) // Reading a nil map is fine.
	}
	return o
}
