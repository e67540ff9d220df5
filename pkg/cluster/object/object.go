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
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Value decodes the field that path names, nil if the object does not have it.
func (o *Object) Value(path ...string) any {
	raw, ok := o.Field(path...)
	var value any
	if !ok || utiljson.Unmarshal(raw, &value) != nil {
		return nil
	}
	return value
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
	t, _ := time.Parse(time.RFC3339, o.textAt(at)) // It fails, and is zero, if there is none: Parse checked the others.
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

// OwnerReference is an owner of an object. Its strings are parts of the object's JSON.
type OwnerReference struct {
	// APIVersion and Kind are the owner's type, as the reference says.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name of the owner.
	Name string `json:"name"`
	// UID of the owner.
	UID types.UID `json:"uid"`
	// Controller is true for the owner that manages the object.
	Controller bool `json:"controller,omitempty"`
	// BlockOwnerDeletion is the reference's field of that name.
	BlockOwnerDeletion bool `json:"blockOwnerDeletion,omitempty"`
}

// Labels decodes the object's labels into a new map, nil if it has none. For matching, [Object.LabelSet] costs nothing.
func (o *Object) Labels() map[string]string { return o.textMap(o.labels) }

// AllLabels yields the labels' keys and values without decoding them into a map.
func (o *Object) AllLabels() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		more := true
		texts(o.json[o.labels.start:o.labels.end], func(key, value string) {
			more = more && yield(key, value)
		})
	}
}

// LabelSet returns the labels for selectors to match, without allocating.
func (o *Object) LabelSet() labels.Labels { return (*labelSet)(o) }

// Label returns the value of a label, and whether the object has it.
func (o *Object) Label(key string) (string, bool) {
	return lookup(o.json[o.labels.start:o.labels.end], key)
}

// Annotations decodes the object's annotations into a new map, nil if it has none.
func (o *Object) Annotations() map[string]string { return o.textMap(o.annotations) }

// Annotation returns the value of an annotation, and whether the object has it.
func (o *Object) Annotation(key string) (string, bool) {
	return lookup(o.json[o.annotations.start:o.annotations.end], key)
}

// Finalizers decodes the object's finalizers into a new slice, nil if it has none.
func (o *Object) Finalizers() (finalizers []string) {
	EachPart(bytesOf(o.json[o.finalizers.start:o.finalizers.end]), func(_ string, value []byte) {
		finalizers = append(finalizers, textOrNull(stringOf(value)))
	})
	return finalizers
}

// ControllerUID is the UID of the first owner that is marked as the controller, and whether there is such an owner.
func (o *Object) ControllerUID() (uid types.UID, controlled bool) {
	return types.UID(o.textAt(o.controllerUID)), !o.controllerUID.none()
}

// ControlledBy reports whether the first owner that is marked as the controller has a UID.
func (o *Object) ControlledBy(uid types.UID) bool {
	owner, controlled := o.ControllerUID()
	return controlled && owner == uid
}

// Controller decodes the first owner that is marked as the controller, nil if there is none. [Object.ControllerUID] costs less.
func (o *Object) Controller() (controller *OwnerReference) {
	if o.controllerUID.none() {
		return nil
	}
	_ = o.eachOwner(func(owner OwnerReference, _ span) { // Parse read them before.
		if owner.Controller && controller == nil {
			found := owner
			controller = &found
		}
	})
	return controller
}

// OwnerReferences decodes all owners into a new slice, nil if there are none.
func (o *Object) OwnerReferences() (owners []OwnerReference) {
	_ = o.eachOwner(func(owner OwnerReference, _ span) { owners = append(owners, owner) }) // Parse read them before.
	return owners
}

func (o *Object) readController() error {
	err := o.eachOwner(func(owner OwnerReference, uid span) {
		if owner.Controller && o.controllerUID.none() {
			o.controllerUID = uid
		}
	})
	if err != nil {
		return fmt.Errorf("reading metadata.ownerReferences: %w", err)
	}
	return nil
}

// eachOwner calls each for every owner, with where its UID is in the object's JSON; without a UID that is an empty span, which is more than none.
func (o *Object) eachOwner(each func(owner OwnerReference, uid span)) error {
	if o.owners.none() {
		return nil
	}
	data := o.json[:o.owners.end]
	s := scanner{data: bytesOf(data), pos: int(o.owners.start)}
	return s.elements(func() error {
		var owner OwnerReference
		switch s.space() {
		case '{':
		case 'n':
			each(owner, span{})
			return s.literal("null")
		default:
			return s.fail("an object as owner")
		}
		uid, err := s.owner(data, &owner)
		each(owner, uid)
		return err
	})
}

// owner reads an owner reference, and where its UID is in the data; an empty span for none.
func (s *scanner) owner(data string, owner *OwnerReference) (uid span, err error) {
	empty := span{uint32(s.pos), uint32(s.pos)} //nolint:gosec // parse checked the length.
	uid = empty
	err = s.members(func(at span, _ bool) error {
		value, err := s.value()
		if err != nil {
			return err
		}
		key, raw := unquote(data[at.start:at.end]), data[value.start:value.end]
		if key == "uid" {
			if uid = value; isNull(raw) {
				uid = empty
			}
		}
		return owner.set(key, raw)
	})
	return uid, err
}

func (r *OwnerReference) set(key, raw string) error {
	switch key {
	case "apiVersion":
		return setText(&r.APIVersion, key, raw)
	case "kind":
		return setText(&r.Kind, key, raw)
	case "name":
		return setText(&r.Name, key, raw)
	case "uid":
		return setText((*string)(&r.UID), key, raw)
	case "controller":
		return setBool(&r.Controller, key, raw)
	case "blockOwnerDeletion":
		return setBool(&r.BlockOwnerDeletion, key, raw)
	default:
		return nil
	}
}

func setText(to *string, key, raw string) error {
	if raw[0] != '"' && !isNull(raw) {
		return fmt.Errorf("%s is not a string", key)
	}
	*to = textOrNull(raw)
	return nil
}

func setBool(to *bool, key, raw string) error {
	if raw != "true" && raw != "false" && !isNull(raw) {
		return fmt.Errorf("%s is not a boolean", key)
	}
	*to = raw == "true"
	return nil
}

func (o *Object) textMap(at span) map[string]string {
	var m map[string]string
	texts(o.json[at.start:at.end], func(key, value string) {
		if m == nil {
			m = map[string]string{}
		}
		m[key] = value
	})
	return m
}

func lookup(data, key string) (string, bool) {
	raw, ok := member(data, key)
	if !ok {
		return "", false
	}
	return textOrNull(raw), true
}

// labelSet shows an object's labels to selectors.
type labelSet Object

// Has implements labels.Labels.
func (l *labelSet) Has(key string) bool {
	_, ok := (*Object)(l).Label(key)
	return ok
}

// Get implements labels.Labels.
func (l *labelSet) Get(key string) string {
	value, _ := (*Object)(l).Label(key)
	return value
}

// Lookup implements labels.Labels.
func (l *labelSet) Lookup(key string) (string, bool) { return (*Object)(l).Label(key) }

// String is the labels as JSON.
func (l *labelSet) String() string { return l.json[l.labels.start:l.labels.end] }

// Members yields the names and the JSON of the object's fields, such as "spec", in the order in which the API server sent them. The
// bytes must not be modified.
func (o *Object) Members() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		more := true
		EachPart(o.JSON(), func(name string, value []byte) { more = more && yield(name, value) })
	}
}

// WithStatus returns the object as it is with another status, which is given as JSON; empty for none. All else is the same, its version included.
func (o *Object) WithStatus(status []byte) (*Object, error) {
	s := scanner{data: bytesOf(o.json)}
	var at span
	var before uint32 // Where the member before the status ends; zero if that is the first one.
	first := true
	err := s.members(func(key span, _ bool) error {
		first = false
		value, err := s.value()
		switch {
		case unquote(o.json[key.start:key.end]) == "status":
			at = value
		case at.none():
			before = value.end
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the fields of %s: %w", o, err)
	}
	const name = `"status":`
	data := make([]byte, 0, len(o.json)+len(name)+len(status)+1)
	switch {
	case at.none() && len(status) == 0:
		return o, nil
	case len(status) == 0 && before > 0:
		data = append(append(data, o.json[:before]...), o.json[at.end:]...)
	case len(status) == 0:
		data = append(append(data, '{'), strings.TrimLeft(o.json[at.end:], " \t\r\n,")...)
	case at.none():
		data = append(data, o.json[:len(o.json)-1]...)
		if !first {
			data = append(data, ',')
		}
		data = append(append(append(data, name...), status...), '}')
	default:
		data = append(append(append(data, o.json[:at.start]...), status...), o.json[at.end:]...)
	}
	changed, err := Parse(data, ParseOptions{APIVersion: o.APIVersion(), Kind: o.Kind(), KeepManagedFields: true})
	if err != nil {
		return nil, err
	}
	changed.applied = o.applied
	return changed, nil
}

// RawLabels returns the JSON of the labels, empty if the object has none. The bytes must not be modified.
func (o *Object) RawLabels() []byte { return bytesOf(o.json[o.labels.start:o.labels.end]) }

// RawAnnotations returns the JSON of the annotations, empty if the object has none. The bytes must not be modified.
func (o *Object) RawAnnotations() []byte {
	return bytesOf(o.json[o.annotations.start:o.annotations.end])
}

// appliedOperation is how managedFields mark what was sent by server-side apply.
var appliedOperation = []byte(`"operation":"Apply"`)

// managedEntry is an entry of metadata.managedFields.
type managedEntry struct {
	Manager     string          `json:"manager"`
	Operation   string          `json:"operation"`
	Subresource string          `json:"subresource"`
	FieldsV1    json.RawMessage `json:"fieldsV1"`
}

// appliedIn returns, as a JSON object by field manager, the fields that managers whose names begin with one of prefixes have
// applied to the object itself. It is nil if there are none, as in most objects.
func appliedIn(managedFields []byte, prefixes []string) *string {
	if len(prefixes) == 0 || !bytes.Contains(managedFields, appliedOperation) {
		return nil
	}
	var entries []managedEntry
	if json.Unmarshal(managedFields, &entries) != nil {
		return nil
	}
	kept := map[string]json.RawMessage{}
	for _, e := range entries {
		begins := func(prefix string) bool { return strings.HasPrefix(e.Manager, prefix) }
		if e.Operation == "Apply" && e.Subresource == "" && len(e.FieldsV1) > 0 && slices.ContainsFunc(prefixes, begins) {
			kept[e.Manager] = e.FieldsV1
		}
	}
	if len(kept) == 0 {
		return nil
	}
	encoded, err := json.Marshal(kept)
	if err != nil {
		// What was decoded a moment ago can be encoded.
		return nil
	}
	text := string(encoded)
	return &text
}

// AppliedFields returns the fields that manager owns by server-side apply, as FieldsV1, and whether it owns any. It knows of the
// managers that [ParseOptions] name.
func (o *Object) AppliedFields(manager string) (fields json.RawMessage, ok bool) {
	if o.applied == nil {
		return nil, false
	}
	at, ok := member(*o.applied, manager)
	return bytesOf(at), ok
}

// Appliers returns the field managers of which [Object.AppliedFields] knows that they own fields.
func (o *Object) Appliers() (managers []string) {
	if o.applied != nil {
		EachPart(bytesOf(*o.applied), func(name string, _ []byte) { managers = append(managers, name) })
	}
	return managers
}

// GroupVersionKind is the object's kind in full.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion(), o.Kind())
}

// GetName is [Object.Name], for klog.KObj.
func (o *Object) GetName() string { return o.Name() }

// GetNamespace is [Object.Namespace], for klog.KObj.
func (o *Object) GetNamespace() string { return o.Namespace() }

// What client-go's reflector asks of objects is below.

// DeepCopyObject implements runtime.Object. It returns the object itself, which never changes.
func (o *Object) DeepCopyObject() runtime.Object { return o }

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return (*objectKind)(o) }

// objectKind is the kind of an Object, which does not change.
type objectKind Object

func (k *objectKind) GroupVersionKind() schema.GroupVersionKind {
	return (*Object)(k).GroupVersionKind()
}
func (k *objectKind) SetGroupVersionKind(schema.GroupVersionKind) {}

// GetObjectMeta implements metav1.ObjectMetaAccessor. It has what names the object, its version and its annotations, and nothing else.
func (o *Object) GetObjectMeta() metav1.Object {
	return &objectMeta{metav1.ObjectMeta{Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion()}, o}
}

type objectMeta struct {
	metav1.ObjectMeta

	object *Object
}

// GetAnnotations decodes the annotations. Only those of bookmarks are asked for.
func (m *objectMeta) GetAnnotations() map[string]string { return m.object.Annotations() }
