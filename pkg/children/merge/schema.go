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

package merge

// Schema says how lists are merged. A nil Schema knows nothing.
type Schema interface {
	// Field returns the schema of a field of an object, or of a value of a map; nil if unknown.
	Field(name string) Schema
	// Item returns the schema of a list's elements; nil if unknown.
	Item() Schema
	// ListType returns "map" with the keys, "set", "atomic", or "" if unknown.
	ListType() (kind string, keys []string)
	// Default returns the default value of a field.
	Default() (any, bool)
	// Shared reports whether an object is a map, to which several clients may add entries.
	Shared() bool
	// Atomic reports whether an object, or a map, is written as a whole.
	Atomic() bool
}

// Declared returns a schema as server-side apply takes it, where nothing is guessed: a list is atomic if the schema does not say how it is
// merged, and whatever is in an atomic object and not desired is a difference, applied before or not. Nil is a schema that declares nothing.
func Declared(s Schema) Schema {
	if s == nil {
		s = known{}
	}
	return declared{s}
}

type declared struct{ Schema }

// Field implements Schema.
func (d declared) Field(name string) Schema { return Declared(d.Schema.Field(name)) }

// Item implements Schema.
func (d declared) Item() Schema { return Declared(d.Schema.Item()) }

// ListType implements Schema.
func (d declared) ListType() (kind string, keys []string) {
	if kind, keys = d.Schema.ListType(); kind == "" {
		return "atomic", nil
	}
	return kind, keys
}

// known is a schema that nobody publishes. The zero value knows nothing.
type known struct {
	fields map[string]Schema
	list   string
	keys   []string
	shared bool
}

func (k known) Field(name string) Schema       { return k.fields[name] }
func (known) Item() Schema                     { return nil }
func (k known) ListType() (string, []string)   { return k.list, k.keys }
func (known) Default() (value any, there bool) { return nil, false }
func (k known) Shared() bool                   { return k.shared }
func (known) Atomic() bool                     { return false }

// metadata is the schema of the metadata that all objects have.
var metadata = known{fields: map[string]Schema{ //nolint:gochecknoglobals // It does not change.
	"labels": known{shared: true}, "annotations": known{shared: true},
	"ownerReferences": known{list: "map", keys: []string{"uid"}}, "finalizers": known{list: "set"},
}}

// object is the schema of an object, whatever its kind says of metadata.
type object struct{ Schema }

// Field implements Schema.
func (o object) Field(name string) Schema {
	if name == "metadata" {
		return metadata
	}
	return field(o.Schema, name)
}

func field(s Schema, name string) Schema {
	if s == nil {
		return nil
	}
	return s.Field(name)
}

func item(s Schema) Schema {
	if s == nil {
		return nil
	}
	return s.Item()
}

func listType(s Schema) (string, []string) {
	if s == nil {
		return "", nil
	}
	return s.ListType()
}
