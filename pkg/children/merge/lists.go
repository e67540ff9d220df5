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

import (
	"fmt"
	"strconv"
	"strings"
)

// guessed are the fields by which the elements of a list are identified where no schema says (docs/reference/contract.md#s12.3).
var guessed = []string{"containerPort", "port", "mountPath", "name", "uid", "ip", "path"}

func guessKey(lists ...[]any) string {
	for _, key := range guessed {
		total := 0
		for _, list := range lists {
			for _, element := range list {
				o, ok := element.(map[string]any)
				if !ok {
					return ""
				}
				if _, ok := o[key]; !ok {
					total = -1
				}
				if total >= 0 {
					total++
				}
			}
		}
		if total > 0 {
			return key
		}
	}
	return ""
}

func keyed(list []any) bool {
	for _, element := range list {
		if _, ok := element.(map[string]any); !ok {
			return false
		}
	}
	return true
}

func index(list []any, keys []string, schema Schema) map[string]any {
	result := make(map[string]any, len(list))
	for i, key := range keysOf(list, keys, schema) {
		result[key] = list[i]
	}
	return result
}

// keysOf returns the keys of a list's elements. The second element of a key gets another one, and so on: the API server
// takes some lists in which a key is there twice, such as environment variables, and where the key is guessed the
// elements may differ in another field, such as a port's protocol.
func keysOf(list []any, keys []string, schema Schema) []string {
	result := make([]string, len(list))
	times := make(map[string]int, len(list))
	for i, element := range list {
		key := keyOf(element, keys, schema)
		times[key]++
		for base, n := key, times[key]; n > 1; n++ {
			if key = base + "#" + strconv.Itoa(n); times[key] == 0 {
				times[key] = 1
				break
			}
		}
		result[i] = key
	}
	return result
}

func keyOf(element any, keys []string, schema Schema) string {
	o, _ := element.(map[string]any)
	if len(keys) == 1 {
		return keyValue(o, keys[0], schema)
	}
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = keyValue(o, key, schema)
	}
	return strings.Join(parts, ",")
}

func keyValue(o map[string]any, key string, schema Schema) string {
	value, ok := o[key]
	if !ok && schema != nil {
		if f := schema.Field(key); f != nil {
			value, _ = f.Default()
		}
	}
	return stringify(value)
}

func stringify(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

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
}

// Source is a schema whose methods return their own type, as package discovery's do, and whose zero value knows nothing.
type Source[S any] interface {
	comparable
	Field(name string) S
	Item() S
	ListType() (kind string, keys []string)
	Default() (any, bool)
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

// anyObject is the schema of objects whose kind has none: it knows the metadata that all objects have.
type anyObject struct{}

// Field implements Schema.
func (anyObject) Field(name string) Schema {
	if name == "metadata" {
		return anyMetadata{}
	}
	return nil
}

// Item implements Schema.
func (anyObject) Item() Schema { return nil }

// ListType implements Schema.
func (anyObject) ListType() (kind string, keys []string) { return "", nil }

// Default implements Schema.
func (anyObject) Default() (any, bool) { return nil, false }

type anyMetadata struct{ anyObject }

// Field implements Schema.
func (anyMetadata) Field(name string) Schema {
	switch name {
	case "ownerReferences":
		return owners{}
	case "finalizers":
		return set{}
	}
	return nil
}

type owners struct{ anyObject }

// ListType implements Schema.
func (owners) ListType() (kind string, keys []string) { return "map", []string{"uid"} }

type set struct{ anyObject }

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
