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
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
)

// schemas makes schemas of CustomResourceDefinitions of those of OpenAPI: without references, and with nothing that API servers refuse there.
type schemas struct {
	definitions map[string]common.OpenAPIDefinition
	limits      limits
}

// known are the models that have a form of their own in CustomResourceDefinitions.
var known = map[string]node{
	"io.k8s.apimachinery.pkg.runtime.RawExtension":    {typeField: object, "x-kubernetes-preserve-unknown-fields": true},
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": true},
	// Go reads no other duration, and an object that a client cannot read hides all of its kind.
	"io.k8s.apimachinery.pkg.apis.meta.v1.Duration": {typeField: "string", "maxLength": 64, "pattern": `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`},
}

// rules are those between the fields of a model.
var rules = map[string][]node{
	"Hook":     {rule("!(has(self.webhook) && has(self.inline))", "a hook has webhook or inline, and not both")},
	"Webhook":  {rule("has(self.url) || has(self.service) && has(self.path)", "a webhook needs url, or service and path")},
	"CABundle": {rule("[has(self.inline), has(self.secretRef), has(self.configMapRef)].filter(given, given).size() == 1", "exactly one of inline, secretRef and configMapRef")},
}

func rule(expression, message string) node { return node{"rule": expression, "message": message} }

// of returns the schema of a model.
func (s *schemas) of(model string) (node, error) {
	if schema, ok := known[model]; ok {
		return maps.Clone(schema), nil
	}
	definition, ok := s.definitions[model]
	if !ok {
		return nil, fmt.Errorf("there is no model %s", model)
	}
	schema, err := decoded(definition)
	if err != nil {
		return nil, err
	}
	if schema, err = s.convert(schema); err != nil {
		return nil, err
	}
	if name, own := strings.CutPrefix(model, models); own {
		s.limits.apply(name, schema)
		if list := rules[name]; len(list) > 0 {
			schema["x-kubernetes-validations"] = list
		}
	}
	return schema, nil
}

// kept are the fields of a schema that definitions have, too.
var kept = []string{
	typeField, "format", "enum", "description", "required", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
}

// convert returns a schema without references.
func (s *schemas) convert(from node) (node, error) {
	if reference, ok := referred(from); ok {
		schema, err := s.of(reference)
		if err == nil && from["description"] != nil {
			schema["description"] = from["description"]
		}
		return schema, err
	}
	to := node{}
	for _, field := range kept {
		if value, ok := from[field]; ok {
			to[field] = value
		}
	}
	// What Go has without a value is none that somebody chose.
	if value, ok := to["default"]; ok && (value == "" || value == float64(0) || fmt.Sprintf("%T", value) == "map[string]interface {}") {
		delete(to, "default")
	}
	if properties, ok := from["properties"].(node); ok {
		converted := node{}
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			property, _ := properties[name].(node)
			schema, err := s.convert(property)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			converted[name] = schema
		}
		to["properties"] = converted
	}
	for _, field := range []string{"items", "additionalProperties"} {
		inner, ok := from[field].(node)
		if !ok {
			continue
		}
		schema, err := s.convert(inner)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		to[field] = schema
	}
	return to, nil
}

// referred returns the model that a schema refers to. One with a description or a default refers in allOf.
func referred(from node) (string, bool) {
	if reference, ok := from["$ref"].(string); ok {
		return reference, true
	}
	if all, ok := from["allOf"].([]any); ok && len(all) == 1 {
		only, _ := all[0].(node)
		return referred(only)
	}
	return "", false
}
