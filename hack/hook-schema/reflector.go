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
	"reflect"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// reflector makes schemas of Go types.
type reflector struct {
	words comments
	// prefix of references to definitions.
	prefix string
	// suffix of the names of definitions that depend on strict.
	suffix string
	// strict forbids unknown fields.
	strict bool
	// response makes the fields of the root optional and nullable; those of a request are always there.
	response    bool
	definitions map[string]any
	kubernetes  *kubernetes
}

func newReflector(words comments, prefix, suffix string, strict, response bool) *reflector {
	return &reflector{
		words: words, prefix: prefix, suffix: suffix, strict: strict, response: response,
		definitions: map[string]any{}, kubernetes: newKubernetes(prefix, suffix, strict, response),
	}
}

type schema = map[string]any

// Keywords that schemas are put together from in many places.
const (
	keyRef         = "$ref"
	keyDescription = "description"
	keyType        = "type"
	typeObject     = "object"
	typeNull       = "null"
)

// root returns the schema of the body itself.
func (r *reflector) root(t reflect.Type) (schema, error) {
	return r.structure(t, !r.response)
}

// structure returns the schema of a struct of pkg/hook. When all of its fields are always present, they are required; else
// those without omitempty in the type are, unless this is the root of a response, where everything may be missing.
func (r *reflector) structure(t reflect.Type, allPresent bool) (schema, error) {
	properties := schema{}
	var required []string
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		property, err := r.value(field.Type)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t.Name(), field.Name, err)
		}
		atRoot := r.response && strings.HasSuffix(t.Name(), "Response")
		optional := atRoot || strings.Contains(options, "omitempty")
		if r.response && optional {
			nullable(property)
		}
		if allPresent || !optional {
			required = append(required, name)
		}
		property[keyDescription] = r.words.field(t.Name(), field.Name, name)
		properties[name] = property
	}
	s := schema{keyType: typeObject, keyDescription: r.words[t.Name()], "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if r.strict {
		s["additionalProperties"] = false
	}
	return s, nil
}

// nullable allows null in place of a value.
func nullable(s schema) {
	if t, ok := s[keyType].(string); ok {
		s[keyType] = []string{t, typeNull}
	}
	if reference, ok := s[keyRef]; ok {
		delete(s, keyRef)
		s["oneOf"] = []any{schema{keyRef: reference}, schema{keyType: typeNull}}
	}
}

// value returns the schema of a field's type.
func (r *reflector) value(t reflect.Type) (schema, error) {
	switch t {
	case reflect.TypeFor[*hook.Object]():
		r.definitions["Object"] = objectSchema()
		return schema{keyRef: r.prefix + "Object"}, nil
	case reflect.TypeFor[hook.ObjectMap]():
		r.definitions["Object"] = objectSchema()
		r.definitions["ObjectMap"] = schema{
			keyType: typeObject, keyDescription: r.words["ObjectMap"],
			"additionalProperties": schema{keyType: typeObject, "additionalProperties": schema{keyRef: r.prefix + "Object"}},
		}
		return schema{keyRef: r.prefix + "ObjectMap"}, nil
	}
	if t.Kind() == reflect.Pointer {
		return r.pointer(t)
	}
	if named, ok := reflect.TypeAssert[interface{ OpenAPIModelName() string }](reflect.Zero(t)); ok {
		return r.kubernetes.reference(named.OpenAPIModelName(), r.definitions)
	}
	switch t.Kind() {
	case reflect.String:
		return schema{keyType: "string"}, nil
	case reflect.Bool:
		return schema{keyType: "boolean"}, nil
	case reflect.Float64:
		return schema{keyType: "number"}, nil
	case reflect.Interface:
		return schema{}, nil
	case reflect.Slice:
		items, err := r.value(t.Elem())
		return schema{keyType: "array", "items": items}, err
	case reflect.Map:
		values, err := r.value(t.Elem())
		if len(values) == 0 {
			return schema{keyType: typeObject}, err
		}
		return schema{keyType: typeObject, "additionalProperties": values}, err
	case reflect.Struct:
		definition, err := r.structure(t, false)
		name := t.Name() + r.suffix
		r.definitions[name] = definition
		return schema{keyRef: r.prefix + name}, err
	default:
		return nil, fmt.Errorf("no schema for the Go type %s", t)
	}
}

// pointer returns the schema of what a pointer points to. Only a pointer to a basic type stands for a value that may be null.
func (r *reflector) pointer(t reflect.Type) (schema, error) {
	s, err := r.value(t.Elem())
	if _, basic := s[keyType]; basic && err == nil {
		nullable(s)
	}
	return s, err
}

// objectSchema is what the protocol asks of any object.
func objectSchema() schema {
	text := func(description string) schema {
		return schema{keyType: "string", "minLength": 1, keyDescription: description}
	}
	return schema{
		keyType:        "object",
		keyDescription: "Any Kubernetes object. Its further fields are those of its kind.",
		"required":     []string{"apiVersion", "kind", "metadata"},
		"properties": schema{
			"apiVersion": text("Group and version, such as apps/v1, or v1 for the core group."),
			"kind":       text("Kind of the object, such as Deployment."),
			"metadata": schema{
				keyType:        "object",
				keyDescription: "The metadata of Kubernetes (ObjectMeta).",
				"required":     []string{"name"},
				"properties":   schema{"name": text("Name of the object.")},
			},
		},
	}
}
