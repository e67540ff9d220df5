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

package status

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// controllersOfFleet is the number of controllers, of which every second one fails for a time, and parentsOfEach that of the parents of
// each. make fleet has 50 of 200.
var (
	controllersOfFleet = flag.Int("fleet.controllers", 10, "how many controllers the fleet has")
	parentsOfEach      = flag.Int64("fleet.parents", 10, "how many parents each of them has")
)

const (
	// fleet is the label that tells the controller of a parent.
	fleet = "example.com/fleet"
	// clients is how many clients of the test write at the same time.
	clients = 16
)

// followFleet has many controllers run at once, of which half fail for a time. Conditions and numbers follow, each change is one write, and
// no hook is called for a write of a status. The times are logged.
func followFleet(t *testing.T, e *fixture.Environment) {
	f := &fleetTest{Test: e.NewTest(t), calls: map[string]*calls{}}
	script := e.NewScript(fixture.Composite)
	script.Respond(f.respond)
	f.Handle("/sync", script)
	f.watch()
	began := time.Now()
	for n := range *controllersOfFleet {
		name := fmt.Sprintf("%s-%d-%s", f.Name, n, [...]string{"good", "bad"}[n%2])
		f.mu.Lock()
		f.calls[name] = &calls{}
		f.mu.Unlock()
		f.all = append(f.all, f.Declare(fixture.Definition{
			Kind: fixture.Composite, Name: name, Sync: f.At("/sync"), Selector: map[string]string{fleet: name},
		}))
	}
	f.each(func(n, i int) error {
		thing := &unstructured.Unstructured{}
		thing.SetAPIVersion(fixture.Things.GroupVersion().String())
		thing.SetKind("Thing")
		thing.SetName(fmt.Sprintf("%d-%d", n, i))
		thing.SetLabels(map[string]string{fleet: f.all[n].Name})
		_, err := f.Resource(fixture.Things).Create(t.Context(), thing, metav1.CreateOptions{})
		return err
	})
	for _, c := range f.all {
		f.await(c, "to be healthy", func(s seen) bool { return s.ready && s.healthy == metav1.ConditionTrue && s.counts(0) && s.settled })
	}
	t.Logf("%d controllers with %d parents each were settled after %s", *controllersOfFleet, *parentsOfEach, time.Since(began).Round(time.Second))
	f.Settle()
	before := callsOfGood(script)
	f.change(true, "1")
	f.change(false, "2")
	f.Settle()
	if now := callsOfGood(script); !maps.Equal(before, now) {
		t.Errorf("the hook was called for healthy parents while only statuses changed: %d calls, before %d", sum(now), sum(before))
	}
	// Created, one or two changes of a condition to each state, and numbers every 30 s.
	most := 16 + int(time.Since(began)/(30*time.Second))
	written := 0
	for name, n := range f.writes() {
		if written = max(written, n); n > most {
			t.Errorf("the status of %s was written %d times, want %d at most", name, n, most)
		}
	}
	t.Logf("each status was written %d times at most within %s", written, time.Since(began).Round(time.Second))
}

// fleetTest is what followFleet knows of its controllers.
type fleetTest struct {
	*fixture.Test

	all []*controllers.Controller

	mu      sync.Mutex
	broken  bool
	calls   map[string]*calls
	history map[string][]seen
}

// calls are the calls for one controller since the last change: when the first one was, and when each parent had one.
type calls struct {
	first, last time.Time
	parents     map[string]bool
}

// seen is a status as a watch showed it.
type seen struct {
	at             time.Time
	ready, settled bool
	healthy        metav1.ConditionStatus
	counters       v1alpha1.ControllerCounters
}

// counts reports whether the numbers say that so many parents fail and all others are synced.
func (s seen) counts(failing int64) bool {
	return s.counters.Parents == *parentsOfEach && s.counters.Failing == failing && s.counters.Synced == *parentsOfEach-failing
}

func (f *fleetTest) respond(c *fixture.Call) (*fixture.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	of := f.calls[c.Controller]
	if of.first.IsZero() {
		of.first, of.parents = now, map[string]bool{}
	}
	if !of.parents[c.Parent.GetName()] {
		of.last, of.parents[c.Parent.GetName()] = now, true
	}
	if f.broken && strings.HasSuffix(c.Controller, "-bad") {
		return nil, errors.New("the hook does not like " + c.Parent.GetName())
	}
	return &fixture.Reply{}, nil
}

// each calls do for each parent of each controller, several at the same time.
func (f *fleetTest) each(do func(controller, parent int) error) {
	f.T.Helper()
	var working sync.WaitGroup
	next := make(chan [2]int)
	for range clients {
		working.Go(func() {
			for at := range next {
				if err := do(at[0], at[1]); err != nil {
					f.T.Errorf("parent %d of controller %d: %v", at[1], at[0], err)
				}
			}
		})
	}
	for n := range *controllersOfFleet {
		for i := range int(*parentsOfEach) {
			next <- [2]int{n, i}
		}
	}
	close(next)
	working.Wait()
}

// change breaks or mends the hook for every second controller, whose parents change then, and waits until conditions and numbers say so.
func (f *fleetTest) change(broken bool, n string) {
	f.T.Helper()
	f.mu.Lock()
	f.broken = broken
	for _, of := range f.calls {
		*of = calls{}
	}
	f.mu.Unlock()
	f.each(func(controller, parent int) error {
		if controller%2 == 0 {
			return nil
		}
		_, err := f.Resource(fixture.Things).Patch(f.T.Context(), fmt.Sprintf("%d-%d", controller, parent), types.MergePatchType,
			[]byte(`{"spec":{"n":"`+n+`"}}`), metav1.PatchOptions{})
		return err
	})
	healthy, failing := metav1.ConditionTrue, int64(0)
	if broken {
		healthy, failing = metav1.ConditionFalse, *parentsOfEach
	}
	var hooks, ready, numbers []time.Duration
	for n := 1; n < len(f.all); n += 2 {
		c := f.all[n]
		f.await(c, "to follow", func(s seen) bool { return s.ready != broken && s.healthy == healthy && s.counts(failing) })
		f.mu.Lock()
		of := *f.calls[c.Name]
		f.mu.Unlock()
		// All calls fail from the first one on, and all parents with the last one; the first one that succeeds ends both.
		since := of.last
		if !broken {
			since = of.first
		}
		hooks = append(hooks, f.after(c, of.first, func(s seen) bool { return s.healthy == healthy }))
		ready = append(ready, f.after(c, since, func(s seen) bool { return s.ready != broken }))
		numbers = append(numbers, f.after(c, of.last, func(s seen) bool { return s.counts(failing) }))
	}
	for what, times := range map[string][]time.Duration{"HooksHealthy": hooks, "Ready": ready, "the numbers": numbers} {
		slices.Sort(times)
		half, last := times[len(times)/2], times[len(times)-1]
		f.T.Logf("broken %v: %s followed within %s for half of the controllers, and within %s for all", broken, what,
			half.Round(time.Millisecond), last.Round(time.Millisecond))
	}
}

// await waits until the watch has shown a controller as wanted last.
func (f *fleetTest) await(c *controllers.Controller, what string, want func(seen) bool) {
	f.T.Helper()
	cluster.Eventually(f.T, f.Limit, c.Name+" "+what, func(context.Context) (bool, string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		history := f.history[c.Name]
		if len(history) == 0 {
			return false, "nothing was seen"
		}
		last := history[len(history)-1]
		return want(last), fmt.Sprintf("%+v", last)
	})
}

// after returns how long after a time the watch showed a controller as wanted.
func (f *fleetTest) after(c *controllers.Controller, since time.Time, want func(seen) bool) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	history := f.history[c.Name]
	// What was so before, and still is, followed at once.
	at := len(history) - 1
	for at >= 0 && want(history[at]) {
		at--
	}
	if at == len(history)-1 {
		f.T.Errorf("%s is not as it was awaited: %+v", c.Name, history[at])
		return 0
	}
	return max(0, history[at+1].at.Sub(since))
}

// watch notes the status of each CompositeController from now on.
func (f *fleetTest) watch() {
	f.T.Helper()
	w, err := f.Versioned.MetacontrollerV1alpha1().CompositeControllers().Watch(f.T.Context(), metav1.ListOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	f.history = map[string][]seen{}
	var noting sync.WaitGroup
	noting.Go(func() {
		for event := range w.ResultChan() {
			c, ok := event.Object.(*v1alpha1.CompositeController)
			if !ok || event.Type != watch.Modified {
				continue
			}
			now := seen{
				at: time.Now(), ready: meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady),
				settled: meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ConditionProgressing),
			}
			if healthy := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHooksHealthy); healthy != nil {
				now.healthy = healthy.Status
			}
			if c.Status.Counters != nil {
				now.counters = *c.Status.Counters
			}
			f.mu.Lock()
			f.history[c.Name] = append(f.history[c.Name], now)
			f.mu.Unlock()
		}
	})
	f.T.Cleanup(func() { w.Stop(); noting.Wait() })
}

// writes returns how often each controller was written.
func (f *fleetTest) writes() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for name, history := range f.history {
		counts[name] = len(history)
	}
	return counts
}

// callsOfGood returns how often the hook was called for each parent of a controller that never fails.
func callsOfGood(script *fixture.Script) map[string]int {
	calls := script.Count()
	maps.DeleteFunc(calls, func(name string, _ int) bool {
		var n, i int
		_, err := fmt.Sscanf(name, "%d-%d", &n, &i)
		return err != nil || n%2 == 1
	})
	return calls
}

func sum(calls map[string]int) (n int) {
	for _, each := range calls {
		n += each
	}
	return n
}

// updateWhatWasCreated updates controllers in the version in which they were created, as programs do that were written for
// objects without a status.
func updateWhatWasCreated(t *testing.T, e *fixture.Environment) {
	s := e.NewTest(t)
	s.Handle("/sync", fine())
	client := e.Versioned.MetacontrollerV1alpha1().CompositeControllers()
	timely := 0
	for n := range 15 {
		d := fixture.Definition{Kind: fixture.Composite, Sync: s.At("/sync")}
		began := time.Now()
		created, err := client.Create(t.Context(), &v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(s.Name, "-", n)}, Spec: s.CompositeSpec(d),
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		created.Labels = map[string]string{"a": "b"}
		_, err = client.Update(t.Context(), created, metav1.UpdateOptions{})
		switch slow := time.Since(began) > 500*time.Millisecond; {
		case err == nil:
			timely++
		case !apierrors.IsConflict(err) || !slow:
			t.Errorf("updating controller %d: %v", n, err)
		}
		if err := client.Delete(t.Context(), created.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if timely == 0 {
		t.Error("every update was a conflict")
	}
	cluster.Eventually(t, s.Limit, "the controllers to be gone", func(context.Context) (bool, string) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		left := slices.DeleteFunc(list.Items, func(c v1alpha1.CompositeController) bool { return !strings.HasPrefix(c.Name, s.Name+"-") })
		return len(left) == 0, fmt.Sprintf("%d are left", len(left))
	})
}
