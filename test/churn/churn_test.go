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

package churn

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

var duration = flag.Duration("churn.duration", 0, "how long to churn; zero is a fixed number of changes")

const (
	// limit is for a machine that is busy with other tests: a minute without an answer of an API server is followed by long back-offs.
	limit = 6 * time.Minute
	// rounds are of equal length. The first one is the warm-up: what it leaves is what the others must leave.
	rounds = 3
	// roundChanges and roundControllers are how many changes of parents and of controllers a round has when it has no duration.
	roundChanges, roundControllers = 250, 12
	// controllerSlots and parentSlots are how many of them there are at most at a time.
	controllerSlots, parentSlots = 8, 60
	// parentWorkers and controllerWorkers act at the same time, each on slots of its own.
	parentWorkers, controllerWorkers = 4, 2

	// parentPause lets the server work between changes, several of which it would see as one otherwise. A round has its changes of
	// controllers in the same time.
	parentPause = 10 * time.Millisecond
	// controllerPause lets controllers work before they are changed again.
	controllerPause = 100 * time.Millisecond

	// A server that leaks one thing for each object is far above these: a round has thousands of changes in a long run.
	// Outside of the engine's own code, the API server gets watches of kube-controller-manager in its first minutes, and two
	// residents keep up to 20 connections to each of three hooks, of two goroutines each.
	engineSlack    = 4
	goroutineSlack = 320
	heapSlack      = 8 << 20
	heapGrowth     = 1.15
	// The profile is a sample: of memory that is held in small pieces, one in sampleRate bytes is seen. What is held for a controller that
	// is gone would be megabytes after a round.
	sampleRate      = 32 << 10
	engineHeapSlack = 3 << 20
	// The caches of events fill until they have their number of subjects, which a short run does not reach.
	eventsHeap = 16 << 20
	// Numbers in objects, such as versions, get longer.
	bytesGrowth = 1.02
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// tally counts what was done.
type tally struct {
	created, changed, deselected, deleted                     atomic.Int64
	controllersCreated, controllersEdited, controllersDeleted atomic.Int64
}

func (c *tally) String() string {
	return fmt.Sprintf("parents: %d created, %d changed, %d deselected, %d deleted; controllers: %d created, %d edited, %d deleted",
		c.created.Load(), c.changed.Load(), c.deselected.Load(), c.deleted.Load(),
		c.controllersCreated.Load(), c.controllersEdited.Load(), c.controllersDeleted.Load())
}

// TestChurn compares what the server holds after each round, when all parents and controllers are gone.
func TestChurn(t *testing.T) {
	t.Setenv("GODEBUG", fmt.Sprintf("memprofilerate=%d", sampleRate))
	e := fixture.SetUp(t, fixture.Options{Limit: limit})
	test := e.NewTest(t)
	site := newSite(test)
	var samples []*sample
	for round := range rounds {
		began := time.Now()
		site.churn(*duration / rounds)
		churned := time.Since(began)
		site.drain()
		drained := time.Since(began) - churned
		samples = append(samples, takeSample(test))
		t.Logf("round %d churned for %s, drained in %s, and was measured in %s: %s\n%s", round, churned.Round(time.Second),
			drained.Round(time.Second), (time.Since(began) - churned - drained).Round(time.Second), &site.tally, samples[round])
	}
	first, last := samples[0], samples[rounds-1]
	if last.engine > first.engine+engineSlack {
		t.Errorf("the engine has %d goroutines after the last round, %d after the first\n%s", last.engine, first.engine, last.grown(first))
	}
	if last.goroutines > first.goroutines+goroutineSlack {
		t.Errorf("there are %d goroutines after the last round, %d after the first\n%s", last.goroutines, first.goroutines,
			last.grown(first))
	}
	if float64(last.heap.total) > heapGrowth*float64(first.heap.total)+heapSlack {
		t.Errorf("the heap has %s after the last round, %s after the first", last.heap, first.heap)
	}
	if grown := last.heap.owners[engineOwner] - first.heap.owners[engineOwner]; grown > engineHeapSlack {
		t.Errorf("the engine holds %.1f MiB more after the last round than after the first", grown/(1<<20))
	}
	if held := last.heap.owners[eventsOwner]; held > eventsHeap {
		t.Errorf("the correlation of events holds %.1f MiB", held/(1<<20))
	}
	t.Logf("what grew most:\n%sand of the engine:\n%s", last.heap.grown(first.heap, ""), last.heap.grown(first.heap, engineOwner))
	for name, size := range last.sizes {
		limit := first.sizes[name]
		if strings.HasSuffix(name, "_bytes") {
			limit = bytesGrowth * limit
		}
		if size > limit {
			t.Errorf("%s is %v after the last round, %v after the first", name, size, first.sizes[name])
		}
	}
	for name, series := range last.series {
		if series > first.series[name]+seriesSlack {
			t.Errorf("%s has %d series after the last round, %d after the first", name, series, first.series[name])
		}
	}
}

// churn has all workers act for a while, or until there were enough changes.
func (s *site) churn(d time.Duration) {
	s.t.T.Helper()
	ctx, end := s.t.T.Context(), time.Now().Add(d)
	var (
		parents, controllers atomic.Int64
		working              sync.WaitGroup
	)
	// goesOn counts a change that is about to be made.
	goesOn := func(made *atomic.Int64, most int64) bool {
		if d > 0 {
			return time.Now().Before(end)
		}
		return made.Add(1) <= most
	}
	for w := range parentWorkers {
		working.Go(func() {
			for goesOn(&parents, roundChanges) {
				s.changeParent(ctx, w+parentWorkers*rand.IntN(parentSlots/parentWorkers))
				pause(ctx, parentPause)
			}
		})
	}
	for w := range controllerWorkers {
		working.Go(func() {
			for goesOn(&controllers, roundControllers) {
				s.changeController(ctx, w+controllerWorkers*rand.IntN(controllerSlots/controllerWorkers))
				pause(ctx, controllerPause)
			}
		})
	}
	working.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// drain deletes all controllers and parents, half of the parents before the controllers, and waits until all are gone.
func (s *site) drain() {
	s.t.T.Helper()
	ctx := s.t.T.Context()
	for slot := range parentSlots / 2 {
		s.deleteParent(ctx, slot)
	}
	for slot := range controllerSlots {
		s.deleteController(ctx, slot)
	}
	for slot := range parentSlots {
		s.deleteParent(ctx, slot)
	}
	s.awaitNone("parents and controllers", func(o metav1.Object) bool { return o.GetLabels()[childLabel] == "" })
	// The garbage collector learns of a new kind of owners only after a while.
	err := s.t.Resource(fixture.ConfigMaps).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: childLabel})
	s.check("deleting the children", err)
	s.awaitNone("children", func(metav1.Object) bool { return true })
}

// awaitNone waits until nothing is left of what counts.
func (s *site) awaitNone(what string, counts func(metav1.Object) bool) {
	s.t.T.Helper()
	var last string
	cluster.Eventually(s.t.T, s.t.Limit, "all "+what+" to be gone", func(ctx context.Context) (bool, string) {
		left, err := s.left(ctx, counts)
		if err != nil {
			return false, fmt.Sprintf("%v, before %s", err, last)
		}
		last = fmt.Sprintf("%d are left: %s", len(left), strings.Join(left, ", "))
		return len(left) == 0, last
	})
}

// left lists the parents, their children and the controllers that are still there, with their finalizers. Residents stay, and
// so do the ConfigMaps that no parent owns.
func (s *site) left(ctx context.Context, counts func(metav1.Object) bool) ([]string, error) {
	api, options := s.t.Versioned.MetacontrollerV1alpha1(), metav1.ListOptions{}
	var left []string
	for _, list := range []func() (runtime.Object, error){
		func() (runtime.Object, error) { return s.t.Resource(fixture.Things).List(ctx, options) },
		func() (runtime.Object, error) { return s.t.Resource(fixture.ConfigMaps).List(ctx, options) },
		func() (runtime.Object, error) { return api.CompositeControllers().List(ctx, options) },
		func() (runtime.Object, error) { return api.DecoratorControllers().List(ctx, options) },
	} {
		found, err := list()
		if err != nil {
			return nil, fmt.Errorf("listing what is left: %w", err)
		}
		err = meta.EachListItem(found, func(each runtime.Object) error {
			o, err := meta.Accessor(each)
			stays := err == nil && (strings.HasPrefix(o.GetName(), "resident-") || o.GetName() == "related" || o.GetName() == "kube-root-ca.crt")
			if err == nil && !stays && counts(o) {
				left = append(left, fmt.Sprintf("%s %v owned by %v", o.GetName(), o.GetFinalizers(), o.GetOwnerReferences()))
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading what is left: %w", err)
		}
	}
	return left, nil
}
