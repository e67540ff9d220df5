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
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Normalized reports whether a difference is what API servers make of values that say the same: absent for empty,
// quantities, durations and times in canonical form, defaults for what is null or empty and in the elements of a list. That is so only
// for what was applied already: then the difference is not the hook's. It may be somebody else's, and is overlooked only if it
// says the same as what is desired, or more (docs/reference/compatibility.md#d12.4).
func Normalized(d Difference) bool {
	if d.Removed || !d.Applied {
		return false
	}
	if !d.Present {
		return empty(d.Desired) && !kept(d.Path, d.Desired)
	}
	return covers(d.Path, d.Observed, d.Desired)
}

// covers reports whether observed says what desired says, and perhaps more.
func covers(path string, observed, desired any) bool {
	if Equal(observed, desired) || empty(observed) && empty(desired) {
		return true
	}
	switch want := desired.(type) {
	case nil:
		// What is left out has a default.
		return !verbatim(path)
	case string:
		if want == "" {
			_, text := observed.(string)
			return text && !verbatim(path)
		}
	case map[string]any:
		have, ok := observed.(map[string]any)
		return ok && coversObject(path, have, want)
	case []any:
		have, ok := observed.([]any)
		return ok && coversList(path, have, want)
	}
	return sameText(path, observed, desired) || sameQuantity(path, observed, desired)
}

func coversObject(path string, have, want map[string]any) bool {
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
}

func coversList(path string, have, want []any) bool {
	if len(have) < len(want) || (len(have) > len(want) && !endsIn(path, growing)) {
		return false
	}
	if endsIn(path, sorted) {
		return coversInAnyOrder(path, have, want)
	}
	for i, value := range want {
		if !covers(path, have[i], value) {
			return false
		}
	}
	return true
}

// coversInAnyOrder finds for every wanted element another one that covers it.
func coversInAnyOrder(path string, have, want []any) bool {
	left := slices.Clone(have)
	for _, value := range want {
		i := slices.IndexFunc(left, func(element any) bool { return covers(path, element, value) })
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return true
}

// growing are the lists to which API servers themselves add elements, sorted those whose elements they put in order.
var (
	growing = []string{"tolerations", "finalizers"}
	sorted  = []string{"subsets", "addresses", "notReadyAddresses", "tolerations"}
)

func endsIn(path string, fields []string) bool {
	last := path[strings.LastIndexByte(path, '.')+1:]
	return slices.Contains(fields, last)
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

// kept reports whether a path leads to texts that API servers store even if they are empty: that they are not there is
// somebody's doing.
func kept(path string, desired any) bool {
	for _, texts := range []string{"data", "metadata.labels", "metadata.annotations"} {
		rest, below := strings.CutPrefix(path, texts)
		switch desired := desired.(type) {
		case string:
			if below && strings.HasPrefix(rest, ".") {
				return true
			}
		case map[string]any:
			if below && rest == "" {
				return slices.ContainsFunc(slices.Collect(maps.Values(desired)), func(value any) bool { return value != nil })
			}
		}
	}
	return false
}

// verbatim reports whether a path leads to what users store, which API servers do not interpret.
func verbatim(path string) bool {
	return strings.HasPrefix(path, "data.") || strings.HasPrefix(path, "metadata.") || strings.Contains(path, ".env[")
}

// sameText reports whether two strings are the same time, the same duration, or the same bytes in base64.
func sameText(path string, observed, desired any) bool {
	have, ok := observed.(string)
	want, wanted := desired.(string)
	if !ok || !wanted || verbatim(path) {
		return false
	}
	if strings.HasPrefix(path, "binaryData.") || endsIn(path, []string{"caBundle"}) {
		return have == unwrapped(want)
	}
	if a, err := time.Parse(time.RFC3339, have); err == nil {
		b, err := time.Parse(time.RFC3339, want)
		return err == nil && a.Equal(b)
	}
	if a, err := time.ParseDuration(have); err == nil && a.String() == have {
		b, err := time.ParseDuration(want)
		return err == nil && a == b
	}
	return false
}

// unwrapped returns base64 without line breaks, which API servers take and do not keep.
func unwrapped(text string) string { return strings.NewReplacer("\n", "", "\r", "").Replace(text) }

// quantities are the fields under which quantities stand.
var quantities = []string{
	"requests", "limits", "capacity", "allocatable", "hard", "storage", "sizeLimit", "divisor",
	"default", "defaultRequest", "max", "min", "metrics", "overhead", "podFixed", "maxLimitRequestRatio",
}

func sameQuantity(path string, observed, desired any) bool {
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	if verbatim(path) || !slices.ContainsFunc(segments, func(s string) bool { return slices.Contains(quantities, s) }) {
		return false
	}
	a, err := resource.ParseQuantity(stringify(observed))
	if err != nil {
		return false
	}
	b, err := resource.ParseQuantity(stringify(desired))
	return err == nil && a.Cmp(b) == 0
}
