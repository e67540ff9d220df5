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

// Package pairs puts together what other suites test alone.
//
// TestNoChangeIsMissed runs two controllers on the same parents, in every combination of the two kinds: neither may miss a change or
// stand still because of the other. `make pairs` makes 500 changes for each combination, 2,000 in all.
//
// TestFeatures has a row for each of four features while something else goes on, named TestFeatures/RollingUpdate/Synced and so on. It fails if a
// pair has none. What the rows check:
//
//	                   Synced                   PlanWarnings              Paused                    Retained
//	RollingUpdate      is there beside Updated  of parents half-way       goes on where it was      children of both revisions
//	DeletionGuard      is False, Held           of no held deletion       holds confirmed ones      neither counted nor held
//	Deselection        waits no more, stays     of what is finalized      is finalized afterwards   deleted, or keep their keeper
//	Restart            is not written again     as before                 goes on                   of parents deleted meanwhile
//	SecondController   kept twice, at rest      of its own children       holds for both            children of the other one go
//
// TestFeatures/DeselectionOfATarget is Deselection with a DecoratorController. The features alone are in TestStatus/*/Synced,
// TestInspection/PlansOfManyParents, TestBrakes/Pause/OneParent and TestFinalizers/ChildrenThatStay. Simulated histories draw paused parents,
// children that stay, and the condition of composites, with all that is in the rows.
package pairs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// soon is how late a controller may see a change on a busy machine. Without a wake-up it would see it at the resync, half an
	// hour later.
	soon = cluster.Limit
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// combinations are the kinds of the first and the second controller.
var combinations = []struct {
	name          string
	first, second fixture.Kind
}{
	{"CompositeAndComposite", fixture.Composite, fixture.Composite},
	{"CompositeAndDecorator", fixture.Composite, fixture.Decorator},
	{"DecoratorAndComposite", fixture.Decorator, fixture.Composite},
	{"DecoratorAndDecorator", fixture.Decorator, fixture.Decorator},
}

// A member is one of two controllers, and its hook.
type member struct {
	definition fixture.Definition
	script     *fixture.Script

	mu sync.Mutex
	// seen is the last generation of each parent that the hook was called with.
	seen map[string]int64
}

// A pair is two controllers that select the same parents. The first has large ConfigMaps as children, whose events take their
// time, and the second Secrets.
type pair struct {
	*fixture.Test

	first, second *member
}

// newPair makes the controllers and waits until both run.
func newPair(t *testing.T, e *fixture.Environment, first, second fixture.Kind) *pair {
	t.Helper()
	p := &pair{Test: e.NewTest(t)}
	large := strings.Repeat("x", burstPadding)
	p.first = p.newMember(first, "first", fixture.ConfigMaps, func(name, n string) *hook.Object {
		return fixture.ConfigMap(name, map[string]any{"n": n, "large": large})
	})
	p.second = p.newMember(second, "second", fixture.Secrets, func(name, n string) *hook.Object {
		return &hook.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "stringData": map[string]any{"n": n},
		}}
	})
	for _, m := range p.members() {
		p.Run(m.definition)
	}
	return p
}

func (p *pair) members() []*member { return []*member{p.first, p.second} }

func (p *pair) newMember(kind fixture.Kind, suffix string, r schema.GroupVersionResource, child func(name, n string) *hook.Object) *member {
	m := &member{script: p.NewScript(kind), seen: map[string]int64{}}
	m.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		m.note(c.Parent)
		n, name := fixture.Value(c.Parent, "spec", "n"), c.Parent.GetName()
		reply := &fixture.Reply{Children: []*hook.Object{child(name+"-"+suffix, n)}}
		if kind == fixture.Decorator {
			reply.Annotations = map[string]*string{suffix: &n}
		} else {
			// Two composites write the same status, or they would fight.
			reply.Status = map[string]any{"n": n}
		}
		return reply, nil
	})
	m.definition = fixture.Definition{
		Kind: kind, Name: p.Name + "-" + suffix, Children: []fixture.Child{{Resource: r, Method: v1alpha1.ChildUpdateInPlace}}, Sync: p.Serve(m.script),
	}
	return m
}

func (m *member) note(parent *hook.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[parent.GetName()] = parent.GetGeneration()
}

// generation returns the last generation of a parent that the hook was called with.
func (m *member) generation(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[name]
}

// burstChanges is how many changes each of the four combinations of kinds gets: one burst, and five with `make pairs`.
var burstChanges = flag.Int("pairs.changes", 100, "changes of parents for each combination of two controllers")

const (
	// burstParents are changed at the same time, each burstLength times in a row.
	burstParents, burstLength = 20, 5
	// burstPadding makes children large enough for events of a child to come after those of a parent.
	burstPadding = 32 << 10
)

// TestNoChangeIsMissed changes parents quickly, in bursts. After each burst, both controllers must have seen the last generation
// of every parent soon.
func TestNoChangeIsMissed(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	for _, c := range combinations {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, e, c.first, c.second)
			for i := range burstParents {
				p.Parent(parentName(i), map[string]any{"n": "0"})
			}
			start, made, missed := time.Now(), 0, 0
			var slowest time.Duration
			for burst := 0; made < *burstChanges; burst++ {
				last := p.burst(burst)
				made += burstParents * burstLength
				late, took := p.behind(last)
				missed += late
				slowest = max(slowest, took)
			}
			t.Logf("%d changes of %d parents in %v: %d missed; the slowest burst was seen by both %v after its end; calls: %d and %d",
				made, burstParents, time.Since(start).Round(time.Millisecond), missed, slowest.Round(time.Millisecond),
				p.first.script.All(), p.second.script.All())
			if missed > 0 {
				t.Errorf("%d of %d last changes of a burst were not seen within %v", missed, 2*made/burstLength, soon)
			}
		})
	}
}

func parentName(i int) string { return fmt.Sprintf("p%02d", i) }

// burst changes all parents at the same time, each several times in a row, and returns their last generations.
func (p *pair) burst(burst int) map[string]int64 {
	p.T.Helper()
	var (
		mu      sync.Mutex
		last    = map[string]int64{}
		writing sync.WaitGroup
	)
	for i := range burstParents {
		writing.Go(func() {
			for n := range burstLength {
				patch := fmt.Appendf(nil, `{"spec":{"n":"%d-%d"}}`, burst, n)
				written, err := p.Resource(fixture.Things).Patch(p.T.Context(), parentName(i), types.MergePatchType, patch, metav1.PatchOptions{})
				if err != nil {
					p.T.Errorf("changing a parent: %v", err)
					return
				}
				mu.Lock()
				last[parentName(i)] = written.GetGeneration()
				mu.Unlock()
			}
		})
	}
	writing.Wait()
	return last
}

// behind waits until both controllers have seen generations of parents. It returns how many they have not seen soon, and how long
// it took.
func (p *pair) behind(generations map[string]int64) (int, time.Duration) {
	start := time.Now()
	for {
		missed := 0
		for name, generation := range generations {
			for _, m := range p.members() {
				if m.generation(name) < generation {
					missed++
				}
			}
		}
		if took := time.Since(start); missed == 0 || took > soon {
			return missed, took
		}
		select {
		case <-p.T.Context().Done():
			return missed, time.Since(start)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
