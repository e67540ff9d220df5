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

package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/fields"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// statusOf is the name of the field that has the status, and of the endpoint that writes it.
const statusOf = "status"

// Kind is a kind of objects.
type Kind struct {
	// Group is empty for the core group.
	Group string
	// Kind, ListKind, Plural and Singular are its names.
	Kind, ListKind, Plural, Singular string
	// ShortNames and Categories are further names, for discovery.
	ShortNames, Categories []string
	// Namespaced says that its objects live in namespaces.
	Namespaced bool
	// Versions are served in this order of preference, but for those that are not served.
	Versions []*Version
	// Storage is the version in which objects are stored.
	Storage *Version
	// Singly says that its objects cannot be deleted as a collection.
	Singly bool
	// Custom says that a CustomResourceDefinition defines it.
	Custom bool
	// Unconditional says that PUT needs no resourceVersion.
	Unconditional bool
	// Inspections are further subresources of its objects, which are listed and not served: they need an engine beside the API server.
	Inspections []Inspection
	// New returns an empty object of its Go type, nil if there is none.
	New    func() runtime.Object
	models func() (*models, error)
	rules  rules
}

// Inspection is a subresource that asks an engine.
type Inspection struct {
	// Name is that of the subresource, Kind that of its answer, and Verb the only one that it has.
	Name, Kind, Verb string
}

// GroupResource returns the name by which its objects are stored.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// GroupKind returns group and kind.
func (k *Kind) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

// Version returns a version by its name, nil if there is none.
func (k *Kind) Version(name string) *Version {
	for _, v := range k.Versions {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Version is a version of a kind.
type Version struct {
	// Kind is the kind.
	Kind *Kind
	// Name is that of the version alone, as v1.
	Name string
	// Served says that there are endpoints for it.
	Served bool
	// Subresources are those that have endpoints, such as status.
	Subresources []string

	schema   *customSchema
	managers func() managers
}

// APIVersion returns group and version as in objects.
func (v *Version) APIVersion() string { return v.GroupVersion().String() }

// GroupVersion returns group and version.
func (v *Version) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: v.Kind.Group, Version: v.Name}
}

// GroupVersionKind returns the name of the kind in this version.
func (v *Version) GroupVersionKind() schema.GroupVersionKind {
	return v.GroupVersion().WithKind(v.Kind.Kind)
}

// HasSubresource reports whether there are endpoints of a subresource.
func (v *Version) HasSubresource(name string) bool {
	return slices.Contains(v.Subresources, name)
}

// rules are what a kind demands. Its objects are in the version given, and may be modified unless they are called old.
type rules interface {
	// normalize drops what the schema does not know, and sets defaults. It returns the paths of what it dropped.
	normalize(v *Version, o value.Object, strict bool) (value.Object, []string, error)
	// create prepares and checks an object that is to be created.
	create(v *Version, o value.Object) ([]string, field.ErrorList)
	// update prepares and checks what an object is to become.
	update(v *Version, subresource string, o, old value.Object) ([]string, field.ErrorList)
}

// Normalize drops from an object what its schema does not know, and sets defaults. The object may be modified and is returned. It
// returns the paths of what was dropped if strict is set.
func (v *Version) Normalize(o value.Object, strict bool) (value.Object, []string, error) {
	managed := takeManaged(o)
	o, dropped, err := v.Kind.rules.normalize(v, o, strict)
	if err == nil && managed != nil {
		putManaged(o, managed)
		fields.Parse(o)
	}
	return o, dropped, err
}

// takeManaged takes the managedFields off an object that may be modified. No rule is about them, and they are slow to decode.
func takeManaged(o value.Object) any {
	meta := value.Map(o, "metadata")
	managed := meta["managedFields"]
	delete(meta, "managedFields")
	return managed
}

func putManaged(o value.Object, managed any) {
	if meta := value.Map(o, "metadata"); meta != nil && managed != nil {
		meta["managedFields"] = managed
	} else if managed != nil {
		o["metadata"] = value.Object{"managedFields": managed}
	}
}

// bare returns an object without managedFields. It shares everything else.
func bare(o value.Object) value.Object {
	meta := value.Map(o, "metadata")
	if meta["managedFields"] == nil {
		return o
	}
	o, meta = value.Shallow(o), value.Shallow(meta)
	delete(meta, "managedFields")
	o["metadata"] = meta
	return o
}

// Create prepares an object that is to be created, as the strategy of its kind does, and checks it. It returns warnings and errors.
func (v *Version) Create(o value.Object) ([]string, field.ErrorList) {
	managed := takeManaged(o)
	warnings, errs := v.Kind.rules.create(v, o)
	putManaged(o, managed)
	return warnings, errs
}

// Update prepares what an object is to become through an endpoint, and checks it. It returns warnings and errors.
func (v *Version) Update(subresource string, o, old value.Object) ([]string, field.ErrorList) {
	managed := takeManaged(o)
	warnings, errs := v.Kind.rules.update(v, subresource, o, bare(old))
	putManaged(o, managed)
	return warnings, errs
}

// Convert returns an object in another version of its kind, in which it may share values with the given one.
func (v *Version) Convert(o value.Object, to *Version) value.Object {
	if v.Name == to.Name {
		return o
	}
	converted := value.Copy(bare(o))
	converted["apiVersion"] = to.APIVersion()
	if to.schema != nil {
		_, _ = to.schema.coerce(converted, false) // What was stored has good metadata.
	}
	putManaged(converted, value.At(o, "metadata", "managedFields"))
	return converted
}

// Read returns an object in this version that was stored by a definition of the kind, maybe an older one, in the version that its
// content names.
func (v *Version) Read(stored value.Object) value.Object {
	gv, err := schema.ParseGroupVersion(value.String(stored, "apiVersion"))
	if err != nil || !v.Kind.Custom {
		return stored
	}
	from := v.Kind.Version(gv.Version)
	if from == nil {
		from = v.Kind.Storage
	}
	o := value.Copy(bare(stored))
	if from.schema != nil {
		_, _ = from.schema.coerce(o, false) // As in Convert.
		from.schema.setDefaults(o)
	}
	putManaged(o, value.At(stored, "metadata", "managedFields"))
	return from.Convert(o, v)
}

// Empty returns an object of this version that has nothing but its kind and version.
func (v *Version) Empty() value.Object {
	o := value.Object{}
	if v.Kind.New != nil {
		if blank, err := content(v.Kind.New()); err == nil {
			o = blank // What its Go type cannot leave away.
		}
	}
	o["apiVersion"], o["kind"] = v.APIVersion(), v.Kind.Kind
	return o
}

// Selectable reports whether a field may stand in field selectors.
func (k *Kind) Selectable(name string) bool {
	return name == "metadata.name" || name == "metadata.namespace" && k.Namespaced
}

// plainFields are the fields of metadata, with what a server would encode them as.
var plainFields = map[string]func(any) bool{
	"name": plainName, "namespace": plainName, "uid": plainName, "resourceVersion": plainName, "generateName": plainName,
	"generation":                 func(v any) bool { n, ok := v.(int64); return ok && n != 0 },
	"deletionGracePeriodSeconds": func(v any) bool { _, ok := v.(int64); return ok },
	"creationTimestamp":          plainTime, "deletionTimestamp": plainTime,
	"labels": plainTexts, "annotations": plainTexts,
	"finalizers":      func(v any) bool { return plainList(v, func(e any) bool { _, ok := e.(string); return ok }) },
	"ownerReferences": func(v any) bool { return plainList(v, plainOwner) },
}

// plainMetadata reports whether metadata without managedFields is as a server would encode it, so that decoding it into its Go type
// and back, which is slow, would change nothing.
func plainMetadata(meta value.Object) bool {
	for k, v := range meta {
		if plain, ok := plainFields[k]; !ok || !plain(v) {
			return false
		}
	}
	return true
}

func plainName(v any) bool {
	s, ok := v.(string)
	return ok && s != ""
}

func plainTexts(v any) bool {
	m, ok := v.(value.Object)
	if !ok || len(m) == 0 {
		return false
	}
	for _, text := range m {
		if _, ok := text.(string); !ok {
			return false
		}
	}
	return true
}

func plainList(v any, plain func(any) bool) bool {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	for _, e := range list {
		if !plain(e) {
			return false
		}
	}
	return true
}

func plainOwner(e any) bool {
	m, ok := e.(value.Object)
	if !ok {
		return false
	}
	required := 0
	for k, v := range m {
		switch k {
		case "apiVersion", "kind", "name", "uid":
			if _, ok := v.(string); !ok {
				return false
			}
			required++
		case "controller", "blockOwnerDeletion":
			if _, ok := v.(bool); !ok {
				return false
			}
		default:
			return false
		}
	}
	return required == 4
}

// plainTime reports whether a time has the form 2006-01-02T15:04:05Z.
func plainTime(v any) bool {
	const form = "0000-00-00T00:00:00Z"
	s, ok := v.(string)
	if !ok || len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		if form[i] == '0' && (s[i] < '0' || s[i] > '9') || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return true
}
