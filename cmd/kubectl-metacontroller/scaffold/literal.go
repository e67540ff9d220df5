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

package scaffold

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// variable stands in a desired state for what the hook takes from the parent.
type variable string

// syntax is how a language writes nested values.
type syntax struct {
	object, list string
	// indent is one step.
	indent string
	// bare says that keys that are identifiers are not quoted.
	bare bool
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// literal writes a value in a language, whose further lines are indented by lead.
func (s syntax) literal(value any, lead string) string {
	var open, end string
	var elements []string
	switch v := value.(type) {
	case variable:
		return string(v)
	case map[string]any:
		open, end = s.object+"{", "}"
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name := quoted(key)
			if s.bare && identifier.MatchString(key) {
				name = key
			}
			elements = append(elements, name+": "+s.literal(v[key], lead+s.indent))
		}
	case []any:
		open, end = s.list, "]"
		if s.list == "[]any{" {
			end = "}"
		}
		for _, element := range v {
			elements = append(elements, s.literal(element, lead+s.indent))
		}
	default:
		return quoted(v)
	}
	if len(elements) == 0 || len(elements) == 1 && !strings.Contains(elements[0], "\n") {
		return open + strings.Join(elements, "") + end
	}
	return open + "\n" + lead + s.indent + strings.Join(elements, ",\n"+lead+s.indent) + ",\n" + lead + end
}

// quoted writes texts and numbers as all languages here do.
func quoted(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// evaluate returns a value with the values of its variables.
func evaluate(value any, values map[variable]any) any {
	switch v := value.(type) {
	case variable:
		return values[v]
	case map[string]any:
		out := map[string]any{}
		for key, element := range v {
			out[key] = evaluate(element, values)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, element := range v {
			out = append(out, evaluate(element, values))
		}
		return out
	}
	return value
}

// mentions tells whether a variable is in a value.
func mentions(value any, v variable) bool {
	switch in := value.(type) {
	case variable:
		return in == v
	case map[string]any:
		return mentions(slices.Collect(maps.Values(in)), v)
	case []any:
		return slices.ContainsFunc(in, func(element any) bool { return mentions(element, v) })
	}
	return false
}
