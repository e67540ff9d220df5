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
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is one API object as the engine keeps it. It does not change, and is safe for concurrent use. Make it with [Parse]. There are many, so
// that it has little beside its JSON: most texts are read from there, at no cost as long as nothing in them is escaped.
type Object struct {
	json       string
	typ        unique.Handle[typeMeta]
	namespace  unique.Handle[string]
	generation int64
	// applied has the fields of field managers of interest, nil in most objects.
	applied *string

	name, uid, resourceVersion                                span
	labels, annotations, owners, finalizers, created, deleted span
	// controllerUID is the UID of the first owner that is marked as the controller. Of one that has none it is empty, and more than no span.
	controllerUID span
}

// complete checks and decodes what is more than text.
func (o *Object) complete(generation span) error {
	if !generation.none() {
		n, err := strconv.ParseInt(o.json[generation.start:generation.end], 10, 64)
		if err != nil {
			return fmt.Errorf("reading metadata.generation: %w", err)
		}
		o.generation = n
	}
	if err := o.checkTime("creationTimestamp", o.created); err != nil {
		return err
	}
	if err := o.checkTime("deletionTimestamp", o.deleted); err != nil {
		return err
	}
	return o.readController()
}

// APIVersion is the group and version that the object was read in, for example apps/v1.
func (o *Object) APIVersion() string { return o.typ.Value().apiVersion }

// Kind is the object's kind.
func (o *Object) Kind() string { return o.typ.Value().kind }

// Namespace is empty for a cluster-scoped object. The string is shared by all objects of the namespace.
func (o *Object) Namespace() string { return o.namespace.Value() }

// Name is the object's metadata.name.
func (o *Object) Name() string { return o.textAt(o.name) }

// UID is the object's metadata.uid.
func (o *Object) UID() types.UID { return types.UID(o.textAt(o.uid)) }

// ResourceVersion is the object's metadata.resourceVersion.
func (o *Object) ResourceVersion() string { return o.textAt(o.resourceVersion) }

// Generation is the object's metadata.generation, 0 for kinds that have none.
func (o *Object) Generation() int64 { return o.generation }

// Deleting says whether the object has a deletion timestamp.
func (o *Object) Deleting() bool { return !o.deleted.none() }

// DeletionTime is the deletion timestamp, the zero time unless the object is being deleted.
func (o *Object) DeletionTime() time.Time { return o.timeAt(o.deleted) }

// CreationTime is the creation timestamp, the zero time if there is none.
func (o *Object) CreationTime() time.Time { return o.timeAt(o.created) }

// JSON is the object as the API server sent it, without managedFields and without white space around it. It must not be
// modified.
func (o *Object) JSON() []byte { return bytesOf(o.json) }

// MarshalJSON returns [Object.JSON].
func (o *Object) MarshalJSON() ([]byte, error) { return o.JSON(), nil }

// String names the object for people, as "Pod ns/name" or "Node name". It shows nothing of what is in it.
func (o *Object) String() string {
	if o.Namespace() == "" {
		return o.Kind() + " " + o.Name()
	}
	return o.Kind() + " " + o.Namespace() + "/" + o.Name()
}

// GoString is [Object.String], so that no way of printing shows the contents.
func (o *Object) GoString() string { return o.String() }

// Decode decodes the whole object anew, as apimachinery's util/json does: integers are int64, other numbers float64. The
// caller may change the result.
func (o *Object) Decode() (map[string]any, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(bytesOf(o.json), &content); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", o, err)
	}
	return content, nil
}

// Shows reports whether two objects, as the API server sent them, show the same: they have the same fields with the same JSON. The fields of an
// object come in another order from a list than from a watch.
func (o *Object) Shows(other *Object) bool {
	if o.json == other.json {
		return true
	}
	fields := maps.Collect(o.Members())
	same := 0
	for name, value := range other.Members() {
		if has, ok := fields[name]; !ok || !bytes.Equal(has, value) {
			return false
		}
		same++
	}
	return same == len(fields)
}

// Field returns the JSON of the field that path names, such as "spec", "selector", and whether the object has it. Elements
// of lists cannot be named. A field that is null is there, as null. The bytes must not be modified. Without a path it
// returns the whole object.
func (o *Object) Field(path ...string) (json.RawMessage, bool) {
	at := o.json
	for _, key := range path {
		var ok bool
		if at, ok = member(at, key); !ok {
			return nil, false
		}
	}
	return bytesOf(at), true
}

// textAt decodes the string at a place of the JSON.
func (o *Object) textAt(at span) string { return textIn(o.json, at) }

func (o *Object) checkTime(field string, at span) error {
	text := o.textAt(at)
	if text == "" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("reading metadata.%s: %w", field, err)
	}
	return nil
}

func (o *Object) timeAt(at span) time.Time {
	t, err := time.Parse(time.RFC3339, o.textAt(at))
	if err != nil {
		// There is none: Parse checked the others.
		return time.Time{}
	}
	return t
}

// typeMeta is shared by all objects of a type.
type typeMeta struct{ apiVersion, kind string }

// prefix is how the JSON of an object begins to which what t names is added.
func (t typeMeta) prefix(empty bool) string {
	var b strings.Builder
	b.WriteByte('{')
	if t.kind != "" {
		b.WriteString(`"kind":`)
		b.Write(quote(t.kind))
	}
	if t.kind != "" && t.apiVersion != "" {
		b.WriteByte(',')
	}
	if t.apiVersion != "" {
		b.WriteString(`"apiVersion":`)
		b.Write(quote(t.apiVersion))
	}
	if !empty {
		b.WriteByte(',')
	}
	return b.String()
}
