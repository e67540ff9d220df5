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

package related

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func parsed(t testing.TB, format string, args ...any) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, format, args...), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// uidLabel is the label that selectors are generated of.
const uidLabel = "controller-uid"

// selectors are those of parents in the namespace ns, unless the name has another one, with what is known of each.
type selectors struct {
	*Selectors

	known map[parent.Key]*Selector
}

func selectorsOf(label string) selectors {
	return selectors{NewSelectors(label), map[parent.Key]*Selector{}}
}

func (s selectors) of(name string) (parent.Key, *Selector) {
	key := parent.Key{Namespace: "ns", Name: name}
	if namespace, bare, ok := strings.Cut(name, "/"); ok {
		key.Namespace, key.Name = namespace, bare
	}
	if s.known[key] == nil {
		s.known[key] = &Selector{}
	}
	return key, s.known[key]
}

func (s selectors) remember(name string, o *object.Object) {
	key, known := s.of(name)
	s.Remember(key, known, o)
}

func (s selectors) forget(names ...string) {
	for _, name := range names {
		key, known := s.of(name)
		s.Forget(key, known)
	}
}

// matched returns the names of the parents that an orphan with a label matches.
func (s selectors) matched(t *testing.T, label, value string) []string {
	t.Helper()
	orphan := parsed(t, `{"apiVersion":"v1","kind":"A","metadata":{"namespace":"ns","labels":{%q:%q}}}`, label, value)
	names := []string{}
	s.Adopting(orphan, func(key parent.Key) { names = append(names, key.Name) })
	slices.Sort(names)
	return names
}

func TestSelectorsFindTheParentsOfAnOrphan(t *testing.T) {
	s := selectorsOf("")
	set := func(name, selector string) {
		s.remember(name,
			parsed(t, `{"apiVersion":"v1","kind":"P","metadata":{"namespace":"ns","name":%q,"uid":%q},"spec":{"selector":%s}}`, name, name, selector))
	}
	for _, name := range []string{"a", "b", "c"} {
		set(name, `{"matchLabels":{"app":"x"}}`)
	}
	set("d", `{"matchExpressions":[{"key":"app","operator":"Exists"}]}`)
	set("bad", `{"matchExpressions":[{"key":"app","operator":"Guess"}]}`)
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"all that demand the label, and those that demand no value", func() {}, []string{"a", "b", "c", "d"}},
		{"one is gone", func() { s.forget("a") }, []string{"b", "c", "d"}},
		{"one demands another value", func() { set("c", `{"matchLabels":{"app":"y"}}`) }, []string{"b", "d"}},
		{"one is set again", func() { set("b", `{"matchLabels":{"app":"x"}}`) }, []string{"b", "d"}},
		{"all are gone", func() { s.forget("b", "c", "d", "bad", "unknown") }, []string{}},
	} {
		step.do()
		if got := s.matched(t, "app", "x"); !slices.Equal(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.what, got, step.want)
		}
	}
	if s.Len()+len(s.postings.lists) > 0 {
		t.Errorf("left behind: %d parents, %v", s.Len(), *s.postings)
	}
}

func TestGeneratedSelectorsFindTheirParent(t *testing.T) {
	s := selectorsOf(uidLabel)
	set := func(name, uid string) *object.Object {
		o := parsed(t, `{"apiVersion":"v1","kind":"P","metadata":{"namespace":"ns","name":%q,"uid":%q}}`, name, uid)
		s.remember(name, o)
		return o
	}
	set("a", "1")
	b := set("b", "2")
	for _, step := range []struct {
		what string
		do   func()
		uid  string
		want []string
	}{
		{"the one with the UID", func() {}, "2", []string{"b"}},
		{"one is seen again", func() { set("b", "2") }, "2", []string{"b"}},
		{"one is made anew, before it was noticed that the former one is gone", func() { set("b", "3") }, "3", []string{"b"}},
		{"the former one is not found", func() {}, "2", []string{}},
		{"one is gone", func() { s.forget("b") }, "3", []string{}},
		{"the other one is there", func() {}, "1", []string{"a"}},
		{"all are gone", func() { s.forget("a") }, "1", []string{}},
	} {
		step.do()
		if got := s.matched(t, uidLabel, step.uid); !slices.Equal(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.what, got, step.want)
		}
	}
	if s.Len()+len(s.generated) > 0 {
		t.Errorf("left behind: %d parents, %v", s.Len(), s.generated)
	}
	selector, err := s.Of(&Selector{}, b)
	if err != nil || selector.String() != uidLabel+"=2" {
		t.Errorf("selector %v, error %v", selector, err)
	}
}

func TestGeneratedSelectorsFindNoParentElsewhere(t *testing.T) {
	s := selectorsOf(uidLabel)
	for uid, namespace := range map[string]string{"1": "other", "2": ""} {
		s.remember(namespace+"/p"+uid, parsed(t, `{"apiVersion":"v1","kind":"P","metadata":{"name":"p","uid":%q}}`, uid))
	}
	for uid, want := range map[string][]string{"1": {}, "2": {"p2"}} {
		if got := s.matched(t, uidLabel, uid); !slices.Equal(got, want) {
			t.Errorf("the orphan in ns of %s: got %v, want %v", uid, got, want)
		}
	}
	if got := s.matched(t, "app", "1"); len(got) > 0 {
		t.Errorf("an orphan without the label: got %v", got)
	}
}

// selecting returns the selectors of so many parents, which have a label in common, and the parents.
func selecting(tb testing.TB, n, fields int) (selectors, []*object.Object) {
	tb.Helper()
	s := selectorsOf("")
	parents := make([]*object.Object, n)
	for i := range n {
		parents[i] = parsed(tb, `{"apiVersion":"v1","kind":"P","metadata":{"namespace":"ns","name":"p-%[1]d","uid":"u-%[1]d"},
			"spec":{"text":%[2]q,"selector":{"matchLabels":{"app":"shop","instance":"i-%[1]d"}}}}`, i, strings.Repeat("x", fields))
		s.remember(parents[i].Name(), parents[i])
	}
	return s, parents
}

// orphanEvents prepares events of an orphan among the selectors of so many parents.
func orphanEvents(tb testing.TB, n int) func() {
	tb.Helper()
	s, _ := selecting(tb, n, 0)
	orphan := parsed(tb, `{"apiVersion":"v1","kind":"A","metadata":{"namespace":"ns","labels":{"app":"shop","instance":"i-7"}}}`)
	return func() {
		found := 0
		s.Adopting(orphan, func(parent.Key) { found++ })
		if found != 1 {
			tb.Fatalf("%d parents", found)
		}
	}
}

func TestAnOrphanDoesNotCostTheParentsThatDoNotSelectIt(t *testing.T) {
	slope.Check(t, 500, slope.Constant, orphanEvents)
}

func BenchmarkOrphanAmongParents(b *testing.B) { slope.Benchmark(b, orphanEvents) }

// selectorOfOne prepares asking for the selector of a parent of a size.
func selectorOfOne(tb testing.TB, size int) func() {
	tb.Helper()
	s, parents := selecting(tb, 1, size)
	_, known := s.of("p-0")
	return func() {
		if _, err := s.Of(known, parents[0]); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestAParentIsNotReadForItsSelectorEachTime(t *testing.T) {
	slope.Check(t, 1000, slope.Constant, selectorOfOne)
}
