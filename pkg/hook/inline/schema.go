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

package inline

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schemas says what the cluster, or a folder of definitions, knows of a resource.
type Schemas interface {
	// Resource returns the kind of a resource, and false when it is not served.
	Resource(apiVersion, resource string) (*Kind, bool)
}

// Kind is a kind of objects with its schema. It is read-only.
type Kind struct {
	// APIVersion and Name are those of the objects.
	APIVersion, Name string
	// Schema is what the cluster publishes, nil when it publishes nothing: nothing is checked then.
	Schema *spec.Schema
	// Definition returns the schema that the last part of a reference names, nil when there is none. It is nil for a schema without references.
	Definition func(name string) *spec.Schema
}

// shape is a place in a schema: what may stand in a field. The zero value takes everything.
type shape struct {
	kind   *Kind
	schema *spec.Schema
	// path names the place in messages, beginning with the kind.
	path string
}

// class is what of a schema matters here.
type class int

const (
	anything class = iota
	text
	integer
	number
	boolean
	list
	object
	mapping
	// union is several scalar types: int-or-string, quantities.
	union
)

// Types as schemas name them.
const typeString, typeInteger, typeObject = "string", "integer", "object"

// shapeOf returns the shape of a whole object.
func shapeOf(kind *Kind) shape {
	if kind == nil || kind.Schema == nil {
		return shape{}
	}
	s := shape{kind: kind, path: kind.Name}.at(kind.Schema, kind.Name)
	meta := s.property(metadataField)
	if s.schema == nil || meta.class() == object && len(meta.schema.Properties) > len(embeddedMetadata) {
		return s
	}
	// A CustomResourceDefinition leaves the metadata out of its schema.
	whole := *s.schema
	whole.Properties = map[string]spec.Schema{metadataField: metadataSchema}
	for name := range s.schema.Properties {
		if name != metadataField {
			whole.Properties[name] = s.schema.Properties[name]
		}
	}
	for _, name := range []string{apiVersionField, kindField} {
		whole.Properties[name] = *spec.StringProperty()
	}
	s.schema = &whole
	return s
}

// at returns the shape of a schema within the same kind, with references followed.
func (s shape) at(schema *spec.Schema, path string) shape {
	for range 16 { // References do not go in circles without a field between.
		if schema == nil {
			return shape{}
		}
		ref := schema.Ref.String()
		if ref == "" && len(schema.AllOf) == 1 {
			ref = schema.AllOf[0].Ref.String()
		}
		if ref == "" {
			return shape{kind: s.kind, schema: schema, path: path}
		}
		if s.kind.Definition == nil {
			return shape{}
		}
		schema = s.kind.Definition(ref[strings.LastIndex(ref, "/")+1:])
	}
	return shape{}
}

func (s shape) class() class {
	switch {
	case s.schema == nil:
		return anything
	case s.intOrString():
		return union
	}
	if len(s.schema.Type) == 0 {
		if len(s.unionTypes()) > 0 {
			return union
		}
		if len(s.schema.Properties) == 0 {
			return anything
		}
		return object
	}
	switch s.schema.Type[0] {
	case typeString:
		return text
	case typeInteger:
		return integer
	case "number":
		return number
	case "boolean":
		return boolean
	case "array":
		return list
	case typeObject:
		return s.objectClass()
	}
	return anything
}

func (s shape) objectClass() class {
	switch more := s.schema.AdditionalProperties; {
	case len(s.schema.Properties) > 0:
		return object
	case s.extension("x-kubernetes-preserve-unknown-fields"), s.extension("x-kubernetes-embedded-resource"):
		return anything
	case more != nil && (more.Schema != nil || more.Allows):
		return mapping
	}
	return anything
}

func (s shape) extension(name string) bool {
	set, ok := s.schema.Extensions.GetBool(name)
	return set && ok
}

func (s shape) intOrString() bool {
	return s.schema.Format == "int-or-string" || s.extension("x-kubernetes-int-or-string")
}

// unionTypes are the types that a union takes.
func (s shape) unionTypes() []string {
	if s.intOrString() {
		return []string{typeInteger, typeString}
	}
	var names []string
	for _, alternatives := range [][]spec.Schema{s.schema.OneOf, s.schema.AnyOf} {
		for i := range alternatives {
			if len(alternatives[i].Type) != 1 {
				return nil
			}
			names = append(names, alternatives[i].Type[0])
		}
	}
	return names
}

// property returns the shape of a field of an object, which takes everything when it is not known.
func (s shape) property(name string) shape {
	found, _ := s.field(name)
	return found
}

// field returns the shape of a field of an object or of a value of a map, and whether there may be one.
func (s shape) field(name string) (shape, bool) {
	if s.schema == nil {
		return shape{}, true
	}
	if property, ok := s.schema.Properties[name]; ok {
		return s.at(&property, s.path+"."+pathName(name)), true
	}
	if more := s.schema.AdditionalProperties; more != nil && (more.Schema != nil || more.Allows) {
		return s.values(), true
	}
	open := s.class() != object || s.extension("x-kubernetes-preserve-unknown-fields") || s.extension("x-kubernetes-embedded-resource")
	return shape{}, open
}

// pathName returns a name as it stands in a path. It is quoted where it holds what separates the parts of paths, which name types.
func pathName(name string) string {
	if strings.ContainsAny(name, "\".*['\\") {
		return strconv.Quote(name)
	}
	return name
}

// values returns the shape of the values of a map.
func (s shape) values() shape {
	if s.schema == nil || s.schema.AdditionalProperties == nil {
		return shape{}
	}
	return s.at(s.schema.AdditionalProperties.Schema, s.path+".*")
}

// items returns the shape of the elements of a list.
func (s shape) items() shape {
	if s.schema == nil || s.schema.Items == nil {
		return shape{}
	}
	return s.at(s.schema.Items.Schema, s.path+"[]")
}

// names returns the fields of an object, sorted.
func (s shape) names() []string {
	names := make([]string, 0, len(s.schema.Properties))
	for name := range s.schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// required are the fields that an object must have. Kubernetes publishes an empty string as the default of each string that is not
// optional, so that it says nothing.
func (s shape) required() []string {
	var names []string
	for _, name := range s.schema.Required {
		if property, ok := s.schema.Properties[name]; !ok || property.Default == nil || property.Default == "" {
			names = append(names, name)
		}
	}
	return names
}

// wants names in a message what may stand here.
func (s shape) wants() string {
	switch s.class() {
	case text:
		return typeString
	case integer:
		return typeInteger
	case number:
		return "number"
	case boolean:
		return "boolean"
	case list:
		return "list of " + s.items().wants()
	case object:
		return typeObject
	case mapping:
		return "map of " + s.values().wants()
	case union:
		return strings.Join(s.unionTypes(), " or ")
	case anything:
	}
	return "any value"
}

// celType returns the type that an expression has which reads a value of this shape. Numbers may be integers in JSON, so that nothing
// is known of their type.
func (r *registry) celType(s shape) *cel.Type {
	switch s.class() {
	case text:
		return cel.StringType
	case integer:
		return cel.IntType
	case boolean:
		return cel.BoolType
	case list:
		return cel.ListType(r.celType(s.items()))
	case mapping:
		return cel.MapType(cel.StringType, r.celType(s.values()))
	case object:
		return r.object(s)
	case anything, number, union:
	}
	return cel.DynType
}
