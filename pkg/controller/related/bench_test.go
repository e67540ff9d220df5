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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

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
