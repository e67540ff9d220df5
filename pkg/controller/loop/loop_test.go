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

package loop_test

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

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loop"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

type later struct{ after time.Duration }

func (l later) Error() string             { return "too many requests" }
func (l later) RetryAfter() time.Duration { return l.after }

func key(name string) loop.Key {
	return loop.Key{Resource: schema.GroupResource{Group: "example.com", Resource: "things"}, Namespace: "ns", Name: name}
}

// run runs a loop until the test ends.
func run(t *testing.T, c loop.Config) (*loop.Loop, *loop.Counters, *sync.Map) {
	t.Helper()
	counters, reported := &loop.Counters{}, &sync.Map{}
	c.Name, c.Counters = t.Name(), counters
	if c.Workers == 0 {
		c.Workers = 2
	}
	c.Failed = func(k loop.Key, err error) { reported.Store(k, err) }
	l := loop.New(c)
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
		"WaitingIsSilent":            {"Nobody can do anything about a cache that fills.", fmt.Errorf("syncing: %w", &loop.WaitError{For: "a cache"}), false},
		"ConflictIsSilent":           {"The next sync sees what the other writer wrote.", fmt.Errorf("writing: %w", conflict), false},
		"ConflictsJoinedAreSilent":   {"Several conflicts are still conflicts.", errors.Join(conflict, conflict), false},
		"ConflictWithFailureIsLoud":  {"A conflict must not hide a failure beside it.", errors.Join(conflict, errors.New("boom")), true},
		"PostponedByTheHookIsSilent": {"A hook that asks for patience has not failed.", fmt.Errorf("calling: %w", later{time.Millisecond}), false},
		"PostponedWithoutTimeBacksOff": {
			"Without a time there is backoff, not a hot loop (contract §18.2 [Q]).", later{0}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			again := make(chan struct{})
			l, counters, reported := run(t, loop.Config{Sync: func(context.Context, loop.Key) (loop.Result, error) {
				switch calls.Add(1) {
				case 1:
					return loop.Result{}, tc.err
				case 2:
					close(again)
				}
				return loop.Result{}, nil
			}})
			l.Enqueue(key("a"), queue.Live)
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
	l, _, reported := run(t, loop.Config{Workers: 1, Sync: func(_ context.Context, k loop.Key) (loop.Result, error) {
		if k == key("bad") && calls.Add(1) == 1 {
			panic(k)
		}
		if k == key("good") {
			close(done)
		}
		return loop.Result{}, nil
	}})
	l.Enqueue(key("bad"), queue.Live)
	l.Enqueue(key("good"), queue.Live)
	<-done
	if _, ok := reported.Load(key("bad")); !ok {
		t.Error("a panic of one parent's sync was not reported")
	}
}

func TestAKeyIsHeldBackUntilItsWritesAreSeen(t *testing.T) {
	var wake atomic.Pointer[func()]
	asked, synced := make(chan struct{}), make(chan struct{})
	l, _, _ := run(t, loop.Config{
		Ready: func(_ loop.Key, w func()) bool {
			if wake.CompareAndSwap(nil, &w) {
				close(asked)
				return false
			}
			return true
		},
		Sync: func(context.Context, loop.Key) (loop.Result, error) {
			close(synced)
			return loop.Result{}, nil
		},
	})
	l.Enqueue(key("a"), queue.Live)
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
	l, _, _ := run(t, loop.Config{Sync: func(context.Context, loop.Key) (loop.Result, error) {
		if calls.Add(1) == 2 {
			close(again)
			return loop.Result{}, nil
		}
		return loop.Result{ResyncAfter: time.Millisecond}, nil
	}})
	l.Enqueue(key("a"), queue.Live)
	<-again
}

func TestASyncUnderWayIsNotInterruptedAtTheEnd(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var interrupted atomic.Bool
	l := loop.New(loop.Config{
		Name: t.Name(), Workers: 1, Counters: &loop.Counters{}, Failed: func(loop.Key, error) {}, Grace: time.Hour,
		Sync: func(ctx context.Context, _ loop.Key) (loop.Result, error) {
			close(started)
			<-release
			interrupted.Store(ctx.Err() != nil)
			return loop.Result{}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	l.Enqueue(key("a"), queue.Live)
	<-started
	cancel()
	close(release)
	<-ended
	if interrupted.Load() {
		t.Error("the sync was interrupted although it had time left")
	}
}
