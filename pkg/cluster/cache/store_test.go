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

package cache

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// spec describes an object of a test.
type spec struct {
	namespace, name, uid, version string
	labels                        map[string]string
	controller                    string
}

func (s spec) object(t testing.TB) *object.Object {
	t.Helper()
	var pairs []string
	for key, value := range s.labels {
		pairs = append(pairs, fmt.Sprintf("%q:%q", key, value))
	}
	owners := ""
	if s.controller != "" {
		owners = fmt.Sprintf(`,"ownerReferences":[{"uid":"other"},{"uid":%q,"controller":true}]`, s.controller)
	}
	o, err := object.Parse([]byte(fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":%q,"labels":{%s}%s}}`,
		s.namespace, s.name, s.uid, s.version, strings.Join(pairs, ","), owners)), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestIndexesFindWhatAScanFinds makes many random changes, and compares every index with a scan.
func TestIndexesFindWhatAScanFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newStore()
	all := map[key]*object.Object{}
	selectors := []string{"app=a", "app in (a,b)", "app", "app,tier=x", "app!=a", "!app", "tier=x,app notin (b)", "", "size>3"}
	for round := range 3000 {
		made := spec{
			namespace: fmt.Sprint("ns", random.IntN(3)), name: fmt.Sprint("n", random.IntN(20)),
			uid: fmt.Sprint("u", random.IntN(4)), version: fmt.Sprint(round + 1), labels: map[string]string{},
		}
		for label, values := range map[string]string{"app": "abc", "tier": "xy", "size": "159"} {
			if at := random.IntN(5); at < len(values) {
				made.labels[label] = values[at : at+1]
			}
		}
		if random.IntN(2) == 0 {
			made.controller = fmt.Sprint("owner", random.IntN(3))
		}
		k := key{made.namespace, made.name}
		if random.IntN(3) == 0 {
			if got := s.remove(k); got != all[k] {
				t.Fatalf("removing %v returned %v, want %v", k, got, all[k])
			}
			delete(all, k)
		} else {
			o := made.object(t)
			if got := s.put(o); got != all[k] {
				t.Fatalf("putting %v returned %v, want %v", k, got, all[k])
			}
			all[k] = o
		}
		if round%10 != 0 {
			continue
		}
		check := func(what string, got []*object.Object, want func(*object.Object) bool) {
			t.Helper()
			var expected []*object.Object
			for _, o := range all {
				if want(o) {
					expected = append(expected, o)
				}
			}
			if diff := gocmp.Diff(names(expected), names(got)); diff != "" {
				t.Fatalf("round %d: %s (-want +got)\n%s", round, what, diff)
			}
		}
		var bytes int64
		for _, o := range all {
			bytes += int64(len(o.JSON()))
		}
		if n, size := s.size(); n != len(all) || size != bytes {
			t.Fatalf("round %d: %d objects of %d bytes, want %d of %d", round, n, size, len(all), bytes)
		}
		for _, namespace := range []string{"", "ns0", "ns2", "none"} {
			here := func(o *object.Object) bool { return namespace == "" || o.Namespace() == namespace }
			check("list of "+namespace, s.list(namespace), here)
			for _, text := range selectors {
				selector, err := labels.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				check("orphans with "+text+" of "+namespace, s.matching(&s.orphans, namespace, selector), func(o *object.Object) bool {
					return here(o) && o.Controller() == nil && selector.Matches(labels.Set(o.Labels()))
				})
				check("objects with "+text+" of "+namespace, s.matching(&s.all, namespace, selector), func(o *object.Object) bool {
					return here(o) && selector.Matches(labels.Set(o.Labels()))
				})
			}
		}
		for _, wanted := range [][]string{{"n0"}, {"n1", "n7", "none"}, nil, {"n0", "n1", "n10", "n11", "n12", "n13", "n14", "n15", "n16", "n17", "n18", "n19", "n2"}} {
			check(fmt.Sprint("objects named ", wanted), s.named(wanted), func(o *object.Object) bool { return slices.Contains(wanted, o.Name()) })
		}
		for _, owner := range []types.UID{"owner0", "owner2", "nobody"} {
			check("controlled by "+string(owner), s.controlledBy(owner), func(o *object.Object) bool {
				return o.Controller() != nil && o.Controller().UID == owner
			})
		}
		if s.len() != len(all) {
			t.Fatalf("round %d: len is %d, want %d", round, s.len(), len(all))
		}
	}
	for k := range all {
		s.remove(k)
	}
	left := len(s.all.objects) + s.all.count + len(s.controlled) + len(s.orphans.objects) + s.orphans.count
	for _, g := range []*group{&s.all, &s.orphans} {
		if len(g.postings) == 0 {
			t.Error("selectors were used again and again, and no label is indexed")
		}
		for _, p := range g.postings {
			left += len(p.values)
		}
	}
	if left != 0 {
		t.Errorf("%d entries are left in indexes of an empty store", left)
	}
	if got := s.matching(&s.orphans, "", labels.Nothing()); len(got) != 0 {
		t.Errorf("a selector that matches nothing found %v", got)
	}
}

// TestLabelsThatNoSelectorUsesAnyMoreAreDropped has a selector with a label of its own for each parent.
func TestLabelsThatNoSelectorUsesAnyMoreAreDropped(t *testing.T) {
	s := newStore()
	const parents = 10 * maxPostings
	find := func(parent int) []*object.Object {
		return s.matching(&s.orphans, "ns", labels.SelectorFromSet(labels.Set{fmt.Sprint("parent-", parent): "yes"}))
	}
	for n := range parents {
		s.put(spec{namespace: "ns", name: fmt.Sprint("n", n), uid: fmt.Sprint("u", n), version: "1", labels: map[string]string{
			fmt.Sprint("parent-", n): "yes", "app": "a",
		}}.object(t))
	}
	common := labels.SelectorFromSet(labels.Set{"app": "a"})
	for n := range parents {
		if found := find(n); len(found) != 1 || found[0].Name() != fmt.Sprint("n", n) {
			t.Fatalf("parent %d has the orphans %v", n, names(found))
		}
		if found := s.matching(&s.orphans, "ns", common); len(found) != parents {
			t.Fatalf("%d orphans have the common label, want %d", len(found), parents)
		}
	}
	if len(s.orphans.postings) > maxPostings {
		t.Errorf("%d labels are indexed, want at most %d", len(s.orphans.postings), maxPostings)
	}
	if s.orphans.postings["app"] == nil {
		t.Error("the label that is used all the time was dropped")
	}
	if found := find(0); len(found) != 1 {
		t.Errorf("a parent whose label was dropped has the orphans %v", names(found))
	}
}

// TestALabelIsIndexedWhenItIsWorthIt has selectors that look at one of many small namespaces.
func TestALabelIsIndexedWhenItIsWorthIt(t *testing.T) {
	s := newStore()
	const namespaces, each = 50, 4
	for n := range namespaces * each {
		s.put(spec{namespace: fmt.Sprint("ns", n%namespaces), name: fmt.Sprint("n", n), version: "1", labels: map[string]string{
			"app": "a", fmt.Sprint("label-", n%namespaces): "yes",
		}}.object(t))
	}
	for n := range namespaces {
		namespace, label := fmt.Sprint("ns", n), fmt.Sprint("label-", n)
		if found := s.matching(&s.all, namespace, labels.SelectorFromSet(labels.Set{label: "yes"})); len(found) != each {
			t.Fatalf("%s has the objects %v with its own label, want %d", namespace, names(found), each)
		}
	}
	if len(s.all.postings) != 0 {
		t.Errorf("%d labels are indexed that were looked for once, in a small namespace", len(s.all.postings))
	}
	for n := range namespaces {
		if found := s.matching(&s.all, fmt.Sprint("ns", n), labels.SelectorFromSet(labels.Set{"app": "a"})); len(found) != each {
			t.Fatalf("namespace %d has the objects %v with the common label, want %d", n, names(found), each)
		}
	}
	if s.all.postings["app"] == nil || len(s.all.postings) != 1 {
		t.Errorf("indexed are %v, want the label that all looked for", s.all.postings)
	}
	if len(s.all.scanned) > maxPostings {
		t.Errorf("scans of %d labels are remembered, want at most %d", len(s.all.scanned), maxPostings)
	}
}

// counting counts the objects at which a selector is made to look.
type counting struct {
	labels.Selector

	looked int
}

func (c *counting) Matches(set labels.Labels) bool {
	c.looked++
	return c.Selector.Matches(set)
}

func TestALookupCostsTheObjectsWithTheRarestLabelThatItsSelectorDemands(t *testing.T) {
	const each = 4
	for _, row := range []struct {
		why      string
		selector func(instance int) string
		// before are selectors that were looked for before.
		before []string
	}{
		{"the rare label comes last", func(i int) string { return fmt.Sprint("app=shop,b-instance=", i) }, nil},
		{"the rare label comes first", func(i int) string { return fmt.Sprint("b-instance=", i, ",z-app=shop") }, nil},
		{"a label without a value is demanded beside", func(i int) string { return fmt.Sprint("app,b-instance=", i) }, nil},
		{"several values", func(i int) string { return fmt.Sprintf("app in (shop,other),b-instance in (%d,none)", i) }, nil},
		{"the common label is indexed already", func(i int) string { return fmt.Sprint("app=shop,b-instance=", i) }, []string{"app=shop", "app=shop"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			for _, count := range []int{1000, 10000} {
				s := newStore()
				for n := range count {
					s.put(spec{namespace: "ns", name: fmt.Sprint("n", n), version: "1", labels: map[string]string{
						"app": "shop", "b-instance": fmt.Sprint(n / each), "z-app": "shop",
					}}.object(t))
				}
				find := func(text string) *counting {
					selector, err := labels.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					c := &counting{Selector: selector}
					s.matching(&s.all, "", c)
					return c
				}
				for _, text := range row.before {
					find(text)
				}
				for i := range 3 { // The labels are indexed after this.
					find(row.selector(i))
				}
				for i := range 20 {
					if c := find(row.selector(100 + i)); c.looked != each {
						t.Errorf("of %d objects a lookup looks at %d, want the %d that match", count, c.looked, each)
					}
				}
				if row.before == nil && len(s.all.postings) != 1 {
					t.Errorf("%d labels are indexed, of which one is of use", len(s.all.postings))
				}
			}
		})
	}
}

func names(objects []*object.Object) []string {
	found := make([]string, 0, len(objects))
	for _, o := range objects {
		found = append(found, o.Namespace()+"/"+o.Name()+"@"+o.ResourceVersion())
	}
	slices.SortFunc(found, cmp.Compare[string])
	return found
}

func TestWhatIsLeftOfAnOwnersObjectsDoesNotHoldThoseThatAreGone(t *testing.T) {
	const size, owners = 1 << 18, 32
	s := newStore()
	parse := func(owner int, name, more string) *object.Object {
		o, err := object.Parse(fmt.Appendf(nil, `{"more":%q,"metadata":{"name":"%s-%d","ownerReferences":[{"uid":"owner-%d","controller":true}]}}`,
			more, name, owner, owner), object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	inUse := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := inUse()
	for owner := range owners {
		s.put(parse(owner, "small", ""))
		large := parse(owner, "large", strings.Repeat("x", size))
		s.put(large)
		s.remove(key{large.Namespace(), large.Name()})
	}
	if grown := inUse() - before; grown > owners*size/4 {
		t.Errorf("%d objects of %d bytes that are gone keep %d bytes in use", owners, size, grown)
	}
	if got := len(s.controlledBy("owner-0")); got != 1 {
		t.Errorf("%d objects are left of an owner, want 1", got)
	}
}
