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
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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

// Encode returns the body of the response.
func (r *Response) Encode() ([]byte, error) { return json.Marshal(r) }

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
		Controller: within(wire, "controller"), Parent: within(wire, parent), Children: objectsOf(wire[children]), Related: objectsOf(wire["related"]),
		Finalizing: flag(wire, "finalizing"),
	}
	r.Decorator = text(r.Controller, "kind") == "DecoratorController"
	return r, nil
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
func Meta(o map[string]any, field string) string { return text(within(o, "metadata"), field) }

// Label returns a label of an object, "" if it has none of that name.
func Label(o map[string]any, name string) string {
	return text(within(within(o, "metadata"), "labels"), name)
}

// Deleting reports whether an object is being deleted.
func Deleting(o map[string]any) bool { return Meta(o, "deletionTimestamp") != "" }
