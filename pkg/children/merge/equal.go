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
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Equal reports whether two decoded JSON values are the same: numbers by value, so that 1.0 is 1.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, ok := b[name]
			if !ok || !Equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case int64:
		switch b := b.(type) {
		case int64:
			return a == b
		case float64:
			return float64(a) == b
		}
		return false
	case float64:
		switch b := b.(type) {
		case int64:
			return a == float64(b)
		case float64:
			return a == b
		}
		return false
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case nil:
		return b == nil
	}
	return false
}

// Normalized reports whether a difference is what API servers make of values that say the same: absent for empty,
// quantities in canonical form, and defaults added to the elements of a list. It is asked only about desired states that
// were applied already, so the difference is not the hook's.
func Normalized(d Difference) bool {
	if d.Removed {
		return false
	}
	if !d.Present {
		return empty(d.Desired)
	}
	return covers(d.Path, d.Observed, d.Desired)
}

// covers reports whether observed says what desired says, and perhaps more.
func covers(path string, observed, desired any) bool {
	if Equal(observed, desired) {
		return true
	}
	switch want := desired.(type) {
	case nil:
		return empty(observed)
	case map[string]any:
		have, ok := observed.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			other, there := have[name]
			if !there && empty(value) {
				continue
			}
			if !there || !covers(path+"."+name, other, value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := observed.([]any)
		if !ok || len(have) < len(want) || (len(have) > len(want) && !grows(path)) {
			return false
		}
		for i, value := range want {
			if !covers(path, have[i], value) {
				return false
			}
		}
		return true
	}
	return sameQuantity(path, observed, desired)
}

// grows names the lists to which API servers themselves add elements.
func grows(path string) bool {
	return strings.HasSuffix(path, "tolerations") || strings.HasSuffix(path, "finalizers")
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		for _, inner := range v {
			if !empty(inner) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	}
	return false
}

// quantities names the fields under which quantities stand.
var quantities = []string{"requests", "limits", "capacity", "allocatable", "hard", "storage", "sizeLimit", "divisor",
	"default", "defaultRequest", "max", "min", "averageValue", "value", "overhead", "podFixed", "maxLimitRequestRatio"}

func sameQuantity(path string, observed, desired any) bool {
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	if !slices.ContainsFunc(segments, func(s string) bool { return slices.Contains(quantities, s) }) {
		return false
	}
	a, err := resource.ParseQuantity(stringify(observed))
	if err != nil {
		return false
	}
	b, err := resource.ParseQuantity(stringify(desired))
	return err == nil && a.Cmp(b) == 0
}
