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

package object

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is one API object. It is immutable and safe for concurrent use.
type Object struct {
	raw             []byte
	apiVersion      string
	kind            string
	namespace       string
	name            string
	uid             types.UID
	resourceVersion string
	generation      int64
	labels          map[string]string
	annotations     span
	owners          []OwnerReference
	finalizers      []string
	deletion        string
}

// span is a part of an object's JSON. The zero value is nothing.
type span struct{ start, end int }

// OwnerReference is an owner of an object.
type OwnerReference struct {
	APIVersion         string
	Kind               string
	Name               string
	UID                types.UID
	Controller         bool
	BlockOwnerDeletion bool
}

// APIVersion returns the group and version in which the object was read.
func (o *Object) APIVersion() string { return o.apiVersion }

// Kind returns the object's kind.
func (o *Object) Kind() string { return o.kind }

// Namespace returns the object's namespace, empty for a cluster-scoped object.
func (o *Object) Namespace() string { return o.namespace }

// Name returns the object's name.
func (o *Object) Name() string { return o.name }

// UID returns the object's UID.
func (o *Object) UID() types.UID { return o.uid }

// ResourceVersion returns the version that the object has here.
func (o *Object) ResourceVersion() string { return o.resourceVersion }

// Generation returns metadata.generation, 0 for kinds that have none.
func (o *Object) Generation() int64 { return o.generation }

// Labels returns the object's labels, which must not be changed. It is nil when there are none.
func (o *Object) Labels() map[string]string { return o.labels }

// Finalizers returns the object's finalizers, which must not be changed.
func (o *Object) Finalizers() []string { return o.finalizers }

// OwnerReferences returns the object's owners, which must not be changed.
func (o *Object) OwnerReferences() []OwnerReference { return o.owners }

// Controller returns the owner that controls the object, or nil.
func (o *Object) Controller() *OwnerReference {
	for i := range o.owners {
		if o.owners[i].Controller {
			return &o.owners[i]
		}
	}
	return nil
}

// Deleting reports whether the object has a deletionTimestamp.
func (o *Object) Deleting() bool { return o.deletion != "" }

// DeletionTime returns the deletionTimestamp, the zero time if there is none.
func (o *Object) DeletionTime() time.Time {
	at, err := time.Parse(time.RFC3339, o.deletion)
	if err != nil {
		return time.Time{}
	}
	return at
}

// Annotations decodes the object's annotations. The result is the caller's; it is nil when there are none.
func (o *Object) Annotations() map[string]string {
	if o.annotations == (span{}) {
		return nil
	}
	s := scanner{data: o.raw[o.annotations.start:o.annotations.end]}
	annotations, err := textMap(&s, false)
	if err != nil {
		return nil
	}
	return annotations
}

// Annotation returns one annotation, and whether it is there. It decodes no other.
func (o *Object) Annotation(key string) (string, bool) {
	if o.annotations == (span{}) {
		return "", false
	}
	s := scanner{data: o.raw[o.annotations.start:o.annotations.end]}
	value, found := "", false
	err := s.members(func(name []byte) (bool, error) {
		if string(name) != key {
			return false, nil
		}
		var err error
		value, err = s.text()
		found = true
		return true, err
	})
	return value, found && err == nil
}

// JSON returns the object's JSON without managedFields. It must not be changed.
func (o *Object) JSON() []byte { return o.raw }

// Field returns the JSON of a nested field, such as "spec", "selector", and whether it is there. It must not be changed.
// Names that need escapes in JSON are not found.
func (o *Object) Field(path ...string) ([]byte, bool) {
	raw := o.raw
	for _, name := range path {
		s := scanner{data: raw}
		if s.peek() != '{' {
			return nil, false
		}
		var value []byte
		err := s.members(func(key []byte) (bool, error) {
			if string(key) != name {
				return false, nil
			}
			var err error
			value, err = s.value()
			return true, err
		})
		if err != nil || value == nil {
			return nil, false
		}
		raw = value
	}
	return raw, true
}

// Decode decodes the whole object: integers become int64, other numbers float64. The result is the caller's.
func (o *Object) Decode() (map[string]any, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(o.raw, &content); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", o, err)
	}
	return content, nil
}

// String returns kind and name, for people: "Pod ns/name", or "Node name".
func (o *Object) String() string {
	if o.namespace == "" {
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}
