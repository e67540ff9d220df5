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

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
)

// kubernetes turns OpenAPI definitions of the API types into JSON Schema.
type kubernetes struct {
	// prefix and suffix are those of the names of definitions.
	prefix, suffix string
	// strict and response are those of the reflector.
	strict, response bool
	definitions      map[string]common.OpenAPIDefinition
}

func newKubernetes(prefix, suffix string, strict, response bool) *kubernetes {
	k := &kubernetes{prefix: prefix, suffix: suffix, strict: strict, response: response}
	k.definitions = openapi.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(prefix + k.name(name)) })
	return k
}

// name is that of the definition of a type.
func (k *kubernetes) name(of string) string { return definitionName(of) + k.suffix }

// definitionName makes a name that can stand in a reference as it is.
func definitionName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "/", "."), "~", ".")
}

// reference returns a reference to a definition, and adds the definition and all that it needs to known.
func (k *kubernetes) reference(name string, known map[string]any) (schema, error) {
	reference := schema{keyRef: k.prefix + k.name(name)}
	if _, ok := known[k.name(name)]; ok {
		return reference, nil
	}
	definition, ok := k.definitions[name]
	if !ok {
		return nil, fmt.Errorf("no OpenAPI definition of %s", name)
	}
	converted, err := convert(definition.Schema)
	if err != nil {
		return nil, fmt.Errorf("converting the OpenAPI definition of %s: %w", name, err)
	}
	if k.response {
		k.asDecoded(converted)
	}
	known[k.name(name)] = converted
	for _, dependency := range definition.Dependencies {
		if _, err := k.reference(dependency, known); err != nil {
			return nil, err
		}
	}
	return reference, nil
}

// asDecoded makes the definition of a type in a response that of what the server decodes: null for what may be absent, and no unknown fields if
// it reads strictly.
func (k *kubernetes) asDecoded(s schema) {
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(schema)
	for name, property := range properties {
		if property, ok := property.(schema); ok && !slices.Contains(required, any(name)) {
			nullable(property)
		}
	}
	if k.strict {
		s["additionalProperties"] = false
	}
}

// convert drops what JSON Schema does not know, and defaults that the API server fills in before a hook sees the object.
func convert(s spec.Schema) (schema, error) {
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var converted schema
	if err := json.Unmarshal(encoded, &converted); err != nil {
		return nil, err
	}
	clean(converted)
	return converted, nil
}

// clean cleans s and all schemas in it. Below "properties" the keys are names of fields, not keywords.
func clean(s schema) {
	maps.DeleteFunc(s, func(key string, _ any) bool { return key == "default" || strings.HasPrefix(key, "x-kubernetes-") })
	for key, value := range s {
		for _, part := range schemasIn(key, value) {
			clean(part)
		}
	}
	// A reference may have neighbors since draft 2019-09, and needs no allOf around it.
	if all := schemasIn("allOf", s["allOf"]); len(all) == 1 && all[0][keyRef] != nil {
		delete(s, "allOf")
		s[keyRef] = all[0][keyRef]
	}
}

func schemasIn(keyword string, value any) []schema {
	var found []schema
	switch value := value.(type) {
	case schema:
		if keyword != "properties" {
			return []schema{value}
		}
		for _, property := range value {
			if property, ok := property.(schema); ok {
				found = append(found, property)
			}
		}
	case []any:
		for _, item := range value {
			if item, ok := item.(schema); ok {
				found = append(found, item)
			}
		}
	}
	return found
}
