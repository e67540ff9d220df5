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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

var duration = flag.Duration("churn.duration", 24*time.Second, "how long to churn")

const (
	// rounds are of equal length. The first one is the warm-up: what it leaves is what the others must leave.
	rounds = 4
	// controllerSlots and parentSlots are how many of them there are at most at a time.
	controllerSlots, parentSlots = 8, 60
	// parentWorkers and controllerWorkers act at the same time, each on slots of its own.
	parentWorkers, controllerWorkers = 4, 2

	// A server that leaks one thing for each object is far above these: a round has thousands of changes in a long run.
	goroutineSlack = 25
	heapSlack      = 8 << 20
	heapGrowth     = 1.15
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
	e := fixture.SetUp(t, fixture.Options{Limit: 2 * time.Minute})
	test := e.NewTest(t)
	site := newSite(test)
	var samples []*sample
	for round := range rounds {
		site.churn(*duration / rounds)
		site.drain()
		samples = append(samples, takeSample(test))
		t.Logf("after round %d: %s\n%s", round, &site.tally, samples[round])
	}
	first, last := samples[0], samples[rounds-1]
	if last.goroutines > first.goroutines+goroutineSlack {
		t.Errorf("there are %d goroutines after the last round, %d after the first\n%s", last.goroutines, first.goroutines,
			last.profile)
	}
	if float64(last.heap) > heapGrowth*float64(first.heap)+heapSlack {
		t.Errorf("the heap has %d bytes after the last round, %d after the first", last.heap, first.heap)
	}
	for name, size := range last.sizes {
		if size > first.sizes[name] {
			t.Errorf("%s is %v after the last round, %v after the first", name, size, first.sizes[name])
		}
	}
	for name, series := range last.series {
		if series > first.series[name]+seriesSlack {
			t.Errorf("%s has %d series after the last round, %d after the first", name, series, first.series[name])
		}
	}
}

// churn has all workers act for a while.
func (s *site) churn(d time.Duration) {
	s.t.T.Helper()
	ctx, cancel := context.WithTimeout(s.t.T.Context(), d)
	defer cancel()
	var working sync.WaitGroup
	for w := range parentWorkers {
		working.Go(func() {
			for ctx.Err() == nil {
				s.changeParent(ctx, w+parentWorkers*rand.IntN(parentSlots/parentWorkers))
			}
		})
	}
	for w := range controllerWorkers {
		working.Go(func() {
			for ctx.Err() == nil {
				s.changeController(ctx, w+controllerWorkers*rand.IntN(controllerSlots/controllerWorkers))
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
	working.Wait()
}

// pause lets controllers work before they are changed again.
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
	cluster.Eventually(s.t.T, s.t.Limit, "all parents and controllers to be gone", func(ctx context.Context) (bool, string) {
		things, err := s.t.Resource(fixture.Things).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		api := s.t.Versioned.MetacontrollerV1alpha1()
		composites, err := api.CompositeControllers().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		decorators, err := api.DecoratorControllers().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		left := len(things.Items) + len(composites.Items) + len(decorators.Items)
		return left == 0, fmt.Sprintf("%d are left: parents %v composites %v decorators %v", left, things.Items, composites.Items, decorators.Items)
	})
}
