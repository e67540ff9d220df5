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

package reconciler_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func TestCountingChildrenDoesNotCostTheObjectsOfOthers(t *testing.T) {
	const own = 10
	for _, others := range []int{0, 1000} {
		s := newScene(t)
		var looked atomic.Int64
		k := &kind{owns: func(*object.Object) bool {
			looked.Add(1)
			return true
		}}
		s.exist(thing(t, "p", 1, "", ""))
		c := s.start(k, nil)
		for i := range own {
			s.update(s.widgets, widget(t, fmt.Sprint("own-", i), 10+i, "p", ""))
		}
		for i := range others {
			s.update(s.widgets, widget(t, fmt.Sprint("other-", i), 100+i, "q", ""))
		}
		looked.Store(0)
		if n := c.CountChildren(); n != own {
			t.Errorf("%d children, want %d", n, own)
		}
		if n := looked.Load(); n > 2*own {
			t.Errorf("%d children beside %d objects of others: looked %d times at one", own, others, n)
		}
	}
}

// among starts so many controllers of other parents, whose children are of the same kind, and returns how often one of them looks at an object.
func (s *scene) among(n int) *atomic.Int64 {
	looked := &atomic.Int64{}
	for i := range n {
		others := discovery.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("others", i)}, Kind: fmt.Sprint("Other", i),
		}
		if err := s.shared.Cluster.Cache.Acquire(cache.Query{Resource: others.GroupVersionResource}).Replace(nil, "1"); err != nil {
			s.t.Fatal(err)
		}
		k := &kind{owns: func(*object.Object) bool {
			looked.Add(1)
			return true
		}}
		s.start(k, func(c *reconciler.Config) {
			c.Sources = []*reconciler.Source{{
				Resource: others, Labels: labels.Everything(), Selected: func(*object.Object) bool { return true },
			}}
		})
	}
	return looked
}

// childEvents prepares events of a child among so many controllers of other parents.
func childEvents(event func(s *scene, version int)) slope.Prepare {
	return func(tb testing.TB, n int) func() {
		tb.Helper()
		s := newScene(tb)
		s.exist(thing(tb, "p", 1, "", ""))
		s.start(&kind{}, nil)
		looked := s.among(n)
		version := 10
		return func() {
			version += 2
			event(s, version)
			if n := looked.Load(); n > 0 {
				tb.Fatalf("controllers of other parents looked %d times at a child", n)
			}
		}
	}
}

func changed(s *scene, version int) { s.update(s.widgets, widget(s.t, "w", version, "p", "")) }

func cameAndWent(s *scene, version int) {
	changed(s, version)
	if err := s.widgets.Delete(widget(s.t, "w", version+1, "p", "")); err != nil {
		s.t.Fatal(err)
	}
}

func TestAChangeOfAChildDoesNotCostTheControllersOfOtherParents(t *testing.T) {
	slope.Check(t, 30, slope.Constant, childEvents(changed))
	slope.Check(t, 30, slope.Linear, childEvents(cameAndWent))
}

func BenchmarkChildEventAmongControllers(b *testing.B) {
	b.Run("Changed", func(b *testing.B) { slope.Benchmark(b, childEvents(changed)) })
	b.Run("CameAndWent", func(b *testing.B) { slope.Benchmark(b, childEvents(cameAndWent)) })
}
