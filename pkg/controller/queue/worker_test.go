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

package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

type later struct{ after time.Duration }

func (l later) Error() string             { return "too many requests" }
func (l later) RetryAfter() time.Duration { return l.after }

func key(name string) parent.Key {
	return parent.NewKey(schema.GroupResource{Group: "example.com", Resource: "things"}, "ns", name)
}

// run runs a queue until the test ends.
func run(t *testing.T, c queue.Config) (q *queue.Queue, reported *sync.Map) {
	t.Helper()
	q, reported = build(c)
	t.Cleanup(start(t, q))
	return q, reported
}

// build returns a queue with two workers, unless c has another number. The errors that it reports are kept.
func build(c queue.Config) (q *queue.Queue, reported *sync.Map) {
	reported = &sync.Map{}
	c.Workers = cmp.Or(c.Workers, 2)
	c.Failed = func(_ context.Context, k parent.Key, err error) { reported.Store(k, err) }
	if c.Ready == nil {
		c.Ready = func(parent.Key) bool { return true }
	}
	if c.Recovered == nil {
		c.Recovered = func(parent.Key) {}
	}
	if c.Waits == nil {
		c.Waits = func(context.Context, parent.Key, error, time.Duration) {}
	}
	c.Processed = func() {}
	return queue.New(c), reported
}

// start runs a queue until stop is called, which returns when the run has ended.
func start(t *testing.T, q *queue.Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	return func() { cancel(errStopped); running.Wait() }
}

var errStopped = errors.New("stopped")

func TestAnErrorIsRetriedByItsKind(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("not allowed"))
	for name, tc := range map[string]struct {
		reason   string
		err      error
		reported bool
	}{
		"PlainErrorIsReported":      {"A user must see what failed.", errors.New("boom"), true},
		"WaitingIsSilent":           {"A cache that fills is no failure.", fmt.Errorf("syncing: %w", &queue.WaitError{For: "a cache"}), false},
		"ConflictIsSilent":          {"The next sync sees what the other writer wrote.", fmt.Errorf("writing: %w", conflict), false},
		"ConflictsJoinedAreSilent":  {"Several conflicts are still conflicts.", errors.Join(conflict, conflict), false},
		"ConflictWithFailureIsLoud": {"A conflict must not hide a failure beside it.", errors.Join(conflict, errors.New("boom")), true},
		"ConflictWithRefusalBelowAWrap": {
			"Nor when both are wrapped, as what applying children returns is.",
			fmt.Errorf("reconciling children: %w", errors.Join(fmt.Errorf("creating a: %w", conflict), fmt.Errorf("creating b: %w", refused))), true,
		},
		"PostponedWithFailureIsLoud": {
			"Retry-After must not hide a failure beside it.", errors.Join(fmt.Errorf("calling: %w", later{time.Millisecond}), refused), true,
		},
		"WaitingWithFailureIsLoud": {
			"Nor a cache that fills.", errors.Join(&queue.WaitError{For: "a cache"}, refused), true,
		},
		"PostponedByTheHookIsSilent": {"A hook that asks for patience has not failed.", fmt.Errorf("calling: %w", later{time.Millisecond}), false},
		"PostponedWithoutTimeBacksOff": {
			"Without a time there is backoff, not a hot loop (docs/reference/contract.md#s18.2).", later{0}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			again := make(chan struct{})
			p, reported := run(t, queue.Config{Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
				switch calls.Add(1) {
				case 1:
					return queue.Result{}, tc.err
				case 2:
					close(again)
				}
				return queue.Result{}, nil
			}})
			p.Add(key("a"), queue.Live)
			<-again
			if _, got := reported.Load(key("a")); got != tc.reported {
				t.Errorf("reported = %v, want %v: %s", got, tc.reported, tc.reason)
			}
			if got := p.Counters.Failed.Load() == 1; got != tc.reported {
				t.Errorf("failed syncs = %d: %s", p.Counters.Failed.Load(), tc.reason)
			}
		})
	}
}

func TestAPanicStopsNothing(t *testing.T) {
	var calls atomic.Int32
	done := make(chan struct{})
	p, reported := run(t, queue.Config{Workers: 1, Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
		if k == key("bad") && calls.Add(1) == 1 {
			panic(k)
		}
		if k == key("good") {
			close(done)
		}
		return queue.Result{}, nil
	}})
	p.Add(key("bad"), queue.Live)
	p.Add(key("good"), queue.Live)
	<-done
	if _, ok := reported.Load(key("bad")); !ok {
		t.Error("a panic of one parent's sync was not reported")
	}
}

// TestAWorkerGoesOnWithTheSyncThatFollows has a sync ask for another one of its parent, before the one of another parent that waits.
func TestAWorkerGoesOnWithTheSyncThatFollows(t *testing.T) {
	var order []string
	done := make(chan struct{})
	var p *queue.Queue
	next := func(_ context.Context, k parent.Key, why history.Begun) (queue.Result, error) {
		order = append(order, "next "+k.Name)
		if n := len(why.Triggers.Kept()); n != 1 {
			t.Errorf("the sync that follows has %d triggers", n)
		}
		return queue.Result{}, errors.New("boom")
	}
	built := make(chan struct{})
	p, reported := run(t, queue.Config{Workers: 1, Triggers: true, Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
		<-built
		if order = append(order, k.Name); k == key("b") {
			close(done)
		}
		if k != key("a") || len(order) > 1 {
			return queue.Result{}, nil
		}
		if _, ok := p.GoOn(k); ok {
			t.Error("it goes on although nothing asks for it")
		}
		p.Add(key("b"), queue.Live)
		p.Add(k, queue.Live, history.Of(v1alpha1.SyncChildChanged))
		why, _ := p.GoOn(k)
		return queue.Result{Next: next, Why: why}, nil
	}})
	p.Add(key("a"), queue.Live)
	close(built)
	<-done
	if want := []string{"a", "next a", "b"}; !slices.Equal(order[:3], want) {
		t.Errorf("the syncs were %v, want %v", order, want)
	}
	if _, failed := reported.Load(key("a")); !failed || p.Counters.Syncs.Load() < 1 || p.Counters.Failed.Load() != 1 {
		t.Errorf("%d syncs and %d failures are counted: each is one of its own", p.Counters.Syncs.Load(), p.Counters.Failed.Load())
	}
}

func TestAPanicBesideTheSyncStopsNoWorker(t *testing.T) {
	var panicked atomic.Bool
	done := make(chan struct{})
	p, _ := run(t, queue.Config{
		Workers: 1,
		Ready: func(parent.Key) bool {
			if panicked.CompareAndSwap(false, true) {
				panic("not ready at all")
			}
			return true
		},
		Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
			close(done)
			return queue.Result{}, nil
		},
	})
	p.Add(key("bad"), queue.Live)
	p.Add(key("good"), queue.Live)
	<-done
}

func TestAKeyIsHeldBackUntilItIsReleased(t *testing.T) {
	var ready atomic.Bool
	held, synced := make(chan struct{}, 1), make(chan struct{})
	p, _ := run(t, queue.Config{
		Ready: func(parent.Key) bool {
			if !ready.Load() {
				held <- struct{}{}
			}
			return ready.Load()
		},
		Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
			close(synced)
			return queue.Result{}, nil
		},
	})
	p.Add(key("a"), queue.Live)
	<-held
	select {
	case <-synced:
		t.Fatal("the key was synced before its writes were seen")
	default:
	}
	ready.Store(true)
	p.Release(key("a"))
	<-synced
}

func TestASyncUnderWayIsGivenTimeAtTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		want  error
	}{
		"Enough":    {queue.Grace - time.Second, nil},
		"NotEnough": {time.Hour, errStopped},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var interrupted error
				p, _ := build(queue.Config{Sync: func(ctx context.Context, _ parent.Key, _ history.Begun) (queue.Result, error) {
					select {
					case <-time.After(tc.takes):
					case <-ctx.Done():
					}
					interrupted = context.Cause(ctx)
					return queue.Result{}, ctx.Err()
				}})
				stop := start(t, p)
				p.Add(key("a"), queue.Live)
				synctest.Wait()
				if stop(); !errors.Is(interrupted, tc.want) {
					t.Errorf("the sync was interrupted by %v, want %v", interrupted, tc.want)
				}
			})
		})
	}
}

func TestMetricsShowWhatAQueueDoes(t *testing.T) {
	m := metrics.NewController("CompositeController", "queue-test")
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("not allowed"))
	stuck, release := make(chan struct{}), make(chan struct{})
	p, _ := run(t, queue.Config{
		Metrics: m,
		Ready:   func(k parent.Key) bool { return k.Name != "held" },
		Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
			switch k.Name {
			case "stuck":
				close(stuck)
				<-release
			case "refused":
				return queue.Result{}, refused
			case "postponed":
				return queue.Result{}, later{time.Hour}
			}
			return queue.Result{ResyncAfter: time.Hour}, nil
		},
	})
	m.CountParents(func() int { return 10 })
	for _, name := range []string{"fine", "held", "refused", "postponed", "stuck"} {
		p.Add(key(name), queue.Live)
	}
	<-stuck
	want := map[string]float64{
		`metacontroller_syncs_total{controller="CompositeController-queue-test",result="success"}`:      1,
		`metacontroller_syncs_total{controller="CompositeController-queue-test",result="postponed"}`:    1,
		`metacontroller_parents{controller="CompositeController-queue-test",state="failing"}`:           1,
		`metacontroller_parents{controller="CompositeController-queue-test",state="postponed"}`:         1,
		`metacontroller_parents{controller="CompositeController-queue-test",state="ready"}`:             8,
		`metacontroller_workqueue_keys{controller="CompositeController-queue-test",state="held"}`:       1,
		`metacontroller_workqueue_keys{controller="CompositeController-queue-test",state="processing"}`: 1,
		`metacontroller_workqueue_keys{controller="CompositeController-queue-test",state="scheduled"}`:  1,
		`workqueue_depth{name="CompositeController-queue-test"}`:                                        0,
	}
	var got map[string]float64
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		got = gather(t)
		for series, value := range want {
			if v, ok := got[series]; !ok || v != value {
				return false, nil
			}
		}
		return true, nil
	})
	close(release)
	if err != nil {
		for series, value := range want {
			t.Errorf("%s = %v, want %v", series, got[series], value)
		}
	}
	if got[`metacontroller_sync_errors_total{controller="CompositeController-queue-test",reason="Forbidden"}`] < 1 {
		t.Error("the error is not counted by its reason")
	}
	if got[`workqueue_unfinished_work_seconds{name="CompositeController-queue-test"}`] <= 0 {
		t.Error("a sync that does not end is not shown as unfinished work")
	}
}

// gather returns the values of all counters and gauges by series.
func gather(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			values[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

// unavailable is an API server's refusal that names a time.
type unavailable struct{ error }

func (u unavailable) Unwrap() error           { return u.error }
func (unavailable) RetryAfter() time.Duration { return time.Millisecond }

func TestErrorsThatUsuallyPassAreReportedWhenTheyLast(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	for name, tc := range map[string]struct {
		reason   string
		err      error
		reported bool
	}{
		"Conflict":     {"A quota or a webhook may refuse every write with a conflict.", apierrors.NewConflict(resource, "a", errors.New("changed")), true},
		"Unavailable":  {"An aggregated API that is down asks to retry for ever.", unavailable{apierrors.NewServiceUnavailable("down")}, true},
		"HookPostpone": {"A hook may ask for patience as long as it likes.", later{time.Millisecond}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			enough := make(chan struct{})
			p, reported := run(t, queue.Config{Workers: 1, Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
				if calls.Add(1) == 10 {
					close(enough)
				}
				return queue.Result{}, fmt.Errorf("writing: %w", tc.err)
			}})
			p.Add(key("a"), queue.Live)
			<-enough
			if _, got := reported.Load(key("a")); got != tc.reported {
				t.Errorf("reported = %v, want %v: %s", got, tc.reported, tc.reason)
			}
		})
	}
}

// What failed before says nothing of how long a conflict lasts: a finalizer that somebody took off would be missing as long.
func TestAConflictDoesNotWaitAsLongAsTheFailuresBefore(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
	const failures = 15
	for name, tc := range map[string]struct {
		err  error
		soon bool
	}{
		"Conflict":            {conflict, true},
		"ConflictWithFailure": {errors.Join(conflict, errors.New("boom")), false},
		"Failure":             {errors.New("boom"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, failed, again := 0, make(chan struct{}), make(chan struct{})
				p, _ := run(t, queue.Config{Workers: 1, Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
					switch calls++; {
					case calls < failures:
						return queue.Result{}, errors.New("boom")
					case calls == failures:
						close(failed)
						return queue.Result{}, errors.New("boom")
					case calls == failures+1:
						return queue.Result{}, fmt.Errorf("writing: %w", tc.err)
					}
					close(again)
					return queue.Result{}, nil
				}})
				p.Add(key("a"), queue.Live)
				<-failed
				p.Add(key("a"), queue.Live)
				began := time.Now()
				<-again
				if took := time.Since(began); took < time.Second != tc.soon {
					t.Errorf("it was synced again after %s", took)
				}
			})
		})
	}
}

func TestWaitingEndsWithItsCause(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// syncs says of each sync whether it has to wait.
		syncs  []bool
		forget bool
		ended  int
	}{
		"Success":      {"There is nothing to wait for any more.", []bool{true, false}, false, 1},
		"AnotherWait":  {"The next sync may wait for something else.", []bool{true, true, false}, false, 2},
		"ParentIsGone": {"It would wait until the controller ends.", []bool{true}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls, begun, ended int // Nothing else runs while the test looks.
				p, _ := run(t, queue.Config{Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
					if calls++; !tc.syncs[calls-1] {
						return queue.Result{}, nil
					}
					return queue.Result{}, &queue.WaitError{For: "an informer", Done: func(ctx context.Context) bool {
						begun++
						<-ctx.Done()
						ended++
						return false
					}}
				}})
				waits := 0
				for n, wait := range tc.syncs {
					p.Add(key("a"), queue.Live)
					if wait {
						waits++
					}
					if synctest.Wait(); calls != n+1 || begun != waits {
						t.Fatalf("%d syncs, %d of which wait; want %d and %d. %s", calls, begun, n+1, waits, tc.reason)
					}
				}
				if tc.forget {
					p.Forget(key("a"))
				}
				if synctest.Wait(); ended != tc.ended {
					t.Errorf("%d waits ended. %s", ended, tc.reason)
				}
			})
		})
	}
}

func TestASyncFollowsAtOnceWhenItsWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, there := 0, make(chan struct{})
		p, _ := run(t, queue.Config{Workers: 1, Triggers: true, Sync: func(_ context.Context, _ parent.Key, why history.Begun) (queue.Result, error) {
			if calls++; calls == 1 {
				return queue.Result{}, &queue.WaitError{For: "an informer", Done: func(context.Context) bool { <-there; return true }}
			}
			if kept := why.Triggers.Kept(); len(kept) != 1 || kept[0].Reason != v1alpha1.SyncWaitEnded {
				t.Errorf("it is synced because of %v", kept)
			}
			return queue.Result{}, nil
		}})
		p.Add(key("a"), queue.Live)
		synctest.Wait()
		close(there)
		if synctest.Wait(); calls != 2 {
			t.Errorf("%d syncs, want 2: what the first waits for is there", calls)
		}
	})
}

func TestAPauseCutsSyncsShortAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Int64
		block := make(chan struct{})
		p, reported := run(t, queue.Config{Sync: func(ctx context.Context, _ parent.Key, _ history.Begun) (queue.Result, error) {
			begun.Add(1)
			select {
			case <-block:
				ended.Add(1)
				return queue.Result{}, nil
			case <-ctx.Done():
				<-time.After(time.Second) // A request is under way.
				return queue.Result{}, errors.New("cut short")
			}
		}})
		for _, name := range []string{"a", "b", "c"} {
			p.Add(key(name), queue.Live)
		}
		synctest.Wait()
		p.Pause()
		synctest.Wait()
		if p.UnderWay() != 2 {
			t.Errorf("%d syncs are under way, want 2", p.UnderWay())
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if p.UnderWay() != 0 || begun.Load() != 2 || p.Pending() != 3 {
			t.Errorf("%d syncs are under way and %d began; %d keys wait; want 0, 2 and 3", p.UnderWay(), begun.Load(), p.Pending())
		}
		p.Add(key("d"), queue.Resync)
		p.Forget(key("b"))
		close(block)
		p.Resume()
		synctest.Wait()
		if ended.Load() != 3 || p.Failing() != 0 || p.Counters.Failed.Load() != 0 {
			t.Errorf("%d syncs ended well, %d parents fail; want 3 and 0", ended.Load(), p.Failing())
		}
		reported.Range(func(k, err any) bool {
			t.Errorf("the error of %v is reported: %v", k, err)
			return true
		})
	})
}

func TestAQueueThatBeginsPausedSyncsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced atomic.Int64
		p, _ := build(queue.Config{Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
			synced.Add(1)
			return queue.Result{ResyncAfter: time.Minute}, nil
		}})
		p.Pause()
		stop := start(t, p)
		p.Add(key("a"), queue.Live)
		<-time.After(time.Hour)
		if synced.Load() != 0 {
			t.Error("a key is synced during a pause")
		}
		p.Resume()
		<-time.After(time.Second)
		if synced.Load() != 1 {
			t.Errorf("%d syncs after the pause, want 1", synced.Load())
		}
		p.Pause()
		<-time.After(time.Hour)
		p.Resume()
		<-time.After(time.Second)
		if synced.Load() != 2 {
			t.Errorf("%d syncs, want 2: a time that came during the pause counts once", synced.Load())
		}
		stop()
	})
}

func TestASyncThatEndsWellDuringAPauseIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced atomic.Int64
		p, _ := run(t, queue.Config{Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
			<-time.After(time.Second)
			synced.Add(1)
			return queue.Result{}, nil
		}})
		p.Add(key("a"), queue.Live)
		synctest.Wait()
		p.Pause()
		<-time.After(time.Minute)
		p.Resume()
		<-time.After(time.Minute)
		if synced.Load() != 1 {
			t.Errorf("%d syncs, want 1", synced.Load())
		}
	})
}

func TestTheParentThatFailsLongestStaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Value
		healthy.Store("")
		p, _ := run(t, queue.Config{Workers: 1, Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
			if healthy.Load() == k.Name {
				return queue.Result{}, nil
			}
			return queue.Result{}, errors.New(k.Name + " is broken")
		}})
		want := func(name string) {
			t.Helper()
			synctest.Wait()
			first, _ := p.LongestFailing(func(queue.Failed) bool { return false })
			if first.Key.Name != name || first.Err != nil && first.Err.Error() != name+" is broken" {
				t.Errorf("%v fails longest with %v, want %q", first.Key, first.Err, name)
			}
		}
		want("")
		for _, name := range []string{"a", "b", "c"} {
			p.Add(key(name), queue.Live)
			<-time.After(time.Second)
		}
		for range 20 { // Retries, of which each is the latest once.
			want("a")
			<-time.After(time.Second)
		}
		healthy.Store("a")
		p.Add(key("a"), queue.Live)
		<-time.After(time.Second)
		want("b")
		healthy.Store("")
		p.Add(key("a"), queue.Live)
		<-time.After(time.Second)
		want("b")
		p.Forget(key("b"))
		want("c")
	})
}
