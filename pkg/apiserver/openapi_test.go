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

package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util/proto"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// published are the OpenAPI documents of both versions, in which tests break definitions.
type published struct{ v2, v3 map[string]any }

func publishedSchemas(t *testing.T) published {
	t.Helper()
	var p published
	for path, document := range map[string]*map[string]any{"/openapi/v2": &p.v2, "/openapi/v3/apis/metacontroller.k8s.io/v1alpha1": &p.v3} {
		if err := json.Unmarshal([]byte(ask(t, http.MethodGet, path, "").must(t, http.StatusOK).body), document); err != nil {
			t.Fatalf("decoding %s: %v", path, err)
		}
	}
	return p
}

// kindsOfControllers are the kinds whose objects clients apply and compare.
var kindsOfControllers = []string{"CompositeController", "DecoratorController", "ControllerRevision"}

// readable reads the documents as clients do that compare objects: one definition that they cannot read, and a GitOps tool compares nothing in the
// cluster any more, of whatever kind.
func readable(p published) error {
	v2, err := json.Marshal(p.v2)
	if err != nil {
		return err
	}
	v3, err := json.Marshal(p.v3)
	if err != nil {
		return err
	}
	return errors.Join(readableByModels(v2), readableByModelsOfVersion3(v3), readableByTypeConverter(v3))
}

// readableByModels does as Argo CD and `kubectl apply` with the document of the whole cluster.
func readableByModels(text []byte) error {
	document, err := openapi_v2.ParseDocument(text)
	if err != nil {
		return fmt.Errorf("gnostic, version 2: %w", err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		return fmt.Errorf("kube-openapi, version 2: %w", err)
	}
	parser, err := managedfields.NewGVKParser(models, false)
	if err != nil {
		return fmt.Errorf("the parser of kinds: %w", err)
	}
	for _, kind := range kindsOfControllers {
		t := parser.Type(v1alpha1.SchemeGroupVersion.WithKind(kind))
		if t == nil {
			return fmt.Errorf("the parser of kinds has no %s", kind)
		}
		if err := resolved(t.Schema); err != nil {
			return fmt.Errorf("the parser of kinds: %w", err)
		}
	}
	return nil
}

func readableByModelsOfVersion3(text []byte) error {
	document, err := openapi_v3.ParseDocument(text)
	if err != nil {
		return fmt.Errorf("gnostic, version 3: %w", err)
	}
	if _, err := proto.NewOpenAPIV3Data(document); err != nil {
		return fmt.Errorf("kube-openapi, version 3: %w", err)
	}
	return nil
}

// readableByTypeConverter does as clients of server-side apply.
func readableByTypeConverter(text []byte) error {
	var document spec3.OpenAPI
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("decoding version 3: %w", err)
	}
	types, err := schemaconv.ToSchemaFromOpenAPI(document.Components.Schemas, false)
	if err != nil {
		return fmt.Errorf("structured-merge-diff: %w", err)
	}
	if err := resolved(types); err != nil {
		return fmt.Errorf("structured-merge-diff: %w", err)
	}
	converter, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
	if err != nil {
		return fmt.Errorf("the type converter: %w", err)
	}
	for _, kind := range kindsOfControllers {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "sample"}}}
		o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
		if _, err := converter.ObjectToTyped(o); err != nil {
			return fmt.Errorf("the type converter, %s: %w", kind, err)
		}
	}
	return nil
}

// resolved finds each type that another one names, and the keys of each list that is merged by keys.
func resolved(types *smdschema.Schema) error {
	var errs []error
	var check func(where string, of smdschema.Atom)
	refer := func(where string, to smdschema.TypeRef) {
		if to.NamedType == nil {
			check(where, to.Inlined)
		} else if _, found := types.Resolve(to); !found {
			errs = append(errs, fmt.Errorf("%s is of type %s, which is not there", where, *to.NamedType))
		}
	}
	check = func(where string, of smdschema.Atom) {
		if of.Map != nil {
			refer(where+".*", of.Map.ElementType)
			for _, field := range of.Map.Fields {
				refer(where+"."+field.Name, field.Type)
			}
		}
		if of.List != nil {
			refer(where+"[]", of.List.ElementType)
			element, _ := types.Resolve(of.List.ElementType)
			if of.List.ElementRelationship == smdschema.Associative && element.Map != nil && len(of.List.Keys) == 0 {
				errs = append(errs, fmt.Errorf("%s is merged by keys, and has none", where))
			}
		}
	}
	for _, t := range types.Types {
		check(t.Name, t.Atom)
	}
	return errors.Join(errs...)
}

func TestClientsReadTheSchemas(t *testing.T) {
	if err := readable(publishedSchemas(t)); err != nil {
		t.Errorf("clients cannot read the schemas: %v", err)
	}
}

// TestOneBrokenDefinitionIsFound breaks a definition in a document at a time.
func TestOneBrokenDefinitionIsFound(t *testing.T) {
	for name, breakIt := range map[string]func(definition map[string]any, prefix string){
		"a reference leads nowhere": func(definition map[string]any, prefix string) {
			definition["properties"].(map[string]any)["spec"] = map[string]any{"$ref": prefix + "nothing"}
		},
		"a type is no type": func(definition map[string]any, _ string) {
			definition["properties"].(map[string]any)["spec"] = map[string]any{"type": map[string]any{"name": "object"}}
		},
		"the kind is not said": func(definition map[string]any, _ string) { delete(definition, "x-kubernetes-group-version-kind") },
		"a list is merged by no keys": func(definition map[string]any, _ string) {
			definition["properties"].(map[string]any)["spec"] = map[string]any{
				"type": "array", "x-kubernetes-list-type": "map",
				"items": map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for version, prefix := range map[string]string{"version 2": "#/definitions/", "version 3": "#/components/schemas/"} {
				p := publishedSchemas(t)
				definitions, found := p.v2["definitions"].(map[string]any)
				if version == "version 3" {
					definitions, found = p.v3["components"].(map[string]any)["schemas"].(map[string]any)
				}
				if !found {
					t.Fatalf("%s has no definitions", version)
				}
				for key, definition := range definitions {
					if strings.HasSuffix(key, ".CompositeController") {
						breakIt(definition.(map[string]any), prefix)
					}
				}
				if readable(p) == nil {
					t.Errorf("it is not found in %s", version)
				}
			}
		})
	}
}
