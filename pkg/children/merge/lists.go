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
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// guessed are the fields by which the elements of a list are identified where no schema says (docs/reference/contract.md#s12.3).
var guessed = []string{"containerPort", "port", "mountPath", "name", "uid", "ip", "path"}

func guessKey(lists ...[]any) string {
	all := slices.Concat(lists...)
	if len(all) == 0 || !keyed(all) {
		return ""
	}
	at := slices.IndexFunc(guessed, func(key string) bool {
		return !slices.ContainsFunc(all, func(element any) bool {
			o, _ := element.(map[string]any)
			_, ok := o[key]
			return !ok
		})
	})
	if at < 0 {
		return ""
	}
	return guessed[at]
}

func keyed(list []any) bool {
	return !slices.ContainsFunc(list, func(element any) bool {
		_, ok := element.(map[string]any)
		return !ok
	})
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
				times[key], times[base] = 1, n // The next one begins here: a list may be long.
				break
			}
		}
		result[i] = key
	}
	return result
}

func keyOf(element any, keys []string, schema Schema) string {
	o, _ := element.(map[string]any)
	text := ""
	for i, key := range keys {
		value, ok := o[key]
		if f := field(schema, key); !ok && f != nil {
			value, _ = f.Default()
		}
		if i > 0 {
			text += ","
		}
		text += stringify(value)
	}
	return text
}

func stringify(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// othersHave reports whether something in a value that was applied last is not of what was applied: entries of a map, or elements of a
// list with keys. What else is in an object may be a default, which is nobody's.
func othersHave(observed, last any, schema Schema) bool {
	switch observed := observed.(type) {
	case map[string]any:
		was, ok := last.(map[string]any)
		if schema == nil || !schema.Shared() || !ok && last != nil {
			return false
		}
		for name, value := range observed {
			if before, ours := was[name]; !ours || othersHave(value, before, field(schema, name)) {
				return true
			}
		}
	case []any:
		was, ok := last.([]any)
		if !ok && last != nil {
			return false
		}
		switch kind, keys := listType(schema); {
		case kind == "map" && keyed(observed) && keyed(was):
			ours := index(was, keys, item(schema))
			return slices.ContainsFunc(keysOf(observed, keys, item(schema)), func(key string) bool {
				_, known := ours[key]
				return !known
			})
		case kind == "set":
			applied := elementsOf(was)
			return slices.ContainsFunc(observed, func(element any) bool { return !applied.have(element) })
		}
	}
	return false
}

// elements are those of a list, as keys of a map: a hook may return very long ones.
type elements map[any]bool

func elementsOf(list []any) elements {
	e := make(elements, len(list))
	for _, element := range list {
		e[mapKey(element)] = true
	}
	return e
}

func (e elements) have(element any) bool { return e[mapKey(element)] }

// encoded is an object or a list as JSON.
type encoded string

// exact is up to which number each integer is one of a floating-point number.
const exact = 1 << 53

// mapKey returns what is the same, as the key of a map, for decoded JSON values that are Equal.
func mapKey(element any) any {
	switch v := element.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= exact {
			return int64(v)
		}
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err != nil {
			return nil // Not reached: what was decoded can be encoded.
		}
		return encoded(text)
	}
	return element
}
