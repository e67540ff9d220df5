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
		s = anything{}
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

// Source is a schema whose methods return their own type, as package discovery's do, and whose zero value knows nothing.
type Source[S any] interface {
	comparable
	Field(name string) S
	Item() S
	ListType() (kind string, keys []string)
	Default() (any, bool)
	Shared() bool
	Atomic() bool
}

// SchemaOf returns a source as Schema; nil for its zero value.
func SchemaOf[S Source[S]](s S) Schema {
	var zero S
	if s == zero {
		return nil
	}
	return adapted[S]{s}
}

type adapted[S Source[S]] struct{ source S }

// Field implements Schema.
func (a adapted[S]) Field(name string) Schema { return SchemaOf(a.source.Field(name)) }

// Item implements Schema.
func (a adapted[S]) Item() Schema { return SchemaOf(a.source.Item()) }

// ListType implements Schema.
func (a adapted[S]) ListType() (kind string, keys []string) { return a.source.ListType() }

// Default implements Schema.
func (a adapted[S]) Default() (any, bool) { return a.source.Default() }

// Shared implements Schema.
func (a adapted[S]) Shared() bool { return a.source.Shared() }

// Atomic implements Schema.
func (a adapted[S]) Atomic() bool { return a.source.Atomic() }

// anything is a schema that knows nothing.
type anything struct{}

// Field implements Schema.
func (anything) Field(string) Schema { return nil }

// Item implements Schema.
func (anything) Item() Schema { return nil }

// ListType implements Schema.
func (anything) ListType() (kind string, keys []string) { return "", nil }

// Default implements Schema.
func (anything) Default() (any, bool) { return nil, false }

// Shared implements Schema.
func (anything) Shared() bool { return false }

// Atomic implements Schema.
func (anything) Atomic() bool { return false }

// object is the schema of an object: it knows the metadata that all objects have, whatever their kind says of it.
type object struct {
	anything
	kind Schema
}

// Field implements Schema.
func (o object) Field(name string) Schema {
	if name == "metadata" {
		return anyMetadata{}
	}
	return field(o.kind, name)
}

type anyMetadata struct{ anything }

// Field implements Schema.
func (anyMetadata) Field(name string) Schema {
	switch name {
	case "labels", "annotations":
		return entries{}
	case "ownerReferences":
		return owners{}
	case "finalizers":
		return set{}
	}
	return nil
}

type entries struct{ anything }

// Shared implements Schema.
func (entries) Shared() bool { return true }

type owners struct{ anything }

// ListType implements Schema.
func (owners) ListType() (kind string, keys []string) { return "map", []string{"uid"} }

type set struct{ anything }

// ListType implements Schema.
func (set) ListType() (kind string, keys []string) { return "set", nil }

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
