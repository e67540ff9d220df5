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
	"math"
	"slices"
)

// few is how many elements are compared one by one.
const few = 16

// elements are those of a list. A hook may return very long ones.
type elements struct {
	list  []any        // that of few
	known map[any]bool // nil for few
}

func elementsOf(list []any) *elements {
	e := &elements{list: list}
	if len(list) > few {
		e.remember(list)
	}
	return e
}

func (e *elements) add(element any) {
	if e.known != nil {
		e.known[MapKey(element)] = true
		return
	}
	if e.list = append(e.list, element); len(e.list) > few {
		e.remember(e.list)
	}
}

func (e *elements) remember(list []any) {
	e.known = make(map[any]bool, len(list))
	for _, element := range list {
		e.known[MapKey(element)] = true
	}
}

func (e *elements) have(element any) bool {
	if e.known != nil {
		return e.known[MapKey(element)]
	}
	return slices.ContainsFunc(e.list, func(other any) bool { return Equal(other, element) })
}

// encoded is an object or a list as JSON.
type encoded string

// exact is up to which number each integer is one of a floating-point number.
const exact = 1 << 53

// MapKey returns what is the same, as the key of a map, for decoded JSON values that are Equal.
func MapKey(element any) any {
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
