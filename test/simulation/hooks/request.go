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

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Objects are objects as requests have them: by kind and apiVersion, then by name.
type Objects map[string]map[string]map[string]any

// Request is the body of a request to any hook.
type Request struct {
	// Controller is the controller that calls.
	Controller map[string]any
	// Parent is the parent or target.
	Parent map[string]any
	// Children are the observed children or attachments, Related the related objects.
	Children, Related Objects
	// Finalizing says that the finalize hook is called.
	Finalizing bool
	// Decorator says that a DecoratorController calls.
	Decorator bool
}

// Response is what any hook responds.
type Response struct {
	Status             map[string]any             `json:"status,omitempty"`
	Labels             map[string]*string         `json:"labels,omitempty"`
	Annotations        map[string]*string         `json:"annotations,omitempty"`
	Children           []map[string]any           `json:"children,omitempty"`
	Attachments        []map[string]any           `json:"attachments,omitempty"`
	ResyncAfterSeconds float64                    `json:"resyncAfterSeconds,omitempty"`
	Finalized          bool                       `json:"finalized,omitempty"`
	Delete             bool                       `json:"delete,omitempty"`
	RelatedResources   []hook.RelatedResourceRule `json:"relatedResources,omitempty"`
}

// Wanted returns the desired children or attachments.
func (r *Response) Wanted() []map[string]any {
	return append(slices.Clip(r.Children), r.Attachments...)
}

// Decode decodes the body of a request to a sync, finalize or customize hook.
func Decode(body []byte) (*Request, error) {
	wire, err := value.Decode(body)
	if err != nil {
		return nil, fmt.Errorf("decoding the request to a hook: %w", err)
	}
	parent, children := "parent", "children"
	if wire["object"] != nil {
		parent, children = "object", "attachments"
	}
	r := &Request{
		Controller: value.Map(wire, "controller"), Parent: value.Map(wire, parent), Children: objectsOf(wire[children]), Related: objectsOf(wire["related"]),
		Finalizing: value.Bool(wire, "finalizing"),
	}
	r.Decorator = value.String(r.Controller, "kind") == "DecoratorController"
	return r, nil
}

// DecodeResponse decodes the body of a response.
func DecodeResponse(body []byte) (*Response, error) {
	var r Response
	if err := utiljson.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("decoding the response of a hook: %w", err)
	}
	return &r, nil
}

// objectsOf returns the objects of a field of a request.
func objectsOf(field any) Objects {
	kinds, _ := field.(map[string]any) // Absent: none.
	all := Objects{}
	for kind, named := range kinds {
		all[kind] = map[string]map[string]any{}
		list, _ := named.(map[string]any) // The engine encodes a map.
		for name, each := range list {
			all[kind][name], _ = each.(map[string]any) // The same.
		}
	}
	return all
}

// Respond responds to a request as the hook of that name.
func Respond(name hook.Name, r *Request) *Response {
	switch {
	case name == hook.Customize:
		return customize(r)
	case r.Decorator:
		return decorate(r)
	default:
		return compose(r)
	}
}

// All returns the objects in the order of their keys.
func (o Objects) All() []map[string]any {
	var all []map[string]any
	for _, kind := range slices.Sorted(maps.Keys(o)) {
		for _, name := range slices.Sorted(maps.Keys(o[kind])) {
			all = append(all, o[kind][name])
		}
	}
	return all
}

// Meta returns a text of an object's metadata, such as its name.
func Meta(o map[string]any, field string) string { return value.String(o, "metadata", field) }

// Label returns a label of an object, "" if it has none of that name.
func Label(o map[string]any, name string) string {
	return value.String(o, "metadata", "labels", name)
}

// Deleting reports whether an object is being deleted.
func Deleting(o map[string]any) bool { return Meta(o, "deletionTimestamp") != "" }

// Group is the API group of the custom kinds.
const Group = "sim.example.com"

// Kind is a kind of objects that histories are about.
type Kind struct {
	// Name is the kind, Resource its plural name, Group its API group.
	Name, Resource, Group string
	// Versions are the versions that may be served. The first one is stored.
	Versions []string
	// Namespaced says that objects live in namespaces, HasStatus that there is a status subresource.
	Namespaced, HasStatus bool
	// Letter stands for the kind in the names of children.
	Letter string
}

// Indexes of Kinds.
const (
	Thing = iota
	Realm
	Gadget
	ConfigMap
	// Deployment is a kind of children alone.
	Deployment
)

// Parents is the number of kinds that may be parents or targets: the first ones.
const Parents = Deployment

// Kinds are all kinds of histories, which refer to them by their index.
var Kinds = []Kind{
	{Name: "Thing", Resource: "things", Group: Group, Versions: []string{"v1"}, Namespaced: true, HasStatus: true, Letter: "t"},
	{Name: "Realm", Resource: "realms", Group: Group, Versions: []string{"v1"}, HasStatus: true, Letter: "r"},
	{Name: "Gadget", Resource: "gadgets", Group: Group, Versions: []string{"v1", "v2"}, Namespaced: true, HasStatus: true, Letter: "g"},
	{Name: "ConfigMap", Resource: "configmaps", Versions: []string{"v1"}, Namespaced: true, Letter: "m"},
	{Name: "Deployment", Resource: "deployments", Group: "apps", Versions: []string{"v1"}, Namespaced: true, HasStatus: true, Letter: "p"},
}

// Namespaces are where histories happen.
var Namespaces = []string{"ns0", "ns1"}

// APIVersion returns the apiVersion of a kind in a version.
func (k Kind) APIVersion(version string) string {
	if k.Group == "" {
		return version
	}
	return k.Group + "/" + version
}

// Path returns the path of an object of the kind, or of all objects in the namespace if name is empty. An empty namespace is left out.
func (k Kind) Path(version, namespace, name string) string {
	path := "/apis/" + k.Group + "/" + version
	if k.Group == "" {
		path = "/api/" + version
	}
	if k.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + k.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// ByResource returns the index of the kind with a resource, -1 if there is none.
func ByResource(group, resource string) int {
	for i, k := range Kinds {
		if k.Group == group && k.Resource == resource {
			return i
		}
	}
	return -1
}

// KindOf returns the index of the kind of an object, -1 if there is none.
func KindOf(o map[string]any) int {
	group, _ := Split(value.String(o, "apiVersion"))
	return ByName(group, value.String(o, "kind"))
}

// Split returns the group and the version in an apiVersion.
func Split(apiVersion string) (group, version string) {
	if group, version, ok := strings.Cut(apiVersion, "/"); ok {
		return group, version
	}
	return "", apiVersion
}

// ByName returns the index of a kind of an API group, -1 if there is none.
func ByName(group, name string) int {
	for i, k := range Kinds {
		if k.Group == group && k.Name == name {
			return i
		}
	}
	return -1
}

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
		level, _ := strconv.ParseInt(value.String(data, "level"), 10, 64) // Whatever is no number counts as 0.
		return Wish{Children: 1 + level%2, Color: value.String(data, "color"), Level: level, Shape: level % Shapes}
	}
	spec, ok := o["spec"].(map[string]any)
	if !ok {
		return Wish{}
	}
	w := Wish{
		Children: value.Int(spec, "children"), Color: value.String(spec, "color"), Level: value.Int(spec, "level"), Shape: value.Int(spec, "shape"),
		Ordered: value.Bool(spec, "ordered"), InTurn: value.Bool(spec, "inTurn"), Memory: value.Bool(spec, "memory"), Expired: value.Bool(spec, "expired"), Related: value.String(spec, "related"),
	}
	if _, ok := spec["size"]; ok { // A Gadget.
		w.Children, w.Shape = value.Int(spec, "size")%3, w.Level%Shapes
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
