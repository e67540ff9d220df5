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
	"fmt"
	"maps"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	extensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	generatedopenapi "github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/fields"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// models are what is published about the versions of a kind, and what merges their objects.
type models struct {
	// schemas are the OpenAPI v3 schemas of each version, by version and name.
	schemas map[string]map[string]*spec.Schema
	types   managedfields.TypeConverter
}

// managers are those of a version, by subresource.
type managers map[string]*fields.Manager

func (k *Kind) fieldsFromDefinition(s *apiextensionsv1.CustomResourceDefinitionSpec) {
	k.models = sync.OnceValues(func() (*models, error) { return definedModels(s) })
	k.addManagers()
}

// definedModels builds what kube-apiserver builds for a definition.
func definedModels(s *apiextensionsv1.CustomResourceDefinitionSpec) (*models, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: *s}
	crd.Status.AcceptedNames = s.Names
	m := &models{schemas: map[string]map[string]*spec.Schema{}}
	all := map[string]*spec.Schema{}
	for _, v := range s.Versions {
		document, err := builder.BuildOpenAPIV3(crd, v.Name, builder.Options{})
		if err != nil {
			return nil, fmt.Errorf("building the OpenAPI of version %s: %w", v.Name, err)
		}
		m.schemas[v.Name] = document.Components.Schemas
		maps.Copy(all, document.Components.Schemas)
	}
	var err error
	if m.types, err = managedfields.NewTypeConverter(all, false); err != nil {
		return nil, fmt.Errorf("making a converter of types: %w", err)
	}
	return m, nil
}

// builtinTypes know the fields of Kubernetes' own kinds.
var builtinTypes = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

func (k *Kind) builtinFields() {
	if k.models == nil {
		k.models = sync.OnceValues(func() (*models, error) { return mergedModels(k) })
	}
	k.addManagers()
}

// addManagers makes the managers of all endpoints on their first use.
func (k *Kind) addManagers() {
	for _, v := range k.Versions {
		v.managers = sync.OnceValue(func() managers {
			m, err := k.models()
			if err != nil {
				panic(fmt.Sprintf("the models of %s: %v", k.GroupKind(), err)) //nolint:forbidigo // It is an error of the program.
			}
			converter := fields.Converter{Types: m.types, Convert: k.convert, Missing: runtime.IsNotRegisteredError}
			all := managers{"": fields.NewManager(converter, v.Empty(), "", k.reset(v, ""))}
			for _, sub := range v.Subresources {
				all[sub] = fields.NewManager(converter, v.Empty(), sub, k.reset(v, sub))
			}
			return all
		})
	}
}

func (k *Kind) convert(o value.Object, apiVersion string) (value.Object, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	from, err := schema.ParseGroupVersion(value.String(o, "apiVersion"))
	if err != nil {
		return nil, err
	}
	if k.Version(from.Version) == nil || k.Version(gv.Version) == nil || gv.Group != k.Group {
		return nil, runtime.NewNotRegisteredErrForTarget("simulation", nil, gv)
	}
	// Fields that the other version does not have stay, and make the merge fail, as in kube-apiserver.
	converted := value.Shallow(o)
	converted["apiVersion"] = apiVersion
	return converted, nil
}

// reset returns the fields that an endpoint does not write, by version.
func (k *Kind) reset(v *Version, subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
	resets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range k.Versions {
		if subresource == statusOf || version == v {
			maps.Copy(resets, version.rulesReset(subresource))
		}
	}
	return resets
}

func (v *Version) rulesReset(subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
	var s any
	switch r := v.Kind.rules.(type) {
	case custom:
		if s = v.schema.object; subresource == statusOf {
			s = v.schema.status
		}
	case *hub:
		if s = r.object; subresource == statusOf {
			s = r.status
		}
	case *typed:
		if len(v.Subresources) == 0 {
			return nil
		}
		set := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		if subresource == statusOf {
			set = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
		}
		return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(v.APIVersion()): set}
	}
	if resetting, ok := s.(rest.ResetFieldsStrategy); ok {
		return resetting.GetResetFields()
	}
	return nil
}

// Owned sets the managedFields of an object that a field manager writes. The live object is empty but for its kind if there is none.
func (v *Version) Owned(subresource string, live, o value.Object, manager string, now time.Time) value.Object {
	m, at := v.managers()[subresource], now.UTC().Format(time.RFC3339)
	h, _ := v.Kind.rules.(*hub)
	if h == nil || h.created == nil || value.String(live, "metadata", "uid") != "" {
		m.Update(live, o, manager, at)
		return o
	}
	key := value.Shallow(o)
	key["metadata"] = value.Object{"labels": value.At(o, "metadata", "labels"), "annotations": value.At(o, "metadata", "annotations")}
	list := h.owned.get(manager+"\x00"+string(value.Encode(key)), func() []any {
		m.Update(live, o, manager, at)
		list := value.List(o, "metadata", "managedFields")
		fields.Ready(list)
		return list
	})
	mine := make([]any, len(list))
	for i := range list {
		e := value.Shallow(list[i].(value.Object)) //nolint:forcetypeassert // It has been made above.
		e["time"] = at
		mine[i] = e
	}
	o["metadata"].(value.Object)["managedFields"] = mine //nolint:forcetypeassert // Every object has metadata.
	return o
}

// Applied returns what applying an object under a field manager makes of the live one. It is the caller's.
func (v *Version) Applied(subresource string, live, patch value.Object, manager string, force bool, now time.Time) (value.Object, error) {
	o, err := v.managers()[subresource].Apply(live, patch, manager, force, now.UTC().Format(time.RFC3339))
	if err != nil {
		return nil, err
	}
	if h, ok := v.Kind.rules.(*hub); ok && subresource == statusOf && sameButStatus(o, live) {
		return h.normalizeStatus(v, o)
	}
	o, _, err = v.Normalize(o, false)
	return o, err
}

// sameButStatus reports whether an object differs from the live one in its status and managedFields alone.
func sameButStatus(o, live value.Object) bool {
	for k, inner := range o {
		switch k {
		case statusOf:
		case "metadata":
			if !value.Equal(bare(o)[k], bare(live)[k]) {
				return false
			}
		default:
			if !value.Equal(inner, live[k]) {
				return false
			}
		}
	}
	return len(o) == len(live) || len(o) == len(live)+1 && live[statusOf] == nil
}

// KeepTimes gives an object the managedFields of the live one if it differs from it in their times alone.
func KeepTimes(o, live value.Object) {
	now, was := value.List(o, "metadata", "managedFields"), value.List(live, "metadata", "managedFields")
	if len(now) == 0 || len(now) != len(was) {
		return
	}
	for i := range now {
		e, f := now[i].(value.Object), was[i].(value.Object) //nolint:forcetypeassert // The server wrote them.
		for k := range e {
			if k != "time" && !value.Equal(e[k], f[k]) {
				return
			}
		}
		if len(e) != len(f) {
			return
		}
	}
	for k, inner := range o {
		if k != "metadata" && !value.Equal(inner, live[k]) {
			return
		}
	}
	meta, before := value.Map(o, "metadata"), value.Map(live, "metadata")
	if len(o) != len(live) || len(meta) != len(before) {
		return
	}
	for k, inner := range meta {
		if k != "managedFields" && !value.Equal(inner, before[k]) {
			return
		}
	}
	meta["managedFields"] = was
}

// Schemas adds the schemas of a version to those of an OpenAPI document.
func (v *Version) Schemas(into map[string]any) {
	m, err := v.Kind.models()
	if err != nil {
		panic(fmt.Sprintf("the models of %s: %v", v.Kind.GroupKind(), err)) //nolint:forbidigo // It is an error of the program.
	}
	for name, s := range m.schemas[v.Name] {
		into[name] = s
	}
}

// typeModels builds what a server publishes of the Go types of a kind.
func typeModels(k *Kind, definitions common.GetOpenAPIDefinitions, scheme *runtime.Scheme) (*models, error) {
	config := genericapiserver.DefaultOpenAPIV3Config(definitions, openapi.NewDefinitionNamer(scheme))
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, util.GetCanonicalTypeName(k.New()))
	if err != nil {
		return nil, fmt.Errorf("building the OpenAPI: %w", err)
	}
	types, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("making a converter of types: %w", err)
	}
	return &models{schemas: map[string]map[string]*spec.Schema{k.Versions[0].Name: schemas}, types: types}, nil
}

// fromTypes lets a kind publish what its generated definitions say.
func (k *Kind) fromTypes(definitions common.GetOpenAPIDefinitions, scheme *runtime.Scheme) *Kind {
	k.models = sync.OnceValues(func() (*models, error) { return typeModels(k, definitions, scheme) })
	return k
}

var (
	metacontrollerDefinitions = generatedopenapi.GetOpenAPIDefinitions
	metacontrollerScheme      = apiserver.Scheme
	extensionsDefinitions     = extensionsopenapi.GetOpenAPIDefinitions
)

// mergedModels publishes of a kind what the library for merging knows of its fields: no descriptions, but how lists are merged.
func mergedModels(k *Kind) (*models, error) {
	m := &models{types: builtinTypes(), schemas: map[string]map[string]*spec.Schema{}}
	for _, v := range k.Versions {
		typed, err := m.types.ObjectToTyped(&unstructured.Unstructured{Object: v.Empty()})
		if err != nil {
			return nil, fmt.Errorf("finding the type of %s: %w", v.GroupVersionKind(), err)
		}
		t := translation{source: typed.Schema(), into: map[string]*spec.Schema{}}
		root := t.named(*typed.TypeRef().NamedType)
		root.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": k.Group, "version": v.Name, "kind": k.Kind},
		})
		m.schemas[v.Name] = t.into
	}
	return m, nil
}

// translation turns types of the library for merging into OpenAPI.
type translation struct {
	source *smdschema.Schema
	into   map[string]*spec.Schema
}

// named returns the schema of a type, which is added together with those that it refers to.
func (t translation) named(name string) *spec.Schema {
	if known, ok := t.into[name]; ok {
		return known
	}
	s := &spec.Schema{}
	t.into[name] = s
	if definition, ok := t.source.FindNamedType(name); ok {
		t.fill(s, definition.Atom, nil)
	}
	return s
}

func (t translation) reference(r smdschema.TypeRef) *spec.Schema {
	s := &spec.Schema{}
	if r.NamedType == nil {
		t.fill(s, r.Inlined, r.ElementRelationship)
		return s
	}
	t.named(*r.NamedType)
	return spec.RefSchema("#/components/schemas/" + *r.NamedType)
}

func (t translation) fill(s *spec.Schema, a smdschema.Atom, relationship *smdschema.ElementRelationship) {
	switch {
	case a.Map != nil && a.List != nil, a.Map == nil && a.List == nil && a.Scalar == nil:
		s.Type = []string{"object"}
	case a.Map != nil:
		t.fillMap(s, a.Map, relationship)
	case a.List != nil:
		s.Type = []string{"array"}
		s.Items = &spec.SchemaOrArray{Schema: t.reference(a.List.ElementType)}
		switch {
		case a.List.ElementRelationship == smdschema.Atomic || relationship != nil && *relationship == smdschema.Atomic:
			s.AddExtension("x-kubernetes-list-type", "atomic")
		case len(a.Keys) > 0:
			s.AddExtension("x-kubernetes-list-type", "map")
			s.AddExtension("x-kubernetes-list-map-keys", a.Keys)
		default:
			s.AddExtension("x-kubernetes-list-type", "set")
		}
	default:
		scalars := map[smdschema.Scalar]string{smdschema.Numeric: "number", smdschema.String: "string", smdschema.Boolean: "boolean"}
		if name, ok := scalars[*a.Scalar]; ok {
			s.Type = []string{name}
		}
	}
}

func (t translation) fillMap(s *spec.Schema, m *smdschema.Map, relationship *smdschema.ElementRelationship) {
	s.Type = []string{"object"}
	for _, f := range m.Fields {
		field := t.reference(f.Type)
		if f.Default != nil {
			field.Default = f.Default
		}
		s.SetProperty(f.Name, *field)
	}
	if e := m.ElementType; e.NamedType != nil || e.Inlined.Scalar != nil || e.Inlined.Map != nil || e.Inlined.List != nil {
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: t.reference(e)}
	}
	if m.ElementRelationship == smdschema.Atomic || relationship != nil && *relationship == smdschema.Atomic {
		s.AddExtension("x-kubernetes-map-type", "atomic")
	}
}
