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
)

const manyParents = 10000

func benchmarkAffected(b *testing.B, of func(n int) relatedRule, name func(n int) string, state func(n int) map[string]string) {
	x := NewIndex[int](teams)
	for n := range manyParents {
		x.Update(n, mustCompile(b, v2Inside, of(n)))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n = (n + 1) % manyParents {
		if got := x.Affected(configMaps, "away", name(n), state(n)); len(got) != 1 || got[0] != n {
			b.Fatalf("object %d leads to %v", n, got)
		}
	}
}

func BenchmarkAffectedByName(b *testing.B) {
	names := make([]string, manyParents)
	for n := range names {
		names[n] = fmt.Sprint("object-", n)
	}
	benchmarkAffected(b,
		func(n int) relatedRule {
			return relatedRule{APIVersion: "v1", Resource: "configmaps", Namespace: "away", Names: []string{names[n]}}
		},
		func(n int) string { return names[n] },
		func(int) map[string]string { return nil })
}

func BenchmarkAffectedByLabel(b *testing.B) {
	states := make([]map[string]string, manyParents)
	for n := range states {
		states[n] = map[string]string{"parent": fmt.Sprint(n), "app": "x", "tier": "y"}
	}
	benchmarkAffected(b,
		func(n int) relatedRule {
			return relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("parent", states[n]["parent"])}
		},
		func(int) string { return "a" },
		func(n int) map[string]string { return states[n] })
}

func BenchmarkUpdateUnchanged(b *testing.B) {
	x := NewIndex[int](teams)
	rules := mustCompile(b, v2Inside, relatedRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("a", "b")})
	x.Update(1, rules)
	b.ReportAllocs()
	for b.Loop() {
		x.Update(1, rules)
	}
}
