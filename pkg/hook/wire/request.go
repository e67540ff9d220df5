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

package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Object is an observed object. The compact objects of the cluster cache are such.
type Object interface {
	// JSON returns the encoded object: one JSON value without white space around it. It is copied, never modified.
	JSON() []byte
	// Namespace is empty for a cluster-scoped object.
	Namespace() string
	// Name of the object.
	Name() string
}

// Group is the observed objects of one type. The type has an entry in the request even when there are no objects.
type Group struct {
	// Key is the type, as [hook.TypeKey] writes it.
	Key string
	// Objects in any order. They are not modified.
	Objects []Object
}

// GroupOf makes a group of a slice of any type of objects.
func GroupOf[O Object](key string, objects []O) Group {
	g := Group{Key: key, Objects: make([]Object, len(objects))}
	for i, o := range objects {
		g.Objects[i] = o
	}
	return g
}

// Request is what a sync or finalize hook is to be shown.
type Request struct {
	// Version of the hook that is called. Empty means v1.
	Version v1alpha1.HookVersion
	// Controller is what [EncodeComposite] or [EncodeDecorator] returned.
	Controller []byte
	// Parent is the parent, or the target of a decorator.
	Parent Object
	// Children are the observed children, or attachments, with a group for each rule. Groups of the same type are merged,
	// and of objects with the same key the first is taken.
	Children []Group
	// Related are the related objects, with a group for each rule; otherwise as Children.
	Related []Group
	// Finalizing is true for the finalize hook.
	Finalizing bool
}

// Composite returns the body for a sync or finalize hook of a CompositeController. It costs one allocation of the body's
// size and little else.
func Composite(r Request) []byte {
	return r.build(envelope{
		children: `{"children":`, controller: `,"controller":`, finalizing: `,"finalizing":`, object: `,"parent":`, related: `,"related":`,
	})
}

// Decorator returns the body for a sync or finalize hook of a DecoratorController.
func Decorator(r Request) []byte {
	return r.build(envelope{
		children: `{"attachments":`, controller: `,"controller":`, finalizing: `,"finalizing":`, object: `,"object":`, related: `,"related":`,
	})
}

// Customize returns the body for the customize hook of either kind of controller, which is shown the controller and the parent. It is the same in
// both versions.
func Customize(r Request) []byte {
	const head, middle = `{"controller":`, `,"parent":`
	controller, object := r.Controller, r.Parent.JSON()
	b := make([]byte, 0, len(head)+len(controller)+len(middle)+len(object)+1)
	b = append(b, head...)
	b = append(b, controller...)
	b = append(b, middle...)
	b = append(b, object...)
	return append(b, '}')
}

// envelope holds the fixed text of a body, in the order in which encoding/json sorts the keys.
type envelope struct {
	children, controller, finalizing, object, related string
}

func (r Request) build(e envelope) []byte {
	f := keyFormat{version: r.Version, parentNamespace: r.Parent.Namespace()}
	children, childrenSize := f.layOut(r.Children)
	related, relatedSize := f.layOut(r.Related)
	finalizing := strconv.FormatBool(r.Finalizing)

	object := r.Parent.JSON()
	b := make([]byte, 0, len(e.children)+childrenSize+len(e.controller)+len(r.Controller)+len(e.finalizing)+len(finalizing)+
		len(e.object)+len(object)+len(e.related)+relatedSize+1)
	b = append(b, e.children...)
	b = appendTypes(b, children)
	b = append(b, e.controller...)
	b = append(b, r.Controller...)
	b = append(b, e.finalizing...)
	b = append(b, finalizing...)
	b = append(b, e.object...)
	b = append(b, object...)
	b = append(b, e.related...)
	b = appendTypes(b, related)
	return append(b, '}')
}

// appendTypes writes the map of types, each with its map of objects.
func appendTypes(b []byte, types []typeEntries) []byte {
	b = append(b, '{')
	for i, t := range types {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, t.key)
		b = append(b, ':', '{')
		for j, entry := range t.entries {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(b, entry.key)
			b = append(b, ':')
			b = append(b, entry.json...)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// typeEntries is what is written for one type, sorted by key.
type typeEntries struct {
	key     string
	entries []entry
}

type entry struct {
	key  string
	json []byte
}

// keyFormat is how objects are keyed within their type (docs/reference/contract.md#s9, "Inner key").
type keyFormat struct {
	version         v1alpha1.HookVersion
	parentNamespace string
}

// layOut decides what is written for the groups and in what order, and returns the number of bytes that it will take, or
// a little less when keys need escapes.
func (f keyFormat) layOut(groups []Group) (types []typeEntries, size int) {
	count := 0
	for _, g := range groups {
		count += len(g.Objects)
	}
	types = make([]typeEntries, 0, len(groups))
	entries := make([]entry, 0, count)
	for _, g := range sortedByKey(groups) {
		if last := len(types) - 1; last < 0 || types[last].key != g.Key {
			types = append(types, typeEntries{key: g.Key})
			entries = entries[len(entries):]
		}
		for _, o := range g.Objects {
			if key, ok := f.key(o); ok {
				entries = append(entries, entry{key: key, json: o.JSON()})
			}
		}
		types[len(types)-1].entries = entries
	}

	const punctuation = len(`"":{},`)
	size = len(`{}`)
	for i := range types {
		t := &types[i]
		t.entries = sortedEntries(t.entries)
		size += len(t.key) + punctuation
		for _, entry := range t.entries {
			size += len(entry.key) + len(entry.json) + punctuation
		}
	}
	return types, size
}

func sortedByKey(groups []Group) []Group {
	byKey := func(a, b Group) int { return strings.Compare(a.Key, b.Key) }
	if slices.IsSortedFunc(groups, byKey) {
		return groups
	}
	sorted := slices.Clone(groups)
	slices.SortStableFunc(sorted, byKey)
	return sorted
}

// sortedEntries sorts in place, and keeps the first of entries with equal keys: a JSON object must not repeat a key.
func sortedEntries(entries []entry) []entry {
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return slices.CompactFunc(entries, func(a, b entry) bool { return a.key == b.key })
}

// LeavesOut reports whether requests of a version about a parent of a namespace leave out an object of another namespace, or of none.
func LeavesOut(version v1alpha1.HookVersion, parentNamespace, namespace string) bool {
	return version != v1alpha1.HookVersionV2 && parentNamespace != "" && namespace != parentNamespace
}

// key returns the key of o, and whether o is shown at all. In v1 a namespaced parent sees its own namespace only.
func (f keyFormat) key(o Object) (key string, shown bool) {
	namespace, name := o.Namespace(), o.Name()
	if f.version != v1alpha1.HookVersionV2 && f.parentNamespace != "" {
		return name, !LeavesOut(f.version, f.parentNamespace, namespace)
	}
	if namespace == "" {
		return name, true
	}
	return namespace + "/" + name, true
}

// appendString appends s as a JSON string. Nearly all names need no escapes; the few that do (an RBAC name may hold a
// quote) are left to encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil { // not possible for a string
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// EncodeOptions say how a controller is shown to its hooks.
type EncodeOptions struct {
	// ManagedFields keeps metadata.managedFields, which are left out by default.
	ManagedFields bool
}

// EncodeComposite returns the bytes of the "controller" field of requests. Encode once for each version of the controller
// and use the bytes in all its requests. The status is shown empty, as it always was (docs/reference/contract.md#s9); it would otherwise
// change with the counters in it.
func EncodeComposite(c *v1alpha1.CompositeController, o EncodeOptions) ([]byte, error) {
	shown := *c
	shown.Status = v1alpha1.CompositeControllerStatus{}
	return o.encode(&shown, &shown.TypeMeta, &shown.ObjectMeta, v1alpha1.KindComposite)
}

// EncodeDecorator is [EncodeComposite] for the other kind.
func EncodeDecorator(c *v1alpha1.DecoratorController, o EncodeOptions) ([]byte, error) {
	shown := *c
	shown.Status = v1alpha1.DecoratorControllerStatus{}
	return o.encode(&shown, &shown.TypeMeta, &shown.ObjectMeta, v1alpha1.KindDecorator)
}

func (o EncodeOptions) encode(controller any, is *metav1.TypeMeta, meta *metav1.ObjectMeta, kind string) ([]byte, error) {
	is.APIVersion, is.Kind = v1alpha1.SchemeGroupVersion.String(), kind
	if !o.ManagedFields {
		meta.ManagedFields = nil
	}
	data, err := json.Marshal(controller)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s for its hooks: %w", kind, meta.Name, err)
	}
	return data, nil
}
