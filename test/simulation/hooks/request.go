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

	kjson "sigs.k8s.io/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
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
	var wire struct {
		Controller  map[string]any `json:"controller"`
		Parent      map[string]any `json:"parent"`
		Object      map[string]any `json:"object"`
		Children    Objects        `json:"children"`
		Attachments Objects        `json:"attachments"`
		Related     Objects        `json:"related"`
		Finalizing  bool           `json:"finalizing"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &wire); err != nil {
		return nil, fmt.Errorf("decoding the request to a hook: %w", err)
	}
	r := &Request{
		Controller: wire.Controller, Parent: wire.Parent, Children: wire.Children, Related: wire.Related, Finalizing: wire.Finalizing,
		Decorator: text(wire.Controller, "kind") == "DecoratorController",
	}
	if wire.Object != nil {
		r.Parent, r.Children = wire.Object, wire.Attachments
	}
	return r, nil
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

// Deleting reports whether an object is being deleted.
func Deleting(o map[string]any) bool { return Meta(o, "deletionTimestamp") != "" }
