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
	"sync"

	extensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	generatedopenapi "github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
)

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
