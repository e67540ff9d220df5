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

package inline_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

func templateOf(json string) v1alpha1.InlineTemplate {
	return v1alpha1.InlineTemplate{Template: runtime.RawExtension{Raw: []byte(json)}}
}

func configMap(data string) v1alpha1.InlineTemplate {
	return templateOf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":` + data + `}}`)
}

// Each of these definitions is refused when it is compiled, by a bounded number of errors.
func TestHostileDefinitionsAreRefused(t *testing.T) {
	many := func(n int, template v1alpha1.InlineTemplate) *v1alpha1.InlineHook {
		h := &v1alpha1.InlineHook{}
		for range n {
			h.Children = append(h.Children, template)
		}
		return h
	}
	variable := func(expression string) *v1alpha1.InlineHook {
		return &v1alpha1.InlineHook{Variables: []v1alpha1.InlineVariable{{Name: "a", Expression: expression}}}
	}
	nested := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	widget := func(value string) v1alpha1.InlineTemplate {
		return templateOf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"b":` + value + `}`)
	}
	loops := &v1alpha1.InlineHook{Children: []v1alpha1.InlineTemplate{configMap(`"b"`)}}
	for i := range 9 {
		loops.Children[0].ForEach = append(loops.Children[0].ForEach, v1alpha1.InlineIterator{Name: fmt.Sprintf("i%d", i), In: "lists.range(100)"})
	}
	variables := &v1alpha1.InlineHook{}
	for i := range 1000 {
		variables.Variables = append(variables.Variables, v1alpha1.InlineVariable{Name: fmt.Sprintf("v%d", i), Expression: "1"})
	}

	for name, row := range map[string]struct {
		hook *v1alpha1.InlineHook
		want string
	}{
		"10,000 templates":             {many(10_000, configMap(`"b"`)), "Too many"},
		"10,000 expressions":           {many(200, configMap(`["`+strings.Repeat(`${1}`, 100)+`"]`)), "is a list"},
		"expressions within one text":  {many(200, configMap(`"`+strings.Repeat(`${1}`, 100)+`"`)), "1000 is the most"},
		"a deep template":              {many(1, configMap(nested(`{"a":`, "1", "}", 5000))), "is an object"},
		"a deep template of anything":  {many(1, widget(nested("[", "1", "]", 5000))), "nested deeper"},
		"a wide template":              {many(1, widget("["+strings.Repeat("1,", 50_000)+"1]")), "10000 is the most"},
		"a template that is no JSON":   {many(1, templateOf(`{`)), "is not valid JSON"},
		"iterators":                    {loops, "Too many"},
		"variables":                    {variables, "Too many"},
		"a long expression":            {variable(strings.Repeat("1+", 50_000) + "1"), "Too long"},
		"parentheses":                  {variable(nested("(", "1", ")", 3000)), "recursion"},
		"lists in lists":               {variable(nested("[", "1", "]", 3000)), "recursion"},
		"loops in loops":               {variable(nested("[1,2,3,4,5,6,7,8,9].map(a, ", "a", ")", 20)), "may cost"},
		"a pattern that repeats":       {variable("'a'.matches('" + strings.Repeat("(a{1000}|b)", 700) + "')"), "repetitions"},
		"patterns":                     {many(200, configMap("\"${string('a'.matches('a{1000}'))}\"")), "states together"},
		"classes of characters":        {many(200, configMap("\"${string('a'.matches('"+strings.Repeat(`\\\\pL`, 100)+"'))}\"")), "states together"},
		"optional maps of a long list": {variable("optional.of([" + strings.Repeat("1,", 3900) + "1])" + strings.Repeat(".optMap(a,a)", 8)), "optMap"},
		"optional maps":                {variable("optional.of(1)" + strings.Repeat(".optMap(a, a)", 300)), "optMap"},
		"a text of a megabyte in text": {many(1, configMap(`"`+strings.Repeat("x", 1<<20)+`${"`)), "no closing brace"},
	} {
		t.Run(name, func(t *testing.T) {
			e := example{Sync: row.hook}
			_, _, errs := inline.Compile(e.definition(), schemas())
			if len(errs) == 0 || len(errs) > 300 || !strings.Contains(errs.ToAggregate().Error(), row.want) {
				t.Errorf("want an error with %q, got %d: %.300v", row.want, len(errs), errs)
			}
			if size := len(fmt.Sprint(errs)); size > 100_000 {
				t.Errorf("the errors have %d bytes", size)
			}
		})
	}
}

// doubled are variables of which each has two of the one before, the last of which is named last.
func doubled(first string, times int, twice func(before string) string) []v1alpha1.InlineVariable {
	variables := []v1alpha1.InlineVariable{{Name: "v0", Expression: first}}
	for i := range times {
		name := fmt.Sprintf("v%d", i+1)
		if i == times-1 {
			name = "last"
		}
		variables = append(variables, v1alpha1.InlineVariable{Name: name, Expression: twice(fmt.Sprintf("variables.v%d", i))})
	}
	return variables
}

// pairsOfPairs are variables the last of which is a list with 2^51 paths.
func pairsOfPairs() []v1alpha1.InlineVariable {
	return doubled("[1, 2]", 50, func(before string) string { return "[dyn(" + before + "), dyn(" + before + ")]" })
}

// Each of these calls would take more memory than there is, or longer than anybody waits.
func TestHostileCallsFail(t *testing.T) {
	pairs := pairsOfPairs()
	ready := func(expression string) *runtime.RawExtension {
		return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"ready": "${%s}"}`, expression)}
	}
	texts := append([]v1alpha1.InlineVariable{
		{Name: "text", Expression: "lists.range(1400).map(i, '" + strings.Repeat("x", 1000) + "').join('')"},
		{Name: "a", Expression: "variables.text + 'a'"},
		{Name: "b", Expression: "variables.text + 'b'"},
	}, doubled("[variables.a, variables.b]", 15, func(before string) string { return before + " + " + before })...)
	const tooMuch = "its cost is above 1000000"
	for name, row := range map[string]struct {
		hook v1alpha1.InlineHook
		want string
	}{
		"a list that is doubled by a name of CEL's own": {v1alpha1.InlineHook{
			Variables: doubled("lists.range(100000)", 24, func(before string) string {
				return "optional.of(" + before + ").optMap(__result__, __result__ + __result__).value()"
			}),
			Status: ready("variables.last.reverse().size()"),
		}, tooMuch},
		"the greatest of lists of lists": {v1alpha1.InlineHook{Variables: pairs, Status: ready("dyn(variables.last).max()")}, tooMuch},
		"the least of lists of lists":    {v1alpha1.InlineHook{Variables: pairs, Status: ready("dyn(variables.last).min()")}, tooMuch},
		"the sum of lists of lists":      {v1alpha1.InlineHook{Variables: pairs, Status: ready("dyn(variables.last).sum()")}, tooMuch},
		"the order of lists of lists":    {v1alpha1.InlineHook{Variables: pairs, Status: ready("dyn(variables.last).isSorted() ? 1 : 0")}, tooMuch},
		"an element that is no optional": {v1alpha1.InlineHook{Variables: pairs, Status: ready("[?dyn(variables.last)].size()")}, "yields list after a ?, which takes an optional"},
		"long texts that are sorted":     {v1alpha1.InlineHook{Variables: texts, Status: ready("variables.last.sort().size()")}, tooMuch},
		"long texts by which is sorted":  {v1alpha1.InlineHook{Variables: texts, Status: ready("variables.last.sortBy(t, t).size()")}, tooMuch},
		"empty objects": {v1alpha1.InlineHook{Children: []v1alpha1.InlineTemplate{{
			ForEach:  []v1alpha1.InlineIterator{{Name: "i", In: "lists.range(10000)"}},
			Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a${i}"},"items":[` + strings.Repeat("{},", 9900) + `{}]}`)},
		}}}, "the response is larger than 32 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			e := example{Sync: &row.hook}
			programs, _, errs := inline.Compile(e.definition(), schemas())
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			body, err := programs[hook.Sync].Call(t.Context(), request(false))
			if err == nil || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 1000 {
				t.Errorf("want an error with %q, got %.200s, %.1000v", row.want, body, err)
			}
		})
	}
}

// TestValuesOfManyPathsAreWalkedByNothing gives a list, which has more paths than anybody can walk, to whatever takes a value, and wants an error that has
// nothing of it, or none.
func TestValuesOfManyPathsAreWalkedByNothing(t *testing.T) {
	pairs, named := pairsOfPairs(), regexp.MustCompile(`\bx\b`)
	for _, expression := range []string{
		"{'a': 1}[x]", "{'a': 1}[?x]", "[1][x]", "[1][?x]", "{x: 1}.size()", "x.a", "x.?a", "x[0]", "x[?0].hasValue()", "has(x.a)", "{'a': x}.a.size()",
		"int(x)", "string(x)", "bytes(x)", "type(x) == list", "size(x)", "x == x", "x != 1", "x in [1]", "1 in x", "x < x", "x ? 1 : 0", "!x", "x && true", "x || false", "-x",
		"1 + x", "x + x", "1 * x", "x.all(y, x)", "x.exists(y, y == x)", "[x].exists_one(y, x)", "[1].map(y, x, y)", "[1].filter(y, x)",
		"[1].transformMap(i, v, x).size()", "[1].transformMapEntry(i, v, {x: 1}).size()", "[1].transformMapEntry(i, v, x)", "[?x]", "{?'a': x}",
		"optional.of(x).optMap(y, y + y).hasValue()", "optional.ofNonZeroValue(x).hasValue()", "x.value()", "x.orValue(1)", "x.or(optional.of(1))", "x.hasValue()",
		"x.slice(0, 1).size()", "x.first()", "x.last()", "x.sort()", "x.sortBy(y, y)", "x.distinct()", "x.reverse().size()", "x.flatten()", "x.join('')", "x.sum()", "x.min()", "x.max()",
		"x.isSorted()", "x.indexOf(1)", "x.lastIndexOf(x)", "x.includes(1)", "sets.contains(x, x)", "sets.intersects(x, x)", "sets.equivalent(x, x)", "lists.range(x)",
		"'a'.matches(x)", "'a'.find(x)", "'a'.contains(x)", "'a'.indexOf(x)", "'a'.split(x)", "'a'.replace(x, x)", "'%s'.format([x])", "'%s'.format(x)", "x.merge({'a': 1})", "{'a': x}.merge({'a': x}).size()",
		"quantity(x)", "semver(x)", "url(x)", "ip(x)", "cidr(x)", "timestamp(x)", "duration(x)", "x.getHours()", "x.asInteger()", "base64.encode(x)", "format.named(x)",
		"children.pods[x]", "children.pods[?x].hasValue()", "x in children.pods",
	} {
		e := example{Sync: &v1alpha1.InlineHook{Variables: pairs, Children: []v1alpha1.InlineTemplate{
			templateOf(fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"value":"${%s}"}`,
				named.ReplaceAllString(expression, "dyn(variables.last)"))),
		}}}
		programs, _, errs := inline.Compile(e.definition(), schemas())
		if len(errs) > 0 {
			t.Errorf("%s: %v", expression, errs)
			continue
		}
		if _, err := programs[hook.Sync].Call(t.Context(), request(false)); err != nil && (len(err.Error()) > 300 || strings.Contains(err.Error(), "[1")) {
			t.Errorf("%s: %.300v", expression, err)
		}
	}
}

// empties is a child with a list of as many empty objects as fit into one.
type empties int

func (empties) JSON() []byte      { return []byte(`{"items":[` + strings.Repeat("{},", 450_000) + `{}]}`) }
func (empties) Namespace() string { return "" }
func (e empties) Name() string    { return strconv.Itoa(int(e)) }

// TestDecodedChildrenCount reads one number of each of some large objects, each of which is thirty megabytes once it is decoded.
func TestDecodedChildrenCount(t *testing.T) {
	e := example{Sync: &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: []byte(`{"ready": "${children.widgets.map(w, w.items.size()).size()}"}`)}}}
	programs, _, errs := inline.Compile(e.definition(), schemas())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for children, want := range map[int]string{1: `"ready":1`, 10: "cost more than 3000000"} {
		r := request(false)
		r.Children = []wire.Group{{Key: "Widget.example.com/v1"}}
		for i := range children {
			r.Children[0].Objects = append(r.Children[0].Objects, empties(i))
		}
		body, err := programs[hook.Sync].Call(t.Context(), r)
		if got := fmt.Sprintf("%s %v", body, err); !strings.Contains(got, want) {
			t.Errorf("%d children: want %q, got %.200s", children, want, got)
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	e := example{Sync: &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: []byte(`{"ready": "${1 + 1}"}`)}}}
	programs, _, errs := inline.Compile(e.definition(), schemas())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if body, err := programs[hook.Sync].Call(ctx, request(false)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %s, %v", body, err)
	}
}

// numbered is a child with an item for each of so many numbers, the last of which is its own.
type numbered struct{ items, last int }

func (n numbered) JSON() []byte {
	return fmt.Appendf(nil, `{"items":[%s%d]}`, strings.Repeat("0,", n.items-1), n.last)
}
func (numbered) Namespace() string { return "" }
func (n numbered) Name() string    { return strconv.Itoa(n.last) }

// TestComparisonsWithChildrenCount looks for an object among children that differ from it in their last values.
func TestComparisonsWithChildrenCount(t *testing.T) {
	r := request(false)
	r.Children = []wire.Group{{Key: "Widget.example.com/v1"}}
	for i := range 100 {
		r.Children[0].Objects = append(r.Children[0].Objects, numbered{1000, i + 1})
	}
	for name, row := range map[string]struct{ found, want string }{
		"objects": {"{'items': variables.items} in children.widgets", "above 1000000"},
		"names":   {"'7' in children.widgets", `"ready":100`},
	} {
		t.Run(name, func(t *testing.T) {
			e := example{Sync: &v1alpha1.InlineHook{
				Variables: []v1alpha1.InlineVariable{{Name: "items", Expression: "lists.range(1000).map(i, 0)"}},
				Status:    &runtime.RawExtension{Raw: []byte(`{"ready": "${lists.range(100).filter(i, ` + row.found + `).size()}"}`)},
			}}
			programs, _, errs := inline.Compile(e.definition(), schemas())
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			body, err := programs[hook.Sync].Call(t.Context(), r)
			if got := fmt.Sprintf("%s %v", body, err); !strings.Contains(got, row.want) {
				t.Errorf("want %q, got %.200s", row.want, got)
			}
		})
	}
}
