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

package reconciler_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

const (
	// ours is the finalizer of the controller of a scene.
	ours = `"metacontroller.io/compositecontroller-c"`
	// theirs is that of somebody else.
	theirs = `"example.com/theirs"`
)

// finalizes gives a controller a sync and a finalize hook.
func finalizes(c *reconciler.Config) {
	both := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/hook")}}
	c.Definition = reconciler.OfComposite(&v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec:       v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Sync: both, Finalize: both}},
	})
}

// unfinished is a finalize hook that never says that a parent is finalized. A broken one says nothing.
type unfinished struct {
	calls  atomic.Int32
	broken atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (u *unfinished) RoundTrip(r *http.Request) (*http.Response, error) {
	u.calls.Add(1)
	if u.broken.Load() {
		return nil, errors.New("nobody listens")
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"children":[],"finalized":false}`)),
	}, nil
}

// TestAParentWaitsForTheFinalizeHookWhileItHasOurFinalizer looks at a parent in deletion for which the finalize hook has been called for long.
func TestAParentWaitsForTheFinalizeHookWhileItHasOurFinalizer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// before and now are the finalizers of the parent at first and later.
		before, now string
		// broken says that the hook fails meanwhile.
		broken bool
		waits  int
	}{
		"ours":                         {"It stays until the hook says so.", ours, ours, false, 1},
		"ours and another":             {"Neither of them lets it go.", ours + "," + theirs, ours + "," + theirs, false, 1},
		"ours, and the hook fails":     {"It stays all the same.", ours, ours, true, 1},
		"another":                      {"It was deleted before the controller came, whose finalizer it never gets.", theirs, theirs, false, 0},
		"ours is taken off":            {"A user has let it go without the hook.", ours + "," + theirs, theirs, false, 0},
		"ours, because the hook fails": {"Nor does he have to wait for the hook.", ours + "," + theirs, theirs, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hook := newSceneWith(t, &rest.Config{Host: "http://api", Transport: &apiServer{}}), &unfinished{}
				s.shared.Options.HookTransport = hook
				deleted := func(version int, finalizers string) *object.Object {
					return thing(t, "a", version, `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[`+finalizers+`]`, "")
				}
				s.exist(deleted(1, tc.before))
				k := &kind{}
				c := s.start(k, func(c *reconciler.Config) {
					c.Kind = calling{k}
					finalizes(c)
				})
				<-time.After(time.Second)
				hook.broken.Store(tc.broken)
				s.update(s.things, deleted(2, tc.now))
				<-time.After(5 * time.Minute)
				synctest.Wait()
				if calls := hook.calls.Load(); calls < 2 {
					t.Errorf("the hook was called %d times, want a call for each state of the parent", calls)
				}
				if n := c.Health().Finalizing; n != tc.waits {
					t.Errorf("%d parents wait for the finalize hook, want %d. %s", n, tc.waits, tc.reason)
				}
			})
		})
	}
}

// TestAParentThatWaitsForTheFinalizeHookDoesSoStillWithMoreRights has the service account of a controller get a right.
func TestAParentThatWaitsForTheFinalizeHookDoesSoStillWithMoreRights(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		released bool
		calls    int32
		waits    int
	}{
		"while it works":      {"The hook was called all the time.", false, 0, 1},
		"the end of its hold": {"The hook was not called, perhaps. It is called now, and has its time.", true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hook := newSceneWith(t, &rest.Config{Host: "http://api", Transport: &apiServer{}}), &unfinished{}
				s.shared.Options.HookTransport = hook
				s.exist(thing(t, "a", 1, `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["metacontroller.io/compositecontroller-c"]`, ""))
				k := &kind{}
				c := s.start(k, func(c *reconciler.Config) {
					c.Kind = calling{k}
					finalizes(c)
				})
				<-time.After(5 * time.Minute)
				if n := c.Health().Finalizing; n != 1 {
					t.Fatalf("%d parents wait for the finalize hook, want 1", n)
				}
				before := hook.calls.Load()
				c.Permitted(tc.released)
				synctest.Wait()
				if calls, n := hook.calls.Load()-before, c.Health().Finalizing; calls != tc.calls || n != tc.waits {
					t.Errorf("%d calls, and %d parents wait for long; want %d and %d. %s", calls, n, tc.calls, tc.waits, tc.reason)
				}
				<-time.After(2 * time.Minute)
				if n := c.Health().Finalizing; n != 1 {
					t.Errorf("two minutes later, %d parents wait for the finalize hook, want 1", n)
				}
			})
		})
	}
}

// TestAParentThatIsNotFinalizedIsToldByWhoTakesTheFinalizerOff has a parent in deletion whose controller has lost its finalize hook. The
// instance that is built then may see the parent before who takes the finalizer off all of them.
func TestAParentThatIsNotFinalizedIsToldByWhoTakesTheFinalizerOff(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata string
		told     bool
	}{
		"in deletion": {`,"deletionTimestamp":"2026-01-01T00:00:00Z"`, true},
		"alive":       {``, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var released, told atomic.Bool
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
					switch {
					case r.Method == http.MethodPatch:
						released.Store(true)
						return http.StatusOK, string(thing(t, "a", 2, tc.metadata, "").JSON())
					case strings.Contains(r.URL.Path, "/events"):
						body, _ := io.ReadAll(r.Body)
						if strings.Contains(string(body), "FinalizeSkipped") {
							told.Store(true)
						}
						return http.StatusOK, string(body)
					}
					return http.StatusOK, `{}`
				})})
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { s.shared.Recorder.Run(ctx) })
				s.exist(thing(t, "a", 1, tc.metadata+`,"finalizers":[`+ours+`,`+theirs+`]`, ""))
				s.start(&kind{}, nil)
				<-time.After(time.Minute)
				if !released.Load() || told.Load() != tc.told {
					t.Errorf("released %t, told %t, want %t", released.Load(), told.Load(), tc.told)
				}
				stop()
				running.Wait()
			})
		})
	}
}

// TestAParentThatIsNotSelectedStaysWhileItsChildrenCannotBeSeen has the finalize hook say that a parent is finalized, of which it is shown no
// children because their kind is not served.
func TestAParentThatIsNotSelectedStaysWhileItsChildrenCannotBeSeen(t *testing.T) {
	const deselected, deleted = `,"labels":{"out":""}`, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	gadgets := v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "gadgets"}
	for name, tc := range map[string]struct {
		reason   string
		metadata string
		declared []v1alpha1.ResourceRule
		missing  v1alpha1.ResourceRule
		stays    bool
	}{
		"not selected":                   {"Nobody would delete them.", deselected, []v1alpha1.ResourceRule{gadgets}, gadgets, true},
		"not selected, and in deletion":  {"The garbage collector does.", deselected + deleted, []v1alpha1.ResourceRule{gadgets}, gadgets, false},
		"not selected, and no such kind": {"There can be none.", deselected, nil, gadgets, false},
		"not selected, and another version": {
			"They are shown in that.", deselected,
			[]v1alpha1.ResourceRule{{APIVersion: "example.com/v2", Resource: "widgets"}},
			v1alpha1.ResourceRule{APIVersion: "example.com/v2", Resource: "widgets"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var released atomic.Bool
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
					if r.Method == http.MethodPatch {
						released.Store(true)
						return http.StatusOK, string(thing(t, "a", 2, tc.metadata, "").JSON())
					}
					return http.StatusOK, `{}`
				})})
				s.exist(thing(t, "a", 1, tc.metadata+`,"finalizers":[`+ours+`]`, ""))
				c := s.start(&kind{
					decide: func(sync *reconciler.Sync) error {
						sync.Decision = reconciler.Decision{Settled: true, Finalized: true}
						return nil
					},
					apply: func(ctx context.Context, sync *reconciler.Sync) error {
						err := sync.ReconcileChildren(ctx, "children")
						if sync.OptsOut() {
							err = errors.Join(err, sync.PutOffFinalizer())
						}
						if sync.Decision.Finalized {
							err = errors.Join(err, sync.RemoveFinalizer(ctx))
						}
						return err
					},
				}, func(c *reconciler.Config) {
					c.Definition.Finalize, c.Definition.Children = c.Definition.Sync, tc.declared
					c.Missing = []v1alpha1.ResourceRule{tc.missing}
				})
				<-time.After(time.Minute)
				synctest.Wait()
				told := ""
				for _, e := range c.LastErrors() {
					told += e.Message
				}
				if said := strings.Contains(told, "does not serve gadgets in example.com/v1"); released.Load() == tc.stays || said != tc.stays {
					t.Errorf("released %t, told %q, want it to stay: %t. %s", released.Load(), told, tc.stays, tc.reason)
				}
			})
		})
	}
}

// flaky fails the first write, and returns the parent with the finalizer for all that follow.
type flaky struct{ writes atomic.Int32 }

// RoundTrip implements http.RoundTripper.
func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`
	if r.Method == http.MethodPatch && f.writes.Add(1) > 1 {
		response.StatusCode = http.StatusOK
		body = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"uid-a","resourceVersion":"3","finalizers":[` + ours + `]}}`
	}
	response.Body = io.NopCloser(strings.NewReader(body))
	return response, nil
}

// Without it the parent could be deleted, and the finalize hook not be asked.
func TestAFinalizerThatIsTakenOffComesBackSoonHoweverLongSyncsHaveFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &flaky{}
		s := newSceneWith(t, &rest.Config{Host: "http://api", Transport: api})
		s.exist(thing(t, "a", 1, `,"finalizers":[`+ours+`]`, ""))
		s.start(&kind{write: func(*reconciler.Sync) error { return errors.New("a child cannot be written") }}, finalizes)
		<-time.After(70 * time.Minute) // No resync is due.
		s.update(s.things, thing(t, "a", 2, "", ""))
		<-time.After(5 * time.Second)
		synctest.Wait()
		if writes := api.writes.Load(); writes != 2 {
			t.Errorf("it was written %d times, want once that fails and once more", writes)
		}
	})
}

// TestAFinalizerThatIsTakenOffAgainAndAgainIsPutOnAgainFromTimeToTime has another client replace the parent as soon as it has our finalizer, with
// what it has made without looking.
func TestAFinalizerThatIsTakenOffAgainAndAgainIsPutOnAgainFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version, writes atomic.Int64
		version.Store(1)
		s := newSceneWith(t, &rest.Config{Host: "http://api", Transport: transport(func(r *http.Request) (int, string) {
			if r.Method != http.MethodPatch {
				return http.StatusOK, `{}`
			}
			writes.Add(1)
			return http.StatusOK, string(thing(t, "a", int(version.Add(1)), `,"finalizers":[`+ours+`]`, "").JSON())
		})})
		s.exist(thing(t, "a", 1, "", ""))
		c := s.start(&kind{}, finalizes)
		synctest.Wait()
		meddle := func(times int, pause time.Duration) int64 {
			before := writes.Load()
			for range times {
				s.update(s.things, thing(t, "a", int(version.Add(1)), "", ""))
				<-time.After(pause)
			}
			synctest.Wait()
			return writes.Load() - before
		}
		if n := meddle(5, time.Second); n != 5 {
			t.Errorf("it was put on %d times after it was taken off 5 times", n)
		}
		if n, h := meddle(200, 100*time.Millisecond), c.Health(); n < 5 || n > 12 || h.ChangedBack != 1 || !strings.Contains(h.ChangedBackAt, "metadata.finalizers keeps changing back") {
			t.Errorf("it was put on %d times within 20 seconds, of which %d parents are told: %s", n, h.ChangedBack, h.ChangedBackAt)
		}
		<-time.After(2 * time.Minute)
		if n, h := meddle(1, time.Second), c.Health(); n != 1 || h.ChangedBack != 0 {
			t.Errorf("after a while it was put on %d times, and %d parents are told of", n, h.ChangedBack)
		}
	})
}
