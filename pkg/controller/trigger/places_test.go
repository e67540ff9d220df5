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

package trigger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/randfill"
)

func TestPlacesAtWhichDecodedValuesDiffer(t *testing.T) {
	type object = map[string]any
	for name, tc := range map[string]struct {
		before, after any
		want          string
	}{
		"equal":           {object{"a": int64(1), "b": []any{"x"}}, object{"a": int64(1), "b": []any{"x"}}, ""},
		"a number":        {object{"a": int64(1)}, object{"a": int64(2)}, "status.a"},
		"deep":            {object{"a": object{"b": true, "c": "x"}}, object{"a": object{"b": false, "c": "x"}}, "status.a.b"},
		"an element":      {object{"a": []any{object{"n": "1"}, object{"n": "2"}}}, object{"a": []any{object{"n": "1"}, object{"n": "3"}}}, "status.a[1].n"},
		"another length":  {object{"a": []any{"x"}}, object{"a": []any{"x", "y"}}, "status.a"},
		"another kind":    {object{"a": []any{"x"}}, object{"a": object{"x": "y"}}, "status.a"},
		"one more":        {object{}, object{"b": "x", "a": nil}, "status.a status.b"},
		"one less":        {object{"b": "x", "a": "y"}, object{"a": "y"}, "status.b"},
		"nothing before":  {nil, object{"a": "y"}, "status"},
		"nothing after":   {object{"a": "y"}, nil, "status"},
		"texts":           {map[string]string{"a": "x", "b": "y", "c": ""}, map[string]string{"a": "z", "b": "y", "d": ""}, "status.a status.c status.d"},
		"more than eight": {object{}, object{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": "", "h": "", "i": ""}, "8"},
	} {
		t.Run(name, func(t *testing.T) {
			var p Places
			p.Compare("former", "latter", "metadata", "name")
			p.Reset()
			p.Compare(tc.before, tc.after, "status")
			got := strings.Join(p.List(), " ")
			if len(p.List()) == maxFields {
				got = fmt.Sprint(maxFields)
			}
			if got != tc.want {
				t.Errorf("the places are %s, want %s", got, tc.want)
			}
		})
	}
	var none *Places
	if none.List() != nil {
		t.Error("none has places")
	}
}

// TestDecodedValuesDifferWhereTheirJSONDoes compares random values both ways.
func TestDecodedValuesDifferWhereTheirJSONDoes(t *testing.T) {
	differ := 0
	value := func(c randfill.Continue) any {
		return []any{nil, "x", "y", true, int64(1), []any{"x", "y"}, []any{"x"}, map[string]any{"k": "x"}, map[string]any{"k": "y", "l": int64(2)}}[c.Intn(9)]
	}
	fill := randfill.NewWithSeed(1).NumElements(1, 4).Funcs(func(m *map[string]any, c randfill.Continue) {
		*m = map[string]any{}
		for _, key := range []string{"a", "b", "c"} {
			switch c.Intn(3) {
			case 0:
				(*m)[key] = value(c)
			case 1:
				(*m)[key] = map[string]any{"in": value(c), "side": value(c)}
			}
		}
	})
	for range 3000 {
		var before, after map[string]any
		fill.Fill(&before)
		fill.Fill(&after)
		var p Places
		p.Compare(before, after)
		encode := func(v any) []byte {
			encoded, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return encoded
		}
		var d differences
		d.compare(encode(before), encode(after))
		want := d.found[:d.n]
		slices.Sort(want)
		if got := p.List(); !slices.Equal(got, want) {
			t.Fatalf("of %s and %s: %q, want %q", encode(before), encode(after), got, want)
		}
		if len(want) > 0 {
			differ++
		}
	}
	if differ < 1000 {
		t.Errorf("only %d of them differ", differ)
	}
}
