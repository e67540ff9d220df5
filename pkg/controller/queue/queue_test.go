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

package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func key(name string) parent.Key { return parent.NewKey(schema.GroupResource{}, "", name) }

type popped struct {
	Key      string
	Priority Priority
}

// byName is a queue whose workers are the test, and whose keys have names.
type byName struct {
	*Queue

	ctx context.Context
}

// newTestQueue returns a queue whose back-offs have no jitter. It runs until the test ends.
func newTestQueue(t *testing.T) byName {
	t.Helper()
	q := New(Config{Random: func() float64 { return 0 }, Triggers: true})
	t.Cleanup(run(t, q))
	return byName{q, t.Context()}
}

// run runs a queue until stop is called, which returns when the run has ended.
func run(tb testing.TB, q *Queue) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// pass lets time pass, and waits for what is due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (q byName) Add(name string, p Priority, why ...history.Trigger) {
	q.Queue.Add(key(name), p, why...)
}
func (q byName) AddAfter(name string, d time.Duration) { q.Queue.AddAfter(key(name), d) }
func (q byName) Release(name string)                   { q.Queue.Release(key(name)) }
func (q byName) Forget(name string)                    { q.Queue.Forget(key(name)) }
func (q byName) Take(name string) bool                 { return q.Queue.Take(key(name)) }
func (q byName) Done(name string)                      { q.Queue.Done(key(name)) }

// Hold returns the next key, which is held until Begin.
func (q byName) Hold() (name string, p Priority) {
	i, p := q.get()
	return i.key.Name, p
}

// Get begins to sync the next key.
func (q byName) Get() (name string, p Priority) {
	name, p = q.Hold()
	q.Begin(name)
	return name, p
}

// Begin begins to sync a key that Hold returned.
func (q byName) Begin(name string) history.Begun {
	why, _ := q.begin(q.items[key(name)], func(error) {})
	return why
}

// Fail has a sync of a key end with an error.
func (q byName) Fail(name string, err error) time.Duration {
	q.mu.Lock()
	i := q.item(key(name))
	q.mu.Unlock()
	return q.retry(q.ctx, i, classify(err), Result{})
}

// Succeed has a sync of a key end well.
func (q byName) Succeed(name string) { q.succeeded(q.items[key(name)], Result{}) }

// later is the error of a hook that asks for time.
type later struct{ after time.Duration }

func (l later) Error() string             { return "too many requests" }
func (l later) RetryAfter() time.Duration { return l.after }

// drain takes all keys that are ready and finishes them at once.
func drain(q byName) []popped {
	var out []popped
	for q.Len().Ready() > 0 {
		name, p := q.Get()
		out = append(out, popped{name, p})
		q.Done(name)
	}
	return out
}

func TestOrder(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q byName)
		want   []popped
	}{
		"FirstInFirstOutWithinAPriority": {
			reason: "Keys of one priority must not overtake each other.",
			given: func(q byName) {
				for _, k := range []string{"c", "a", "b"} {
					q.Add(k, Live)
				}
			},
			want: []popped{{"c", Live}, {"a", Live}, {"b", Live}},
		},
		"ByUrgency": {
			reason: "A change must not wait behind what was written about others, or a resync of all parents.",
			given: func(q byName) {
				q.Add("resync", Resync)
				q.Add("self-triggered", SelfTriggered)
				q.Add("retry", Retry)
				q.Add("live", Live)
			},
			want: []popped{{"live", Live}, {"retry", Retry}, {"self-triggered", SelfTriggered}, {"resync", Resync}},
		},
		"QueuedOnce": {
			reason: "Many events of one parent are one sync.",
			given: func(q byName) {
				for range 5 {
					q.Add("a", Live)
					q.Add("b", Live)
				}
			},
			want: []popped{{"a", Live}, {"b", Live}},
		},
		"LivePromotesResync": {
			reason: "A change of a parent that waits for its resync makes it urgent.",
			given: func(q byName) {
				q.Add("a", Resync)
				q.Add("b", Resync)
				q.Add("c", Live)
				q.Add("b", Live)
			},
			want: []popped{{"c", Live}, {"b", Live}, {"a", Resync}},
		},
		"ResyncDoesNotDemoteLive": {
			reason: "A resync of a parent that changed must not make it wait.",
			given: func(q byName) {
				q.Add("a", Live)
				q.Add("b", Retry)
				q.Add("a", Resync)
			},
			want: []popped{{"a", Live}, {"b", Retry}},
		},
		"RemovedKeyDoesNotCome": {
			reason: "A parent that is gone needs no sync.",
			given: func(q byName) {
				q.Add("a", Live)
				q.Add("b", Live)
				q.Add("c", Live)
				q.Forget("b")
				q.Forget("unknown")
			},
			want: []popped{{"a", Live}, {"c", Live}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
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
	q := newTestQueue(t)
	q.Add("old", Resync)
	q.Add("retry", Retry)
	live := 0
	for n := 1; ; n++ {
		q.Add("busy", Live)
		key, p := q.Get()
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
	q := newTestQueue(t)
	var turns []Priority
	for n := 1; n <= 4*agingInterval; n++ {
		for _, p := range []Priority{Live, Retry, SelfTriggered, Resync} {
			q.Add(fmt.Sprint(p), p)
		}
		key, p := q.Get()
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
		given  func(q byName)
		want   []popped
	}{
		"Added": {
			"What wakes a key does not know how urgent it was.",
			func(q byName) { q.Add("a", Resync) },
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"HeldAgain": {
			"A less urgent add that could not be processed either must not take the urgency away.",
			func(q byName) {
				q.Add("a", SelfTriggered)
				key, _ := q.Hold()
				q.Done(key)
				q.Add("a", SelfTriggered)
			},
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"Processed": {
			"The urgency is over when the key was processed.",
			func(q byName) {
				q.Add("a", SelfTriggered)
				key, _ := q.Get()
				q.Done(key)
				q.Add("a", SelfTriggered)
			},
			[]popped{{"b", Retry}, {"a", SelfTriggered}},
		},
		"Released": {
			"It is added as it was held.",
			func(q byName) { q.Release("a") },
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"ReleasedBeforeTheWorkerIsDone": {
			"What the key waits for may be there before the worker has let go of it.",
			func(q byName) {
				q.Add("a", Live)
				key, _ := q.Hold()
				q.Release(key)
				q.Done(key)
			},
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"ReleasedWhenItIsProcessed": {
			"A release that comes late must not ask for one more run, nor what was added before the run began.",
			func(q byName) {
				q.Add("a", Live)
				key, _ := q.Hold()
				q.Add(key, Live)
				q.Begin(key)
				q.Release(key)
				q.Done(key)
			},
			[]popped{{"b", Retry}},
		},
		"AddedWhenItIsProcessed": {
			"A change during the run asks for another.",
			func(q byName) {
				q.Add("a", Live)
				key, _ := q.Get()
				q.Add(key, Live)
				q.Done(key)
			},
			[]popped{{"a", Live}, {"b", Retry}},
		},
		"Removed": {
			"A new object of that name has nothing to do with the old one.",
			func(q byName) {
				q.Forget("a")
				q.Add("a", SelfTriggered)
			},
			[]popped{{"b", Retry}, {"a", SelfTriggered}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			q.Add("a", Live)
			key, _ := q.Hold()
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
	q := newTestQueue(t)
	q.Add("a", Resync)
	key, _ := q.Get()
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

func TestForgetWhileProcessedDropsTheSecondRun(t *testing.T) {
	q := newTestQueue(t)
	q.Add("a", Live)
	key, _ := q.Get()
	q.Fail(key, errBroken)
	q.Add("a", Live)
	q.Forget("a")
	q.Done(key)
	if got := q.Len(); got != (Lengths{}) || len(q.items) != 0 {
		t.Errorf("after Done: %+v and %d items; want nothing", got, len(q.items))
	}
	q.Add("a", Live)
	if diff := cmp.Diff([]popped{{"a", Live}}, drain(q)); diff != "" {
		t.Errorf("an Add after Forget counts (-want +got):\n%s", diff)
	}
}

func TestForgettingAParentDropsAllThatIsKnownOfIt(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
	wait := &WaitError{For: "it", Done: func(ctx context.Context) bool { <-ctx.Done(); return false }}
	for name, errs := range map[string][]error{
		"Failed":    {errBroken},
		"Conflict":  {conflict},
		"Postponed": {errBroken, later{time.Hour}},
		"Waits":     {errBroken, wait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newTestQueue(t)
				for _, err := range errs {
					q.Add("a", Live)
					q.Get()
					q.Fail("a", err)
					q.Done("a")
				}
				if n := q.Remembered(); n != 1 {
					t.Errorf("of %d parents it is known that they failed, want 1", n)
				}
				q.AddAfter("a", time.Hour)
				q.Forget("a")
				if synctest.Wait(); len(q.items) != 0 || q.failing.Len() != 0 || q.Len() != (Lengths{}) || q.Remembered() != 0 {
					t.Errorf("%d items, %d parents that fail, %+v; want nothing", len(q.items), q.failing.Len(), q.Len())
				}
			})
		})
	}
}

func TestGetEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{})
		stop := run(t, q)
		var waiting sync.WaitGroup
		var ended atomic.Int32
		for range 4 {
			waiting.Go(func() {
				if i, _ := q.get(); i == nil {
					ended.Add(1)
				}
			})
		}
		synctest.Wait()
		stop()
		waiting.Wait()
		q.Add(key("a"), Live)
		if i, _ := q.get(); i != nil || ended.Load() != 4 {
			t.Errorf("after Run: there is %v, and %d waiters ended; want nothing and 4", i, ended.Load())
		}
	})
}

// TestNoKeyIsSyncedTwiceAtATime lets workers and producers race, and checks that a key is with one worker at a time,
// that nothing is lost, and that nothing is left.
func TestNoKeyIsSyncedTwiceAtATime(t *testing.T) {
	const keys, producers, rounds = 50, 4, 2000
	synctest.Test(t, func(t *testing.T) {
		var busy [keys]atomic.Bool
		var asked, seen [keys]atomic.Int64
		var syncs atomic.Int64
		q := New(Config{
			Workers: 8,
			Sync: func(_ context.Context, k parent.Key, _ history.Begun) (Result, error) {
				n, _ := strconv.Atoi(k.Name)
				if !busy[n].CompareAndSwap(false, true) {
					t.Errorf("key %d is with two workers", n)
				}
				defer busy[n].Store(false)
				if seen[n].Store(asked[n].Load()); syncs.Add(1)%7 == 0 {
					return Result{}, errBroken
				}
				return Result{}, nil
			},
			Ready: func(parent.Key) bool { return true }, Failed: func(context.Context, parent.Key, error) {},
			Recovered: func(parent.Key) {}, Processed: func() {},
		})
		stop := run(t, q)
		var produce sync.WaitGroup
		for p := range producers {
			produce.Go(func() {
				for n := range rounds {
					k := (n*7 + p) % keys
					asked[k].Add(1)
					switch n % 3 {
					case 0:
						q.AddAfter(key(strconv.Itoa(k)), time.Duration(n%5)*time.Microsecond)
					default:
						q.Add(key(strconv.Itoa(k)), Priority(n%priorities))
					}
				}
			})
		}
		produce.Wait()
		pass(time.Hour)
		if len(q.items) > 0 {
			t.Errorf("%d items are left", len(q.items))
		}
		for k := range keys {
			if asked[k].Load() != seen[k].Load() {
				t.Errorf("key %d: the last of %d adds was not processed (saw %d)", k, asked[k].Load(), seen[k].Load())
			}
		}
		stop()
	})
}

func TestWhatAWorkerAsksForAForgottenKeyDoesNotCount(t *testing.T) {
	for name, ask := range map[string]func(byName){
		"AddAfter":   func(q byName) { q.AddAfter("a", time.Hour) },
		"RetryAfter": func(q byName) { q.Fail("a", later{time.Hour}) },
		"Fail":       func(q byName) { q.Fail("a", errBroken) },
		"Conflict": func(q byName) {
			q.Fail("a", apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			q.Add("a", Live)
			key, _ := q.Get()
			q.Forget("a")
			ask(q)
			q.Done(key)
			if got := q.Len(); got != (Lengths{}) || len(q.items) != 0 || q.Failing() != 0 {
				t.Errorf("after Done: %+v, %d items and %d parents that fail; want nothing", got, len(q.items), q.Failing())
			}
			q.Add("a", Live)
			key, _ = q.Get()
			q.Forget("a")
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
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		q.Add("a", Live)
		q.Pause()
		q.Add("b", Resync)
		q.Add("b", Retry)
		q.AddAfter("c", time.Minute)
		q.Add("gone", Live)
		q.Forget("gone")
		pass(time.Hour)
		if n := q.Pending(); n != 3 {
			t.Errorf("%d keys wait, want 3", n)
		}
		taken := make(chan string)
		go func() {
			key, _ := q.Get()
			taken <- key
		}()
		if synctest.Wait(); q.UnderWay() != 0 {
			t.Error("a key is taken from a paused queue")
		}
		q.Resume()
		if key := <-taken; key != "a" {
			t.Errorf("the first key is %s, want a", key)
		}
		if q.UnderWay() != 1 {
			t.Errorf("%d keys are taken, want 1", q.UnderWay())
		}
		q.Done("a")
		if diff := cmp.Diff([]popped{{"c", Live}, {"b", Retry}}, drain(q)); diff != "" {
			t.Errorf("keys differ (-want +got):\n%s", diff)
		}
	})
}

func TestStateShowsWhereEveryKeyIs(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q byName)
		want   metrics.QueueState
	}{
		"Nothing": {reason: "An empty queue is quiet.", given: func(byName) {}},
		"Queued": {
			reason: "Each priority is shown.",
			given: func(q byName) {
				for _, p := range []Priority{Live, Retry, SelfTriggered, Resync} {
					q.Add(fmt.Sprint(p), p)
				}
			},
			want: metrics.QueueState{Live: 1, Retry: 1, SelfTriggered: 1, Resync: 1},
		},
		"Processing": {
			reason: "What is under way is not quiet.",
			given:  func(q byName) { q.Add("a", Live); q.Get() },
			want:   metrics.QueueState{Processing: 1, Unfinished: time.Second, Longest: time.Second},
		},
		"Again": {
			reason: "A change during a sync counts as depth.",
			given:  func(q byName) { q.Add("a", Live); q.Get(); q.Add("a", Live) },
			want:   metrics.QueueState{Processing: 1, Again: 1, Unfinished: time.Second, Longest: time.Second},
		},
		"Held": {
			reason: "A key that waits for a release is in no list.",
			given: func(q byName) {
				q.Add("a", Live)
				key, _ := q.Hold()
				q.Done(key)
			},
			want: metrics.QueueState{Held: 1},
		},
		"Retrying": {
			reason: "A key in backoff is going to be synced without a change.",
			given:  func(q byName) { q.Fail("a", errBroken); q.Fail("b", later{time.Hour}); q.Fail("c", &WaitError{}) },
			want:   metrics.QueueState{Retrying: 3, Failing: 1, Postponed: 1, Waiting: 1},
		},
		"Scheduled": {
			reason: "A resync that was asked for is no unrest.",
			given:  func(q byName) { q.AddAfter("a", time.Hour) },
			want:   metrics.QueueState{Scheduled: 1},
		},
		"Done": {
			reason: "A success leaves nothing.",
			given: func(q byName) {
				q.Fail("a", errBroken)
				q.Add("a", Live)
				q.Get()
				q.Succeed("a")
				q.Done("a")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(Config{})
				tc.given(byName{q, t.Context()})
				<-time.After(time.Second)
				if diff := cmp.Diff(tc.want, q.state()); diff != "" {
					t.Errorf("%s\nstate (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// Lengths are the numbers of keys in a queue. A key that is processed or delayed may be counted there as well as in one
// of the priorities.
type Lengths struct {
	// Live, Retry, SelfTriggered and Resync are the keys ready to be processed, by priority.
	Live, Retry, SelfTriggered, Resync int
	// Delayed are the keys that wait for a time.
	Delayed int
	// Processing are the keys that workers have.
	Processing int
}

// Ready is the number of keys ready to be processed.
func (l Lengths) Ready() int { return l.Live + l.Retry + l.SelfTriggered + l.Resync }

// Len returns how many keys there are.
func (q *Queue) Len() Lengths {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Lengths{
		Live:          q.lists[Live].len,
		Retry:         q.lists[Retry].len,
		SelfTriggered: q.lists[SelfTriggered].len,
		Resync:        q.lists[Resync].len,
		Delayed:       len(q.delays),
		Processing:    q.processing,
	}
}

func TestAQueueWithoutKeysKeepsNoMemoryOfThem(t *testing.T) {
	q, keys := New(Config{}), many(100_000)
	round := func() {
		for _, k := range keys {
			q.Add(k, Live)
		}
		for n, k := range keys {
			i, _ := q.get()
			if i.key != k {
				t.Fatalf("%s comes as number %d", i.key, n)
			}
			q.begin(i, func(error) {})
			if n%2 == 0 {
				q.succeeded(i, Result{})
			}
			q.done(i)
		}
	}
	before := live()
	round()
	if kept := live() - before; kept > 1<<20 {
		t.Errorf("%d KB are kept for %d keys that are done", kept>>10, len(keys))
	}
	round()
	if pending := q.Pending(); pending > 0 {
		t.Errorf("%d keys are pending", pending)
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(keys)
}

// live returns the bytes of all objects that are in use.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
