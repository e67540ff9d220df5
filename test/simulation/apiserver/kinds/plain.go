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

package kinds

import (
	"math"
	"regexp"
	"sync"
	"unicode/utf8"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// plainlyValid reports whether a value is valid beyond doubt. It knows the common part of what a schema may demand and says no to
// everything else, for kube-apiserver's validation to decide, which is a hundred times slower.
func plainlyValid(v any, s *structuralschema.Structural) bool {
	if s == nil {
		return true
	}
	if s.XEmbeddedResource || len(s.XValidations) > 0 || !plainRules(v, s.ValueValidation) {
		return false
	}
	if s.XIntOrString {
		_, isInt := v.(int64)
		_, isText := v.(string)
		return isInt || isText
	}
	switch v := v.(type) {
	case value.Object:
		return (s.Type == "object" || s.Type == "" && s.XPreserveUnknownFields) && plainObject(v, s)
	case []any:
		return s.Type == "array" && plainItems(v, s)
	case string:
		return s.Type == "string"
	case bool:
		return s.Type == "boolean"
	case int64:
		return s.Type == "integer" || s.Type == "number"
	case float64:
		return s.Type == "number" || s.Type == "integer" && v == math.Trunc(v)
	case nil:
		return s.Nullable
	}
	return false
}

func plainObject(o value.Object, s *structuralschema.Structural) bool {
	for name, inner := range o {
		if property, ok := s.Properties[name]; ok {
			if !plainlyValid(inner, &property) {
				return false
			}
			continue
		}
		switch a := s.AdditionalProperties; {
		case a != nil && a.Structural != nil:
			if !plainlyValid(inner, a.Structural) {
				return false
			}
		case a == nil && !s.XPreserveUnknownFields || a != nil && !a.Bool:
			return false
		}
	}
	return true
}

func plainItems(list []any, s *structuralschema.Structural) bool {
	for i, e := range list {
		if !plainlyValid(e, s.Items) {
			return false
		}
		if s.XListType == nil || *s.XListType == "atomic" {
			continue
		}
		for _, other := range list[:i] {
			if *s.XListType == "set" && value.Equal(e, other) || *s.XListType == "map" && sameKeys(e, other, s.XListMapKeys) {
				return false
			}
		}
	}
	return true
}

func sameKeys(a, b any, keys []string) bool {
	x, _ := a.(value.Object)
	y, _ := b.(value.Object)
	for _, key := range keys {
		if !value.Equal(x[key], y[key]) {
			return false
		}
	}
	return true
}

var patterns sync.Map

func plainRules(v any, rules *structuralschema.ValueValidation) bool {
	if rules == nil {
		return true
	}
	if rules.Format != "" || rules.UniqueItems || rules.MultipleOf != nil || rules.ExclusiveMaximum || rules.ExclusiveMinimum ||
		len(rules.AllOf)+len(rules.AnyOf)+len(rules.OneOf) > 0 || rules.Not != nil {
		return false
	}
	if len(rules.Enum) > 0 && !plainChoice(v, rules.Enum) {
		return false
	}
	switch v := v.(type) {
	case value.Object:
		for _, name := range rules.Required {
			if _, ok := v[name]; !ok {
				return false
			}
		}
		return within(int64(len(v)), rules.MinProperties, rules.MaxProperties)
	case []any:
		return within(int64(len(v)), rules.MinItems, rules.MaxItems)
	case string:
		return within(int64(utf8.RuneCountInString(v)), rules.MinLength, rules.MaxLength) && plainText(v, rules.Pattern)
	case int64:
		return (rules.Minimum == nil || float64(v) >= *rules.Minimum) && (rules.Maximum == nil || float64(v) <= *rules.Maximum)
	case float64:
		return (rules.Minimum == nil || v >= *rules.Minimum) && (rules.Maximum == nil || v <= *rules.Maximum)
	}
	return true
}

func plainChoice(v any, choices []structuralschema.JSON) bool {
	for _, choice := range choices {
		if value.Equal(v, choice.Object) {
			return true
		}
	}
	return false
}

func within(n int64, least, most *int64) bool {
	return (least == nil || n >= *least) && (most == nil || n <= *most)
}

func plainText(text, pattern string) bool {
	if pattern == "" {
		return true
	}
	known, ok := patterns.Load(pattern)
	if !ok {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return false
		}
		known, _ = patterns.LoadOrStore(pattern, compiled)
	}
	return known.(*regexp.Regexp).MatchString(text) //nolint:forcetypeassert // Nothing else is stored.
}

// plain reports that an object agrees with the schema of its kind. Its metadata has been checked.
func (c *customSchema) plain(o value.Object) bool {
	if c.structural == nil {
		return true
	}
	s := c.structural
	if len(s.XValidations) > 0 || s.Type != "object" || !plainRules(o, s.ValueValidation) {
		return false
	}
	for name, inner := range o {
		switch name {
		case "apiVersion", "kind", "metadata":
			if property, ok := s.Properties[name]; ok && (len(property.Properties) > 0 || property.ValueValidation != nil) {
				return false
			}
			continue
		}
		if property, ok := s.Properties[name]; ok {
			if !plainlyValid(inner, &property) {
				return false
			}
		} else if !s.XPreserveUnknownFields {
			return false
		}
	}
	return true
}
