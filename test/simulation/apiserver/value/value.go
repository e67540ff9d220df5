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

package value

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is the content of a JSON object.
type Object = map[string]any

// Encoded is a part of an object that is not decoded into maps. It does not change.
type Encoded interface {
	// JSON returns its JSON, which must not be modified.
	JSON() []byte
}

// Decode decodes a JSON object.
func Decode(data []byte) (Object, error) {
	var o Object
	if err := utiljson.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("the JSON is no object")
	}
	return o, nil
}

// Copy returns a deep copy of an object.
func Copy(o Object) Object {
	if o == nil {
		return nil
	}
	c := make(Object, len(o))
	for k, v := range o {
		c[k] = copyOf(v)
	}
	return c
}

func copyOf(v any) any {
	switch v := v.(type) {
	case Object:
		return Copy(v)
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = copyOf(v[i])
		}
		return c
	}
	return v
}

// Shallow returns a copy of an object whose fields are shared.
func Shallow(o Object) Object {
	c := make(Object, len(o))
	maps.Copy(c, o)
	return c
}

// Equal reports whether two values have the same JSON.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case Object:
		b, ok := b.(Object)
		return ok && equalObjects(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return a == float64(i)
		}
	case Encoded:
		b, ok := b.(Encoded)
		return ok && (a == b || bytes.Equal(a.JSON(), b.JSON()))
	}
	return a == b
}

func equalObjects(a, b Object) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		w, ok := b[k]
		if !ok || !Equal(v, w) {
			return false
		}
	}
	return true
}

// Encode returns the JSON of a value, with sorted keys.
func Encode(v any) []byte { return Append(make([]byte, 0, 1024), v) }

// Append appends the JSON of a value.
func Append(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case Object:
		return appendObject(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = Append(b, e)
		}
		return append(b, ']')
	case string:
		return AppendString(b, v)
	case Encoded:
		return append(b, v.JSON()...)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.AppendInt(b, int64(v), 10)
		}
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a %T: %v", v, err)) //nolint:forbidigo // It is an error of the program.
	}
	return append(b, encoded...)
}

func appendObject(b []byte, o Object) []byte {
	var few [24]string
	keys := few[:0]
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, k)
		b = append(b, ':')
		b = Append(b, o[k])
	}
	return append(b, '}')
}

// AppendString appends a string in JSON.
func AppendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf {
			encoded, err := json.Marshal(s)
			if err != nil {
				panic(fmt.Sprintf("encoding a string: %v", err)) //nolint:forbidigo // It is an error of the program.
			}
			return append(b, encoded...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Settle turns numbers without fraction into integers, as decoding what Append has encoded would.
func Settle(v any) any {
	switch v := v.(type) {
	case Object:
		for k, inner := range v {
			if settled := Settle(inner); settled != nil {
				v[k] = settled
			}
		}
	case []any:
		for i, inner := range v {
			if settled := Settle(inner); settled != nil {
				v[i] = settled
			}
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return int64(v)
		}
	}
	return nil
}

// At returns the value at a path of fields, nil if there is none.
func At(o Object, path ...string) any {
	var v any = o
	for _, field := range path {
		inner, ok := v.(Object)
		if !ok {
			return nil
		}
		v = inner[field]
	}
	return v
}

// String returns the string at a path of fields, empty if there is none.
func String(o Object, path ...string) string {
	s, _ := At(o, path...).(string)
	return s
}

// Map returns the object at a path of fields, nil if there is none.
func Map(o Object, path ...string) Object {
	m, _ := At(o, path...).(Object)
	return m
}

// List returns the list at a path of fields, nil if there is none.
func List(o Object, path ...string) []any {
	l, _ := At(o, path...).([]any)
	return l
}

// Int returns the number at a path of fields, 0 if there is none.
func Int(o Object, path ...string) int64 {
	switch n := At(o, path...).(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// Bool returns the truth value at a path of fields, false if there is none.
func Bool(o Object, path ...string) bool {
	b, _ := At(o, path...).(bool)
	return b
}

// Strings returns the strings of the list at a path of fields.
func Strings(o Object, path ...string) []string {
	list := List(o, path...)
	if len(list) == 0 {
		return nil
	}
	texts := make([]string, 0, len(list))
	for _, e := range list {
		if s, ok := e.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}

// FromStrings returns a list of strings.
func FromStrings(texts []string) []any {
	list := make([]any, len(texts))
	for i, s := range texts {
		list[i] = s
	}
	return list
}
