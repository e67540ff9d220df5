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
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of types that every module declares by hand.
const (
	object    = "Object"
	objectMap = "ObjectMap"
)

// record is a type with fields.
type record struct {
	name, text string
	fields     []field
}

// field is one field of a record.
type field struct {
	name, text string
	kind       kind
	required   bool
}

// kind is the type of a field: exactly one of base, list and values is set.
type kind struct {
	// base is boolean, number, string, object, or the name of a record.
	base string
	// list is the type of the elements of a list, values that of the values of a map by name.
	list, values *kind
	// null says that null is a value.
	null bool
}

// document is what is read of a schema.
type document struct {
	Title                string              `json:"title"`
	Description          string              `json:"description"`
	Ref                  string              `json:"$ref"`
	Type                 any                 `json:"type"`
	OneOf                []document          `json:"oneOf"`
	Items                *document           `json:"items"`
	Properties           map[string]document `json:"properties"`
	AdditionalProperties any                 `json:"additionalProperties"`
	Required             []string            `json:"required"`
	Defs                 map[string]document `json:"$defs"`
}

// read returns the types of all requests and responses, and those that they refer to first. Responses of both versions have the same
// fields; what version 2 adds is a check, which the server does.
func read(folder string) ([]record, error) {
	var records []record
	seen := map[string]bool{}
	for _, name := range []string{"composite", "decorator", "customize"} {
		for _, body := range []string{"-request.json", "-response.v2.json"} {
			text, err := os.ReadFile(filepath.Join(folder, name+body))
			if err != nil {
				return nil, fmt.Errorf("reading the schema: %w", err)
			}
			var d document
			if err := json.Unmarshal(text, &d); err != nil {
				return nil, fmt.Errorf("reading the schema %s: %w", name+body, err)
			}
			if records, err = d.add(records, seen, d.Title, d.Defs); err != nil {
				return nil, fmt.Errorf("reading the schema %s: %w", name+body, err)
			}
		}
	}
	return records, nil
}

// add adds the type of a document of that name, and before it those that it refers to.
func (d document) add(records []record, seen map[string]bool, name string, definitions map[string]document) ([]record, error) {
	if seen[name] {
		return records, nil
	}
	seen[name] = true
	r := record{name: name, text: d.Description}
	for _, property := range slices.Sorted(maps.Keys(d.Properties)) {
		p := d.Properties[property]
		k, references, err := p.kind()
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, property, err)
		}
		for _, reference := range references {
			definition, ok := definitions[reference]
			if !ok {
				return nil, fmt.Errorf("%s.%s: there is no definition %s", name, property, reference)
			}
			if records, err = definition.add(records, seen, shortName(reference), definitions); err != nil {
				return nil, err
			}
		}
		text := p.Description
		if text == "" && p.Ref != "" {
			text = definitions[strings.TrimPrefix(p.Ref, definitionsPath)].Description
		}
		r.fields = append(r.fields, field{name: property, text: text, kind: k, required: slices.Contains(d.Required, property)})
	}
	return append(records, r), nil
}

const definitionsPath = "#/$defs/"

// shortName is the last part of the name of a definition.
func shortName(definition string) string { return definition[strings.LastIndex(definition, ".")+1:] }

// kind returns the type of a field, and the definitions that have to be declared for it.
func (d document) kind() (k kind, references []string, err error) {
	if d.Ref != "" {
		reference := strings.TrimPrefix(d.Ref, definitionsPath)
		switch {
		case reference == object || reference == objectMap:
			return kind{base: reference}, nil, nil
		case strings.HasPrefix(reference, "io.k8s.metacontroller."):
			return kind{base: object}, nil, nil // A controller, as it is stored.
		}
		return kind{base: shortName(reference)}, []string{reference}, nil
	}
	if len(d.OneOf) == 2 && slices.Equal(d.OneOf[1].types(), []string{"null"}) {
		k, references, err := d.OneOf[0].kind()
		k.null = true
		return k, references, err
	}
	types := d.types()
	null := slices.Contains(types, "null")
	types = slices.DeleteFunc(types, func(t string) bool { return t == "null" })
	if len(types) != 1 {
		return kind{}, nil, fmt.Errorf("its type is %v", d.Type)
	}
	switch types[0] {
	case "array":
		if d.Items == nil {
			return kind{}, nil, fmt.Errorf("nothing is said of its elements")
		}
		element, references, err := d.Items.kind()
		return kind{list: &element, null: null}, references, err
	case "object":
		values, ok := d.AdditionalProperties.(map[string]any)
		if !ok {
			return kind{base: "object", null: null}, nil, nil
		}
		value, references, err := document{Type: values["type"]}.kind()
		return kind{values: &value, null: null}, references, err
	}
	return kind{base: types[0], null: null}, nil, nil
}

func (d document) types() []string {
	switch t := d.Type.(type) {
	case string:
		return []string{t}
	case []any:
		var names []string
		for _, name := range t {
			names = append(names, fmt.Sprint(name))
		}
		return names
	}
	return nil
}
