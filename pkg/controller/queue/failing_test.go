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
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

func TestFailingParentsAreKnownUntilTheySyncAgainOrLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Retries sync at any time, beside the test.
		var mu sync.Mutex
		broken, recovered := map[parent.Key]bool{}, map[parent.Key]int{}
		breaks := func(k parent.Key, is bool) {
			mu.Lock()
			defer mu.Unlock()
			broken[k] = is
		}
		p, _ := run(t, queue.Config{
			Workers: 1,
			Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				if broken[k] {
					return queue.Result{}, errors.New(k.Name + " is broken")
				}
				return queue.Result{}, nil
			},
			Recovered: func(k parent.Key) {
				mu.Lock()
				defer mu.Unlock()
				recovered[k]++
			},
		})
		syncOnce := func(k parent.Key) {
			p.Add(k, queue.Live)
			synctest.Wait()
			<-time.After(time.Second)
		}
		want := func(what string, failing int, names ...string) {
			t.Helper()
			var got []string
			for _, e := range p.Errors() {
				got = append(got, e.Key.Name)
				if e.Err.Error() != e.Key.Name+" is broken" || e.Time.IsZero() {
					t.Errorf("%s: the error of %s is %q at %s", what, e.Key, e.Err, e.Time)
				}
			}
			if p.Failing() != failing || fmt.Sprint(got) != fmt.Sprint(names) {
				t.Errorf("%s: %d fail, the errors are of %v; want %d and %v", what, p.Failing(), got, failing, names)
			}
		}
		want("at first", 0)
		var all []parent.Key
		for n := range 12 {
			all = append(all, key(fmt.Sprint("p", n)))
			breaks(all[n], true)
			syncOnce(all[n])
		}
		if p.Failing() != 12 || len(p.Errors()) != 10 {
			t.Errorf("%d fail, and there are %d errors; want 12 and 10", p.Failing(), len(p.Errors()))
		}
		for _, k := range all[1:] {
			breaks(k, false)
			syncOnce(k)
			if failing, errs := p.Failing(), p.Errors(); len(errs) != min(failing, 10) {
				t.Errorf("%d fail, and there are %d errors", failing, len(errs))
			}
		}
		syncOnce(all[0])
		want("when all but one are synced again", 1, "p0")
		p.Forget(all[0])
		want("when that one is gone", 0)
		for n, k := range all[1:] {
			if recovered[k] != 1 {
				t.Errorf("p%d recovered %d times", n+1, recovered[k])
			}
			syncOnce(k)
		}
		if recovered[all[1]] != 1 || recovered[all[0]] != 0 {
			t.Errorf("recoveries: %v", recovered)
		}
	})
}

func TestPendingKeysAreQueuedOrUnderWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p, _ := run(t, queue.Config{Workers: 1, Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
			<-hold
			return queue.Result{}, errors.New(k.Name)
		}})
		for _, name := range []string{"a", "b", "c"} {
			p.Add(key(name), queue.Live)
		}
		synctest.Wait()
		if got := p.Pending(); got != 3 {
			t.Errorf("%d pending, want 3", got)
		}
		close(hold)
		<-time.After(time.Hour)
		synctest.Wait()
		if got := p.Pending(); got != 0 {
			t.Errorf("%d pending while all wait for a retry", got)
		}
	})
}

func TestAParentThatIsAskedToWaitFailsNoMore(t *testing.T) {
	for name, then := range map[string]error{
		"postponed by its hook":    later{time.Hour},
		"waiting for an own write": &queue.WaitError{For: "it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var syncs atomic.Int64
				p, _ := run(t, queue.Config{Workers: 1, Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
					if syncs.Add(1) == 1 {
						return queue.Result{}, errors.New("broken")
					}
					return queue.Result{}, then
				}})
				p.Add(key("p"), queue.Live)
				synctest.Wait()
				if p.Failing() != 1 {
					t.Fatalf("%d parents fail after a failure", p.Failing())
				}
				p.Add(key("p"), queue.Live)
				synctest.Wait()
				if p.Failing() != 0 || len(p.Errors()) > 0 {
					t.Errorf("%d parents fail, with %v, after sync %d", p.Failing(), p.Errors(), syncs.Load())
				}
			})
		})
	}
}

// TestARecoveryIsToldWhateverCameBetween has a sync that has to wait between the one that fails and the one that succeeds.
func TestARecoveryIsToldWhateverCameBetween(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
	for name, tc := range map[string]struct {
		errs []error
		want int32
	}{
		"Nothing":             {[]error{errors.New("boom")}, 1},
		"AConflict":           {[]error{errors.New("boom"), conflict}, 1},
		"AWait":               {[]error{errors.New("boom"), &queue.WaitError{For: "a cache"}, conflict}, 1},
		"ARequestForTime":     {[]error{errors.New("boom"), later{time.Millisecond}}, 1},
		"FailedAgain":         {[]error{errors.New("boom"), conflict, errors.New("boom")}, 1},
		"NothingWasToldAtAll": {[]error{conflict, &queue.WaitError{For: "a cache"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var syncs, recovered atomic.Int32
				p, _ := run(t, queue.Config{
					Recovered: func(parent.Key) { recovered.Add(1) },
					Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
						if n := int(syncs.Add(1)); n <= len(tc.errs) {
							return queue.Result{}, tc.errs[n-1]
						}
						return queue.Result{}, nil
					},
				})
				p.Add(key("a"), queue.Live)
				<-time.After(time.Hour)
				synctest.Wait()
				p.Add(key("a"), queue.Live) // It is well already.
				synctest.Wait()
				if n := int(syncs.Load()); n != len(tc.errs)+2 || recovered.Load() != tc.want {
					t.Errorf("%d syncs, recovered %d times, want %d", n, recovered.Load(), tc.want)
				}
			})
		})
	}
}

// TestNothingIsToldOfAParentThatLeft has a parent fail and leave, and another one of its name succeed.
func TestNothingIsToldOfAParentThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs, recovered atomic.Int32
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))
		p, _ := run(t, queue.Config{
			Recovered: func(parent.Key) { recovered.Add(1) },
			Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
				switch syncs.Add(1) {
				case 1:
					return queue.Result{}, errors.New("boom")
				case 2:
					return queue.Result{}, conflict
				}
				return queue.Result{}, nil
			},
		})
		p.Add(key("a"), queue.Live)
		for range 100 { // Until the second sync.
			if synctest.Wait(); syncs.Load() == 2 {
				break
			}
			<-time.After(time.Millisecond)
		}
		if n := p.Conflicts(key("a")); n != 1 {
			t.Errorf("%d conflicts in a row, want 1: the failure before is none", n)
		}
		p.Forget(key("a"))
		p.Add(key("a"), queue.Live)
		<-time.After(time.Hour)
		if n := recovered.Load(); n != 0 || p.Conflicts(key("a")) != 0 {
			t.Errorf("told %d times, %d conflicts; the parent that failed is gone", n, p.Conflicts(key("a")))
		}
	})
}
