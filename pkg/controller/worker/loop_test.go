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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
)

type later struct{ after time.Duration }

func (l later) Error() string             { return "too many requests" }
func (l later) RetryAfter() time.Duration { return l.after }

func key(name string) parent.Key {
	return parent.Key{Resource: schema.GroupResource{Group: "example.com", Resource: "things"}, Namespace: "ns", Name: name}
}

// run runs a loop until the test ends.
func run(t *testing.T, c worker.Config) (*worker.Loop, *worker.Counters, *sync.Map) {
	t.Helper()
	counters, reported := &worker.Counters{}, &sync.Map{}
	c.Name, c.Counters = t.Name(), counters
	if c.Workers == 0 {
		c.Workers = 2
	}
	c.Failed = func(k parent.Key, err error) { reported.Store(k, err) }
	l := worker.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return l, counters, reported
}

func TestAnErrorIsRetriedByItsKind(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
	for name, tc := range map[string]struct {
		reason   string
		err      error
		reported bool
	}{
		"PlainErrorIsReported":       {"A user must see what failed.", errors.New("boom"), true},
		"WaitingIsSilent":            {"Nobody can do anything about a cache that fills.", fmt.Errorf("syncing: %w", &worker.WaitError{For: "a cache"}), false},
		"ConflictIsSilent":           {"The next sync sees what the other writer wrote.", fmt.Errorf("writing: %w", conflict), false},
		"ConflictsJoinedAreSilent":   {"Several conflicts are still conflicts.", errors.Join(conflict, conflict), false},
		"ConflictWithFailureIsLoud":  {"A conflict must not hide a failure beside it.", errors.Join(conflict, errors.New("boom")), true},
		"PostponedByTheHookIsSilent": {"A hook that asks for patience has not failed.", fmt.Errorf("calling: %w", later{time.Millisecond}), false},
		"PostponedWithoutTimeBacksOff": {
			"Without a time there is backoff, not a hot loop (docs/reference/contract.md#s18.2).", later{0}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			again := make(chan struct{})
			l, counters, reported := run(t, worker.Config{Sync: func(context.Context, parent.Key) (worker.Result, error) {
				switch calls.Add(1) {
				case 1:
					return worker.Result{}, tc.err
				case 2:
					close(again)
				}
				return worker.Result{}, nil
			}})
			l.Enqueue(key("a"), workqueue.Live)
			<-again
			if _, got := reported.Load(key("a")); got != tc.reported {
				t.Errorf("reported = %v, want %v: %s", got, tc.reported, tc.reason)
			}
			if got := counters.Failed.Load() == 1; got != tc.reported {
				t.Errorf("failed syncs = %d: %s", counters.Failed.Load(), tc.reason)
			}
		})
	}
}

func TestAPanicStopsNothing(t *testing.T) {
	var calls atomic.Int32
	done := make(chan struct{})
	l, _, reported := run(t, worker.Config{Workers: 1, Sync: func(_ context.Context, k parent.Key) (worker.Result, error) {
		if k == key("bad") && calls.Add(1) == 1 {
			panic(k)
		}
		if k == key("good") {
			close(done)
		}
		return worker.Result{}, nil
	}})
	l.Enqueue(key("bad"), workqueue.Live)
	l.Enqueue(key("good"), workqueue.Live)
	<-done
	if _, ok := reported.Load(key("bad")); !ok {
		t.Error("a panic of one parent's sync was not reported")
	}
}

func TestAKeyIsHeldBackUntilItsWritesAreSeen(t *testing.T) {
	var wake atomic.Pointer[func()]
	asked, synced := make(chan struct{}), make(chan struct{})
	l, _, _ := run(t, worker.Config{
		Ready: func(_ parent.Key, w func()) bool {
			if wake.CompareAndSwap(nil, &w) {
				close(asked)
				return false
			}
			return true
		},
		Sync: func(context.Context, parent.Key) (worker.Result, error) {
			close(synced)
			return worker.Result{}, nil
		},
	})
	l.Enqueue(key("a"), workqueue.Live)
	<-asked
	select {
	case <-synced:
		t.Fatal("the key was synced before its writes were seen")
	default:
	}
	(*wake.Load())()
	<-synced
}

func TestResyncAfterSyncsAgain(t *testing.T) {
	var calls atomic.Int32
	again := make(chan struct{})
	l, _, _ := run(t, worker.Config{Sync: func(context.Context, parent.Key) (worker.Result, error) {
		if calls.Add(1) == 2 {
			close(again)
			return worker.Result{}, nil
		}
		return worker.Result{ResyncAfter: time.Millisecond}, nil
	}})
	l.Enqueue(key("a"), workqueue.Live)
	<-again
}

func TestASyncUnderWayIsNotInterruptedAtTheEnd(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var interrupted atomic.Bool
	l := worker.New(worker.Config{
		Name: t.Name(), Workers: 1, Counters: &worker.Counters{}, Failed: func(parent.Key, error) {}, Grace: time.Hour,
		Sync: func(ctx context.Context, _ parent.Key) (worker.Result, error) {
			close(started)
			<-release
			interrupted.Store(ctx.Err() != nil)
			return worker.Result{}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	l.Enqueue(key("a"), workqueue.Live)
	<-started
	cancel()
	close(release)
	<-ended
	if interrupted.Load() {
		t.Error("the sync was interrupted although it had time left")
	}
}
