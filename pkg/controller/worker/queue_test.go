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

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	testclock "k8s.io/utils/clock/testing"
)

var errBroken = errors.New("broken")

type popped struct {
	Key      string
	Priority Priority
}

func newTestQueue(t *testing.T) (*Queue[string], *testclock.FakeClock) {
	t.Helper()
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	q := newQueue[string](Options{Clock: c, Jitter: -1})
	t.Cleanup(run(t, q))
	return q, c
}

// run runs a queue until stop is called, which returns when the run has ended.
func run[K comparable](tb testing.TB, q *Queue[K]) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually waits until the condition holds; the test binary's time limit ends a wait in vain.
func eventually(condition func() bool) {
	for !condition() {
		runtime.Gosched()
	}
}

// drain takes all keys that are ready and finishes them at once.
func drain(q *Queue[string]) []popped {
	var out []popped
	for q.Len().Ready() > 0 {
		key, p, _ := q.Get()
		out = append(out, popped{key, p})
		q.Begin(key)
		q.Done(key)
	}
	return out
}

func TestOrder(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q *Queue[string])
		want   []popped
	}{
		"FirstInFirstOutWithinAPriority": {
			reason: "Keys of one priority must not overtake each other.",
			given: func(q *Queue[string]) {
				for _, k := range []string{"c", "a", "b"} {
					q.Add(k, Live)
				}
			},
			want: []popped{{"c", Live}, {"a", Live}, {"b", Live}},
		},
		"ByUrgency": {
			reason: "A change must not wait behind what was written about others, or a resync of all parents.",
			given: func(q *Queue[string]) {
				q.Add("resync", Resync)
				q.Add("self-triggered", SelfTriggered)
				q.Add("retry", Retry)
				q.Add("live", Live)
			},
			want: []popped{{"live", Live}, {"retry", Retry}, {"self-triggered", SelfTriggered}, {"resync", Resync}},
		},
		"QueuedOnce": {
			reason: "Many events of one parent are one sync.",
			given: func(q *Queue[string]) {
				for range 5 {
					q.Add("a", Live)
					q.Add("b", Live)
				}
			},
			want: []popped{{"a", Live}, {"b", Live}},
		},
		"LivePromotesResync": {
			reason: "A change of a parent that waits for its resync makes it urgent.",
			given: func(q *Queue[string]) {
				q.Add("a", Resync)
				q.Add("b", Resync)
				q.Add("c", Live)
				q.Add("b", Live)
			},
			want: []popped{{"c", Live}, {"b", Live}, {"a", Resync}},
		},
		"ResyncDoesNotDemoteLive": {
			reason: "A resync of a parent that changed must not make it wait.",
			given: func(q *Queue[string]) {
				q.Add("a", Live)
				q.Add("b", Retry)
				q.Add("a", Resync)
			},
			want: []popped{{"a", Live}, {"b", Retry}},
		},
		"UnknownPriorityIsTheLeastUrgent": {
			reason: "A wrong value must cost urgency, not the process.",
			given: func(q *Queue[string]) {
				q.Add("a", Priority(100))
				q.Add("b", Priority(-1))
				q.Add("c", Live)
			},
			want: []popped{{"c", Live}, {"a", Resync}, {"b", Resync}},
		},
		"RemovedKeyDoesNotCome": {
			reason: "A parent that is gone needs no sync.",
			given: func(q *Queue[string]) {
				q.Add("a", Live)
				q.Add("b", Live)
				q.Add("c", Live)
				q.Remove("b")
				q.Remove("unknown")
			},
			want: []popped{{"a", Live}, {"c", Live}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, _ := newTestQueue(t)
			tc.given(q)
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
			}
			if len(q.items) != 0 {
				t.Errorf("%d items are kept for keys without work", len(q.items))
			}
		})
	}
}

func TestEvery64thKeyComesFromTheLeastUrgentPriority(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("old", Resync)
	q.Add("retry", Retry)
	live := 0
	for n := 1; ; n++ {
		q.Add("busy", Live)
		key, p, _ := q.Get()
		q.Done(key)
		if p == Live {
			live++
			continue
		}
		if key != "old" || n != agingInterval {
			t.Fatalf("pop %d gave %q; want the resync at pop %d", n, key, agingInterval)
		}
		break
	}
	if live != agingInterval-1 {
		t.Errorf("%d live keys came before; want %d", live, agingInterval-1)
	}
}

func TestEachLessUrgentPriorityHasItsTurn(t *testing.T) {
	q, _ := newTestQueue(t)
	var turns []Priority
	for n := 1; n <= 4*agingInterval; n++ {
		for _, p := range []Priority{Live, Retry, SelfTriggered, Resync} {
			q.Add(fmt.Sprint(p), p)
		}
		key, p, _ := q.Get()
		q.Done(key)
		if n%agingInterval == 0 {
			turns = append(turns, p)
		} else if p != Live {
			t.Fatalf("pop %d has priority %d although there is a live key", n, p)
		}
	}
	if diff := cmp.Diff([]Priority{Resync, SelfTriggered, Retry, Resync}, turns); diff != "" {
		t.Errorf("every %dth key (-want +got):\n%s", agingInterval, diff)
	}
}

func TestAHeldKeyKeepsItsUrgency(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q *Queue[string])
		want   []popped
	}{
		"Added": {
			"What wakes a key does not know how urgent it was.",
			func(q *Queue[string]) { q.Add("a", Resync) },
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"HeldAgain": {
			"A less urgent add that could not be processed either must not take the urgency away.",
			func(q *Queue[string]) {
				q.Add("a", SelfTriggered)
				key, p, _ := q.Get()
				q.Hold(key, p)
				q.Done(key)
				q.Add("a", SelfTriggered)
			},
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"Processed": {
			"The urgency is over when the key was processed.",
			func(q *Queue[string]) {
				q.Add("a", SelfTriggered)
				key, _, _ := q.Get()
				q.Begin(key)
				q.Done(key)
				q.Add("a", SelfTriggered)
			},
			[]popped{{"b", Retry}, {"a", SelfTriggered}},
		},
		"Released": {
			"It is added as it was held.",
			func(q *Queue[string]) { q.Release("a") },
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"ReleasedBeforeTheWorkerIsDone": {
			"What the key waits for may be there before the worker has let go of it.",
			func(q *Queue[string]) {
				q.Add("a", Live)
				key, p, _ := q.Get()
				q.Hold(key, p)
				q.Release(key)
				q.Done(key)
			},
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"ReleasedWhenItIsProcessed": {
			"A release that comes late must not ask for one more run, nor what was added before the run began.",
			func(q *Queue[string]) {
				q.Add("a", Live)
				key, _, _ := q.Get()
				q.Add(key, Live)
				q.Begin(key)
				q.Release(key)
				q.Done(key)
			},
			[]popped{{"b", Retry}},
		},
		"AddedWhenItIsProcessed": {
			"A change during the run asks for another.",
			func(q *Queue[string]) {
				q.Add("a", Live)
				key, _, _ := q.Get()
				q.Begin(key)
				q.Add(key, Live)
				q.Done(key)
			},
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"Removed": {
			"A new object of that name has nothing to do with the old one.",
			func(q *Queue[string]) {
				q.Remove("a")
				q.Add("a", SelfTriggered)
			},
			[]popped{{"b", Retry}, {"a", SelfTriggered}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, _ := newTestQueue(t)
			q.Add("a", Live)
			key, p, _ := q.Get()
			q.Hold(key, p)
			q.Done(key)
			if got := q.Len(); got != (Lengths{}) {
				t.Fatalf("a key that is held waits for an Add, but there are %+v", got)
			}
			q.Add("b", Retry)
			tc.given(q)
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
			}
			if len(q.items) != 0 {
				t.Errorf("%d items are kept for keys without work", len(q.items))
			}
		})
	}
}

func TestKeyAddedWhileProcessedRunsAgainAtTheHighestPriority(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("a", Resync)
	key, _, _ := q.Get()
	q.Add("a", Resync)
	q.Add("a", Live)
	q.Add("a", Retry)
	if got := q.Len(); got != (Lengths{Processing: 1}) {
		t.Fatalf("while processed: %+v; the key must not be ready for a second worker", got)
	}
	q.Done(key)
	if diff := cmp.Diff([]popped{{"a", Live}}, drain(q)); diff != "" {
		t.Errorf("after Done (-want +got):\n%s", diff)
	}
}

func TestRemoveWhileProcessedDropsTheSecondRun(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("a", Live)
	key, _, _ := q.Get()
	q.Fail(key, errBroken)
	q.Add("a", Live)
	q.Remove("a")
	q.Done(key)
	if got := q.Len(); got != (Lengths{}) || len(q.items) != 0 {
		t.Errorf("after Done: %+v and %d items; want nothing", got, len(q.items))
	}
	q.Add("a", Live)
	if diff := cmp.Diff([]popped{{"a", Live}}, drain(q)); diff != "" {
		t.Errorf("an Add after Remove counts (-want +got):\n%s", diff)
	}
}

func TestDoneWithoutGetIsIgnored(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("a", Live)
	q.Done("a")
	q.Done("b")
	if diff := cmp.Diff([]popped{{"a", Live}}, drain(q)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestGetEndsWithRun(t *testing.T) {
	q := newQueue[string](Options{})
	stop := run(t, q)
	var waiting sync.WaitGroup
	var ended atomic.Int32
	for range 4 {
		waiting.Go(func() {
			if _, _, ok := q.Get(); !ok {
				ended.Add(1)
			}
		})
	}
	stop()
	waiting.Wait()
	q.Add("a", Live)
	q.AddAfter("b", time.Second, Live)
	q.RetryAfter("c", time.Second, Live, errBroken)
	if d := q.Fail("d", errBroken); d != 0 {
		t.Errorf("Fail after Run returned %s; want 0", d)
	}
	if _, _, ok := q.Get(); ok || ended.Load() != 4 || q.Len() != (Lengths{}) {
		t.Errorf("after Run: ok=%t, %d waiters ended, %+v; want false, 4 and nothing", ok, ended.Load(), q.Len())
	}
}

// TestNoKeyIsProcessedTwiceAtATime lets workers and producers race, and checks that a key is with one worker at a time,
// that nothing is lost, and that nothing is left.
func TestNoKeyIsProcessedTwiceAtATime(t *testing.T) {
	const keys, workers, producers, rounds = 50, 8, 4, 2000
	q := newQueue[int](Options{BaseDelay: time.Microsecond, MaxDelay: 10 * time.Microsecond})
	stop := run(t, q)
	var busy [keys]atomic.Bool
	var asked, seen [keys]atomic.Int64
	var work, produce sync.WaitGroup
	for range workers {
		work.Go(func() {
			for n := 0; ; n++ {
				key, _, ok := q.Get()
				if !ok {
					return
				}
				if !busy[key].CompareAndSwap(false, true) {
					t.Errorf("key %d is with two workers", key)
				}
				seen[key].Store(asked[key].Load())
				if n%7 == 0 {
					q.Fail(key, errBroken)
				} else {
					q.Forget(key)
				}
				busy[key].Store(false)
				q.Done(key)
			}
		})
	}
	for p := range producers {
		produce.Go(func() {
			for n := range rounds {
				key := (n*7 + p) % keys
				asked[key].Add(1)
				switch n % 3 {
				case 0:
					q.AddAfter(key, time.Duration(n%5)*time.Microsecond, Resync)
				default:
					q.Add(key, Priority(n%priorities))
				}
			}
		})
	}
	produce.Wait()
	eventually(func() bool { return q.Len() == Lengths{} })
	for k := range keys {
		if asked[k].Load() != seen[k].Load() {
			t.Errorf("key %d: the last of %d adds was not processed (saw %d)", k, asked[k].Load(), seen[k].Load())
		}
	}
	stop()
	work.Wait()
}

func TestWhatAWorkerAsksForARemovedKeyDoesNotCount(t *testing.T) {
	for name, ask := range map[string]func(*Queue[string]){
		"AddAfter":   func(q *Queue[string]) { q.AddAfter("a", time.Hour, Live) },
		"RetryAfter": func(q *Queue[string]) { q.RetryAfter("a", time.Hour, Retry, errBroken) },
		"Fail":       func(q *Queue[string]) { q.Fail("a", errBroken) },
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := newTestQueue(t)
			q.Add("a", Live)
			key, _, _ := q.Get()
			q.Remove("a")
			ask(q)
			q.Done(key)
			if got := q.Len(); got != (Lengths{}) || len(q.items) != 0 {
				t.Errorf("after Done: %+v and %d items; want nothing", got, len(q.items))
			}
			q.Add("a", Live)
			key, _, _ = q.Get()
			q.Remove("a")
			q.Add("a", Live) // The object of that name is there again.
			ask(q)
			q.Done(key)
			if len(q.items) != 1 {
				t.Errorf("%d items after the key was added again; want it", len(q.items))
			}
		})
	}
}

func TestAPausedQueueKeepsWhatIsAdded(t *testing.T) {
	q, clock := newTestQueue(t)
	q.Add("a", Live)
	q.Pause()
	q.Add("b", Resync)
	q.Add("b", Retry)
	q.AddAfter("c", time.Minute, Live)
	q.Add("gone", Live)
	q.Remove("gone")
	clock.Step(time.Hour)
	eventually(func() bool { return q.Pending() == 3 })
	taken := make(chan string)
	go func() {
		key, _, _ := q.Get()
		taken <- key
	}()
	if q.Processing() != 0 {
		t.Error("a key is taken from a paused queue")
	}
	q.Resume()
	if key := <-taken; key != "a" {
		t.Errorf("the first key is %s, want a", key)
	}
	if q.Processing() != 1 {
		t.Errorf("%d keys are taken, want 1", q.Processing())
	}
	q.Done("a")
	if diff := cmp.Diff([]popped{{"c", Live}, {"b", Retry}}, drain(q)); diff != "" {
		t.Errorf("keys differ (-want +got):\n%s", diff)
	}
}
