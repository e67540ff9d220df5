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

package worker_test

import (
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
	testclock "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

type later struct{ after time.Duration }

func (l later) Error() string             { return "too many requests" }
func (l later) RetryAfter() time.Duration { return l.after }

func key(name string) parent.Key {
	return parent.NewKey(schema.GroupResource{Group: "example.com", Resource: "things"}, "ns", name)
}

// run runs a pool until the test ends.
func run(t *testing.T, c worker.Config) (*worker.Pool, *sync.Map) {
	t.Helper()
	reported := &sync.Map{}
	if c.Workers == 0 {
		c.Workers = 2
	}
	c.Failed = func(_ context.Context, k parent.Key, err error) { reported.Store(k, err) }
	p := worker.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return p, reported
}

func TestAnErrorIsRetriedByItsKind(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("not allowed"))
	for name, tc := range map[string]struct {
		reason   string
		err      error
		reported bool
	}{
		"PlainErrorIsReported":      {"A user must see what failed.", errors.New("boom"), true},
		"WaitingIsSilent":           {"A cache that fills is no failure.", fmt.Errorf("syncing: %w", &worker.WaitError{For: "a cache"}), false},
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
			"Nor a cache that fills.", errors.Join(&worker.WaitError{For: "a cache"}, refused), true,
		},
		"PostponedByTheHookIsSilent": {"A hook that asks for patience has not failed.", fmt.Errorf("calling: %w", later{time.Millisecond}), false},
		"PostponedWithoutTimeBacksOff": {
			"Without a time there is backoff, not a hot loop (docs/reference/contract.md#s18.2).", later{0}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			again := make(chan struct{})
			p, reported := run(t, worker.Config{Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
				switch calls.Add(1) {
				case 1:
					return worker.Result{}, tc.err
				case 2:
					close(again)
				}
				return worker.Result{}, nil
			}})
			p.Enqueue(key("a"), worker.Live)
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
	p, reported := run(t, worker.Config{Workers: 1, Sync: func(_ context.Context, k parent.Key, _ trigger.Begun) (worker.Result, error) {
		if k == key("bad") && calls.Add(1) == 1 {
			panic(k)
		}
		if k == key("good") {
			close(done)
		}
		return worker.Result{}, nil
	}})
	p.Enqueue(key("bad"), worker.Live)
	p.Enqueue(key("good"), worker.Live)
	<-done
	if _, ok := reported.Load(key("bad")); !ok {
		t.Error("a panic of one parent's sync was not reported")
	}
}

// TestAWorkerGoesOnWithTheSyncThatFollows has a sync ask for another one of its parent, before the one of another parent that waits.
func TestAWorkerGoesOnWithTheSyncThatFollows(t *testing.T) {
	var order []string
	done := make(chan struct{})
	var p *worker.Pool
	next := func(_ context.Context, k parent.Key, why trigger.Begun) (worker.Result, error) {
		order = append(order, "next "+k.Name)
		if n := len(why.Triggers.Kept()); n != 1 {
			t.Errorf("the sync that follows has %d triggers", n)
		}
		return worker.Result{}, errors.New("boom")
	}
	built := make(chan struct{})
	p, reported := run(t, worker.Config{Workers: 1, Triggers: true, Sync: func(_ context.Context, k parent.Key, _ trigger.Begun) (worker.Result, error) {
		<-built
		if order = append(order, k.Name); k == key("b") {
			close(done)
		}
		if k != key("a") || len(order) > 1 {
			return worker.Result{}, nil
		}
		if _, ok := p.GoOn(k); ok {
			t.Error("it goes on although nothing asks for it")
		}
		p.Enqueue(key("b"), worker.Live)
		p.EnqueueBecause(k, worker.Live, trigger.Of(v1alpha1.SyncChildChanged))
		why, _ := p.GoOn(k)
		return worker.Result{Next: next, Why: why}, nil
	}})
	p.Enqueue(key("a"), worker.Live)
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
	p, _ := run(t, worker.Config{
		Workers: 1,
		Ready: func(parent.Key) bool {
			if panicked.CompareAndSwap(false, true) {
				panic("not ready at all")
			}
			return true
		},
		Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
			close(done)
			return worker.Result{}, nil
		},
	})
	p.Enqueue(key("bad"), worker.Live)
	p.Enqueue(key("good"), worker.Live)
	<-done
}

func TestAKeyIsHeldBackUntilItIsReleased(t *testing.T) {
	var ready atomic.Bool
	held, synced := make(chan struct{}, 1), make(chan struct{})
	p, _ := run(t, worker.Config{
		Ready: func(parent.Key) bool {
			if !ready.Load() {
				held <- struct{}{}
			}
			return ready.Load()
		},
		Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
			close(synced)
			return worker.Result{}, nil
		},
	})
	p.Enqueue(key("a"), worker.Live)
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

func TestResyncAfterSyncsAgain(t *testing.T) {
	var calls atomic.Int32
	again := make(chan struct{})
	p, _ := run(t, worker.Config{Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
		if calls.Add(1) == 2 {
			close(again)
			return worker.Result{}, nil
		}
		return worker.Result{ResyncAfter: time.Millisecond}, nil
	}})
	p.Enqueue(key("a"), worker.Live)
	<-again
}

func TestASyncUnderWayIsNotInterruptedAtTheEnd(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var interrupted atomic.Bool
	p := worker.New(worker.Config{
		Workers: 1, Failed: func(context.Context, parent.Key, error) {}, Grace: time.Hour,
		Sync: func(ctx context.Context, _ parent.Key, _ trigger.Begun) (worker.Result, error) {
			close(started)
			<-release
			interrupted.Store(ctx.Err() != nil)
			return worker.Result{}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	p.Enqueue(key("a"), worker.Live)
	<-started
	cancel()
	close(release)
	<-ended
	if interrupted.Load() {
		t.Error("the sync was interrupted although it had time left")
	}
}

func TestOnlyMatchingErrorsAreRetried(t *testing.T) {
	errUnresolved, errBroken := errors.New("kind is not served"), errors.New("broken")
	var mu sync.Mutex
	calls := map[string]int{}
	failing := make(chan string, 100)
	p := worker.New(worker.Config{
		Workers: 1, Clock: testclock.NewFakeClock(time.Now()),
		Sync: func(_ context.Context, k parent.Key, _ trigger.Begun) (worker.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[k.Name]++
			if k.Name == "unresolved" {
				return worker.Result{}, fmt.Errorf("syncing: %w", errUnresolved)
			}
			return worker.Result{}, errBroken
		},
		Failed: func(_ context.Context, k parent.Key, _ error) { failing <- k.Name },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	defer running.Wait()
	defer cancel()
	// One worker syncs in this order, so that none of the former two is under way when the last one is.
	for _, name := range []string{"broken", "unresolved", "last"} {
		p.Enqueue(key(name), worker.Live)
		<-failing
	}
	p.RetryFailed(func(err error) bool { return errors.Is(err, errUnresolved) })
	for name := ""; name != "unresolved"; {
		name = <-failing
	}
	mu.Lock()
	defer mu.Unlock()
	if calls["unresolved"] != 2 || calls["broken"] != 1 {
		t.Errorf("syncs: %v; want another one of the unresolved alone", calls)
	}
}

func TestMetricsShowWhatAPoolDoes(t *testing.T) {
	m := metrics.NewController("CompositeController", "pool-test")
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("not allowed"))
	stuck, release := make(chan struct{}), make(chan struct{})
	p, _ := run(t, worker.Config{
		Metrics: m,
		Ready:   func(k parent.Key) bool { return k.Name != "held" },
		Sync: func(_ context.Context, k parent.Key, _ trigger.Begun) (worker.Result, error) {
			switch k.Name {
			case "stuck":
				close(stuck)
				<-release
			case "refused":
				return worker.Result{}, refused
			case "postponed":
				return worker.Result{}, later{time.Hour}
			}
			return worker.Result{ResyncAfter: time.Hour}, nil
		},
	})
	m.CountParents(func() int { return 10 })
	for _, name := range []string{"fine", "held", "refused", "postponed", "stuck"} {
		p.Enqueue(key(name), worker.Live)
	}
	<-stuck
	want := map[string]float64{
		`metacontroller_syncs_total{controller="CompositeController-pool-test",result="success"}`:      1,
		`metacontroller_syncs_total{controller="CompositeController-pool-test",result="postponed"}`:    1,
		`metacontroller_parents{controller="CompositeController-pool-test",state="failing"}`:           1,
		`metacontroller_parents{controller="CompositeController-pool-test",state="postponed"}`:         1,
		`metacontroller_parents{controller="CompositeController-pool-test",state="ready"}`:             8,
		`metacontroller_workqueue_keys{controller="CompositeController-pool-test",state="held"}`:       1,
		`metacontroller_workqueue_keys{controller="CompositeController-pool-test",state="processing"}`: 1,
		`metacontroller_workqueue_keys{controller="CompositeController-pool-test",state="scheduled"}`:  1,
		`workqueue_depth{name="CompositeController-pool-test"}`:                                        0,
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
	if got[`metacontroller_sync_errors_total{controller="CompositeController-pool-test",reason="Forbidden"}`] < 1 {
		t.Error("the error is not counted by its reason")
	}
	if got[`workqueue_unfinished_work_seconds{name="CompositeController-pool-test"}`] <= 0 {
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
			p, reported := run(t, worker.Config{Workers: 1, Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
				if calls.Add(1) == 10 {
					close(enough)
				}
				return worker.Result{}, fmt.Errorf("writing: %w", tc.err)
			}})
			p.Enqueue(key("a"), worker.Live)
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
				p, _ := run(t, worker.Config{Workers: 1, Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
					switch calls++; {
					case calls < failures:
						return worker.Result{}, errors.New("boom")
					case calls == failures:
						close(failed)
						return worker.Result{}, errors.New("boom")
					case calls == failures+1:
						return worker.Result{}, fmt.Errorf("writing: %w", tc.err)
					}
					close(again)
					return worker.Result{}, nil
				}})
				p.Enqueue(key("a"), worker.Live)
				<-failed
				p.Enqueue(key("a"), worker.Live)
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
			c := testclock.NewFakeClock(time.Now())
			begun, ended, synced := make(chan int, 10), make(chan int, 10), make(chan struct{}, 10)
			var calls atomic.Int32
			p, _ := run(t, worker.Config{Clock: c, Sync: func(context.Context, parent.Key, trigger.Begun) (worker.Result, error) {
				n := int(calls.Add(1))
				defer func() { synced <- struct{}{} }()
				if !tc.syncs[min(n, len(tc.syncs))-1] {
					return worker.Result{}, nil
				}
				return worker.Result{}, &worker.WaitError{For: "an informer", Done: func(ctx context.Context) bool {
					begun <- n
					<-ctx.Done()
					ended <- n
					return false
				}}
			}})
			for n, waits := range tc.syncs {
				p.Enqueue(key("a"), worker.Live)
				<-synced
				if !waits {
					continue
				}
				select {
				case <-begun:
				case <-time.After(10 * time.Second):
					t.Fatalf("sync %d does not wait. %s", n+1, tc.reason)
				}
			}
			if tc.forget {
				p.Forget(key("a"))
			}
			for n := range tc.ended {
				select {
				case <-ended:
				case <-time.After(10 * time.Second):
					t.Fatalf("only %d waits ended. %s", n, tc.reason)
				}
			}
		})
	}
}
