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
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func mustCompile(t testing.TB, scope Scope, rules ...relatedRule) Rules {
	t.Helper()
	compiled, err := Compile(t.Context(), rules, scope, served)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// index is an index with what it holds for each parent.
type index[K comparable] struct {
	*Index[K]

	mu     sync.Mutex
	posted map[K]Posted[K]
}

func newIndex[K comparable]() *index[K] {
	return &index[K]{Index: NewIndex[K](teams), posted: map[K]Posted[K]{}}
}

func (x *index[K]) update(parent K, rules Rules) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.posted[parent] = x.Replace(x.posted[parent], parent, rules)
}

// teams are the labels of the namespaces of the tests.
func teams(namespace string) (map[string]string, bool) {
	set, ok := map[string]map[string]string{
		"home": {"team": "a"}, "away": {"team": "b"}, "third": {"team": "b", "old": "yes"}, "bare": {},
	}[namespace]
	return set, ok
}

func TestAffected(t *testing.T) {
	cases := map[string]struct {
		reason   string
		scope    Scope
		rule     relatedRule
		resource schema.GroupVersionResource
		states   []string
		want     bool
	}{
		"Name":                    {"The named object.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", Namespace: "away", Names: []string{"x", "a"}}, configMaps, []string{"away/a"}, true},
		"NameElsewhere":           {"The same name in another namespace is another object.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", Namespace: "away", Names: []string{"a"}}, configMaps, []string{"home/a"}, false},
		"NameAnywhere":            {"A name without namespace means any.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", Names: []string{"a"}}, configMaps, []string{"home/a"}, true},
		"OtherName":               {"Another name.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", Names: []string{"a"}}, configMaps, []string{"home/b"}, false},
		"OtherResource":           {"The same name of another resource.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", Names: []string{"a"}}, deploys, []string{"home/a"}, false},
		"ClusterScopedName":       {"A cluster-scoped object by name.", v1Inside, relatedRule{APIVersion: "v1", Resource: "nodes", Names: []string{"n"}}, nodes, []string{"n"}, true},
		"Label":                   {"An object with the label.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}, configMaps, []string{"home/a app=x"}, true},
		"LabelElsewhere":          {"v1 is restricted to the parent's namespace.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}, configMaps, []string{"away/a app=x"}, false},
		"LabelAnywhere":           {"v2 is not.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}, configMaps, []string{"away/a app=x"}, true},
		"OtherValue":              {"Another value.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}, configMaps, []string{"away/a app=y"}, false},
		"LabelRemoved":            {"An object that leaves the selection concerns the parent.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}, configMaps, []string{"home/a app=x", "home/a"}, true},
		"LabelAdded":              {"So does one that enters it.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}, configMaps, []string{"home/a", "home/a app=x"}, true},
		"In":                      {"One of the values.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: expression("app", metav1.LabelSelectorOpIn, "x", "y")}, configMaps, []string{"home/a app=y"}, true},
		"Exists":                  {"The label with any value.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: expression("app", metav1.LabelSelectorOpExists)}, configMaps, []string{"home/a app=z"}, true},
		"NotIn":                   {"Selectors that demand nothing are found too.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: expression("app", metav1.LabelSelectorOpNotIn, "x")}, configMaps, []string{"home/a"}, true},
		"NotInExcludes":           {"And exclude what they exclude.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: expression("app", metav1.LabelSelectorOpNotIn, "x")}, configMaps, []string{"home/a app=x"}, false},
		"All":                     {"A rule without selector.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps"}, configMaps, []string{"home/a"}, true},
		"AllElsewhere":            {"In v1 only of the parent's namespace.", v1Inside, relatedRule{APIVersion: "v1", Resource: "configmaps"}, configMaps, []string{"away/a"}, false},
		"AllClusterScoped":        {"A rule without selector of a cluster-scoped type.", v1Inside, relatedRule{APIVersion: "v1", Resource: "nodes"}, nodes, []string{"n"}, true},
		"NamespaceSelector":       {"The namespace has the label.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b")}, configMaps, []string{"away/a"}, true},
		"NamespaceSelectorOther":  {"The namespace has another label.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b")}, configMaps, []string{"home/a"}, false},
		"NamespaceUnknown":        {"NamespaceChanged tells when the namespace becomes known.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b")}, configMaps, []string{"nowhere/a"}, false},
		"NamespaceSelectorLabels": {"Both must match.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b"), LabelSelector: equals("app", "x")}, configMaps, []string{"away/a app=x"}, true},
		"NamespaceSelectorOnly":   {"One alone is not enough.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b"), LabelSelector: equals("app", "x")}, configMaps, []string{"away/a"}, false},
		"NamespaceWithoutLabels":  {"A negative namespaceSelector finds namespaces without labels.", v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: expression("team", metav1.LabelSelectorOpDoesNotExist)}, configMaps, []string{"bare/a"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			x := newIndex[string]()
			x.update("p", mustCompile(t, tc.scope, tc.rule))
			x.update("noise", mustCompile(t, tc.scope, relatedRule{APIVersion: "v1", Resource: "configmaps", Names: []string{"noise"}}))
			o := parse(tc.states[0])
			var states []map[string]string
			for _, s := range tc.states {
				states = append(states, parse(s).Labels())
			}
			var want []string
			if tc.want {
				want = []string{"p"}
			}
			if diff := cmp.Diff(want, x.Affected(tc.resource, o.Namespace(), o.Name(), states...)); diff != "" {
				t.Errorf("%s\naffected (-want +got):\n%s", tc.reason, diff)
			}
			x.update("p", nil)
			x.update("noise", nil)
			if len(x.resources) != 0 || len(x.namespaces.lists) != 0 {
				t.Errorf("without the rules there are %d resources, %d namespace posts", len(x.resources), len(x.namespaces.lists))
			}
		})
	}
}

func TestNamespaceChanges(t *testing.T) {
	x := newIndex[string]()
	x.update("b", mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b")}))
	x.update("none", mustCompile(t, v2Inside, relatedRule{APIVersion: "apps/v1", Resource: "deployments", NamespaceSelector: expression("team", metav1.LabelSelectorOpDoesNotExist), LabelSelector: equals("app", "x")}))
	x.update("plain", mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps"}))
	set := func(s string) map[string]string { return parse("x " + s).Labels() }
	cases := map[string]struct {
		reason string
		got    []string
		want   []string
	}{
		"Enters":  {"A namespace that begins to match.", x.NamespaceChanged(set("team=a"), set("team=b")), []string{"b"}},
		"Leaves":  {"A namespace that stops matching, for both.", x.NamespaceChanged(set("team=b"), set("")), []string{"b", "none"}},
		"Stays":   {"Other labels do not matter.", x.NamespaceChanged(set("team=b"), set("team=b other=1")), nil},
		"Never":   {"Neither matches.", x.NamespaceChanged(set("team=c"), set("team=d")), nil},
		"Added":   {"A namespace that becomes known, whose objects may be known.", x.NamespaceChanged(set("team=b")), []string{"b"}},
		"AddedNo": {"It must match.", x.NamespaceChanged(set("team=c")), nil},
	}
	for name, tc := range cases {
		slices.Sort(tc.got)
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s: %s\n(-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestAffectedNamesEachParentOnce(t *testing.T) {
	x := newIndex[int]()
	rules := mustCompile(t, v2Inside,
		relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")},
		relatedRule{APIVersion: "v1", Resource: "configmaps", Names: []string{"a"}},
		relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "a")})
	for n := range 30 {
		x.update(n, rules)
		got := x.Affected(configMaps, "home", "a", map[string]string{"app": "x"}, map[string]string{"app": "x", "b": "c"})
		slices.Sort(got)
		if len(got) != n+1 || len(slices.Compact(got)) != n+1 {
			t.Fatalf("%d parents with three rules each: got %v", n+1, got)
		}
	}
}

func TestUpdateReplacesTheRules(t *testing.T) {
	x := newIndex[string]()
	first := mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")})
	x.update("p", first)
	x.update("p", first)
	x.update("p", mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "y")}))
	if got := x.Affected(configMaps, "home", "a", map[string]string{"app": "x"}); got != nil {
		t.Errorf("the old rule still leads to %v", got)
	}
	if got := x.Affected(configMaps, "home", "a", map[string]string{"app": "y"}); !slices.Equal(got, []string{"p"}) {
		t.Errorf("the new rule leads to %v, want p", got)
	}
	x.update("p", nil)
	if len(x.resources) != 0 {
		t.Errorf("without rules %d resources are kept", len(x.resources))
	}
}

func TestSharedLabelGivesWayToTheOneThatTellsParentsApart(t *testing.T) {
	x := newIndex[int]()
	for n := range 100 {
		x.update(n, mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": "shared", "parent": fmt.Sprint(n)},
		}}))
	}
	longest := 0
	for _, list := range x.resources[configMaps].lists {
		longest = max(longest, len(list))
	}
	if longest > 2 {
		t.Errorf("a lookup may visit %d parents; want at most 2", longest)
	}
}

// TestIndexAgreesWithSelection compares the index with trying every rule, over random rules, objects and updates.
func TestIndexAgreesWithSelection(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	randomSelector := func() *metav1.LabelSelector {
		s := &metav1.LabelSelector{}
		for range random.IntN(3) {
			op := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}[random.IntN(4)]
			r := metav1.LabelSelectorRequirement{Key: pick("app", "team"), Operator: op}
			if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
				r.Values = []string{pick("a", "b"), pick("b", "x")}
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
		return s
	}
	randomRule := func() relatedRule {
		r := relatedRule{APIVersion: "v1", Resource: "configmaps"}
		switch random.IntN(5) {
		case 0:
			r.Namespace, r.Names = pick("", "home", "away"), []string{pick("a", "b"), pick("b", "c")}
		case 1:
			r.Namespace, r.LabelSelector = pick("", "home", "away"), randomSelector()
		case 2:
			r.NamespaceSelector = randomSelector()
		case 3:
			r.NamespaceSelector, r.LabelSelector = randomSelector(), randomSelector()
		default:
			r.LabelSelector = randomSelector()
		}
		return r
	}
	x := newIndex[int]()
	current := map[int]Rules{}
	for range 3000 {
		parent := random.IntN(20)
		if random.IntN(4) == 0 {
			x.update(parent, nil)
			delete(current, parent)
		} else {
			rules := mustCompile(t, v2Inside, randomRule(), randomRule())
			x.update(parent, rules)
			current[parent] = rules
		}
		o := parse(pick("home", "away", "third", "bare", "nowhere") + "/" + pick("a", "b", "c"))
		states := []map[string]string{{}, {"app": pick("a", "b", "x")}, {"app": pick("a", "b"), "team": pick("a", "b", "x")}}
		random.Shuffle(len(states), func(a, b int) { states[a], states[b] = states[b], states[a] })
		states = states[:1+random.IntN(2)]
		var want []int
		for p, rules := range current {
			if slices.ContainsFunc(rules, func(r rule) bool { return bruteForce(r, o, states) }) {
				want = append(want, p)
			}
		}
		got := x.Affected(configMaps, o.Namespace(), o.Name(), states...)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Fatalf("object %s with labels %v: the index leads to %v, the rules to %v", o, states, got, want)
		}
	}
}

func bruteForce(r rule, o *object.Object, states []map[string]string) bool {
	if r.namespace != "" && r.namespace != o.Namespace() {
		return false
	}
	if len(r.names) > 0 {
		return slices.Contains(r.names, o.Name())
	}
	if r.namespaces != nil {
		set, ok := teams(o.Namespace())
		if !ok || !r.namespaces.Matches(labels.Set(set)) {
			return false
		}
	}
	return slices.ContainsFunc(states, func(s map[string]string) bool { return r.labels.Matches(labels.Set(s)) })
}

func TestIndexIsSafeForConcurrentUse(t *testing.T) {
	x := newIndex[int]()
	rules := []Rules{
		mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}),
		mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "a")}),
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := range 500 {
				x.update(worker, rules[n%2])
				for _, p := range x.Affected(configMaps, "home", "a", map[string]string{"app": "x"}) {
					if p < 0 || p > 3 {
						t.Errorf("parent %d does not exist", p)
					}
				}
				x.NamespaceChanged(nil, map[string]string{"team": "a"})
				if n%10 == 0 {
					x.update(worker, nil)
				}
			}
		})
	}
	all.Wait()
	if got := x.Affected(configMaps, "home", "a", map[string]string{"app": "x"}); len(got) != 4 {
		t.Errorf("%d parents at the end, want 4", len(got))
	}
}

// affected prepares events of objects among the rules of so many parents.
func affected(of func(n int) relatedRule, name string, state func(n int) map[string]string) slope.Prepare {
	return func(tb testing.TB, parents int) func() {
		tb.Helper()
		x := newIndex[int]()
		for n := range parents {
			x.update(n, mustCompile(tb, v2Inside, of(n)))
		}
		n := 0
		return func() {
			n = (n + 1) % parents
			if got := x.Affected(configMaps, "away", fmt.Sprint(name, n), state(n)); len(got) != 1 || got[0] != n {
				tb.Fatalf("object %d leads to %v", n, got)
			}
		}
	}
}

var (
	affectedByName = affected(
		func(n int) relatedRule {
			return relatedRule{APIVersion: "v1", Resource: "configmaps", Namespace: "away", Names: []string{fmt.Sprint("object-", n)}}
		},
		"object-", func(int) map[string]string { return nil })
	// affectedByLabel is by two labels, of which all parents have the first one in common.
	affectedByLabel = affected(
		func(n int) relatedRule {
			return relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"app": "x", "parent": fmt.Sprint(n)},
			}}
		},
		"a", func(n int) map[string]string {
			return map[string]string{"parent": fmt.Sprint(n), "app": "x", "tier": "y"}
		})
)

func TestARelatedObjectDoesNotCostTheParentsToWhichItIsNotRelated(t *testing.T) {
	slope.Check(t, 500, slope.Constant, affectedByName)
	slope.Check(t, 500, slope.Constant, affectedByLabel)
}

func BenchmarkAffectedByName(b *testing.B) { slope.Benchmark(b, affectedByName) }

func BenchmarkAffectedByLabel(b *testing.B) { slope.Benchmark(b, affectedByLabel) }

// selected prepares the selection of so many objects, each of them by two rules.
func selected(tb testing.TB, n int) func() {
	tb.Helper()
	objects := &things{}
	for i := range n {
		objects.objects = append(objects.objects, parse(fmt.Sprintf("home/object-%d app=x tier=1", i)))
	}
	rules := mustCompile(tb, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")},
		relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("tier", "1")})
	from := func(schema.GroupVersionResource) Informer { return objects }
	return func() {
		if groups := Select(rules, from); len(groups) != 1 || len(groups[0].Objects) != n {
			tb.Fatal(groups)
		}
	}
}

func TestASelectionCostsTheRelatedObjectsAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, selected)
}

func BenchmarkSelect(b *testing.B) { slope.Benchmark(b, selected) }

func BenchmarkUpdateUnchanged(b *testing.B) {
	x := newIndex[int]()
	rules := mustCompile(b, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("a", "b")})
	x.update(1, rules)
	b.ReportAllocs()
	for b.Loop() {
		x.update(1, rules)
	}
}
