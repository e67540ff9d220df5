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

package barrier_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/barrier"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const parent = types.UID("parent")

// scene is a barrier that observes an informer which shows what the test feeds it.
type scene struct {
	*barrier.Barrier

	t        *testing.T
	clock    *clocktesting.FakeClock
	informer *cache.Informer
	cancel   func()
	woken    chan struct{}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	c, err := cache.New(cache.Options{Config: &rest.Config{Host: "example.invalid"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), woken: make(chan struct{}, 10)}
	s.Barrier = barrier.New(s.clock)
	// The cache does not run, so nobody else feeds the informer.
	s.informer = c.Acquire(cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
	s.cancel = s.Observe(s.informer)
	return s
}

func (s *scene) show(name, uid, version, more string) {
	s.t.Helper()
	if err := s.informer.Update(s.parse(name, uid, version, more)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) parse(name, uid, version, more string) *object.Object {
	s.t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q,"resourceVersion":%q%s}}`, name, uid, version, more), object.ParseOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *scene) ready() bool { return s.Ready(parent, func() { s.woken <- struct{}{} }) }

func (s *scene) expect(reason string, ready bool, wakes int) {
	s.t.Helper()
	if got := len(s.woken); got != wakes {
		s.t.Errorf("%s: woken %d times, want %d", reason, got, wakes)
	}
	for len(s.woken) > 0 {
		<-s.woken
	}
	if got := s.ready(); got != ready {
		s.t.Errorf("%s: ready is %v, want %v", reason, got, ready)
	}
}

func TestAParentWaitsForAllItsWrites(t *testing.T) {
	s := newScene(t)
	s.expect("nothing was written", true, 0)
	s.Wrote(parent, s.informer, "12")
	s.Wrote(parent, s.informer, "10")
	s.expect("both are missing", false, 0)
	s.show("a", "u1", "10", "")
	s.expect("one is missing", false, 0)
	if !s.Ready("other", nil) {
		t.Error("another parent waits too")
	}
	if err := s.informer.Bookmark("15"); err != nil {
		t.Fatal(err)
	}
	s.expect("a bookmark tells that the other is older", true, 1)
	s.Wrote(parent, s.informer, "14")
	s.expect("the cache is further already", true, 0)
	s.Wrote(parent, s.informer, "not-a-number")
	s.expect("such versions have no order", true, 0)
}

func TestAParentWaitsForItsDeletions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		shown  func(s *scene)
	}{
		"Gone": {"The object is not there any more.", func(s *scene) {
			o, _ := s.informer.Get("", "a")
			if err := s.informer.Delete(o); err != nil {
				s.t.Fatal(err)
			}
		}},
		"Deleting": {"A finalizer holds the object: waiting for its end would take too long.", func(s *scene) {
			s.show("a", "u1", "2", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`)
		}},
		"Replaced": {"Another object has the name.", func(s *scene) { s.show("a", "u2", "3", "") }},
		"Relisted": {"The watch was lost and the deletion with it.", func(s *scene) {
			if err := s.informer.Replace(nil, "5"); err != nil {
				s.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.show("a", "u1", "1", "")
			s.show("b", "u9", "1", "")
			s.Deleted(parent, s.informer, "", "a", "u1")
			s.expect("the cache shows the object", false, 0)
			tc.shown(s)
			s.expect(tc.reason, true, 1)
			s.Deleted(parent, s.informer, "", "a", "u1")
			s.expect("the cache shows it already", true, 0)
		})
	}
}

// TestAParentWaitsForItsOwnEnd is about the last finalizer: the API server answers with the version from before the write.
func TestAParentWaitsForItsOwnEnd(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	s := newScene(t)
	s.show("a", "u1", "3", deleting+`,"finalizers":["example.com/hold"]`)
	shown, _ := s.informer.Get("", "a")
	s.WroteObject(parent, s.informer, shown)
	s.expect("another finalizer is left, and the cache is as far", true, 0)
	written := s.parse("a", "u1", "3", deleting)
	s.WroteObject(parent, s.informer, written)
	s.expect("the cache has the object still", false, 0)
	s.show("a", "u1", "4", deleting+`,"finalizers":["example.com/hold"]`)
	s.expect("that it is being deleted was known before", false, 0)
	if err := s.informer.Delete(written); err != nil {
		t.Fatal(err)
	}
	s.expect("it is gone", true, 1)
	s.WroteObject(parent, s.informer, written)
	s.expect("the cache has it no more", true, 0)
}

func TestNobodyWaitsLongerThanTheLimit(t *testing.T) {
	s := newScene(t)
	s.show("a", "u1", "1", "")
	s.Wrote(parent, s.informer, "10")
	s.Deleted(parent, s.informer, "", "a", "u1")
	s.expect("just written", false, 0)
	s.clock.Step(barrier.Limit - time.Second)
	s.expect("before the limit", false, 0)
	s.clock.Step(time.Second)
	s.expect("after the limit", true, 1)
	s.Deleted(parent, s.informer, "", "a", "u1")
	s.expect("a further attempt counts anew", false, 0)
	s.show("a", "u1", "10", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`)
	s.expect("the further attempt is shown", true, 1)
}

func TestLagIsTheAgeOfTheOldestWriteThatIsNotShown(t *testing.T) {
	s := newScene(t)
	expect := func(reason string, want time.Duration) {
		t.Helper()
		if got := s.Lag(); got != want {
			t.Errorf("%s: lag %s, want %s", reason, got, want)
		}
	}
	expect("nothing was written", 0)
	s.Wrote(parent, s.informer, "10")
	s.clock.Step(time.Second)
	s.Wrote("other", s.informer, "12")
	s.clock.Step(time.Second)
	expect("the first write is the older one", 2*time.Second)
	s.show("a", "u1", "10", "")
	expect("the second is left", time.Second)
	s.clock.Step(barrier.Limit)
	s.Ready("other", nil)
	expect("the parent waits no more, but the cache is as far behind", time.Second+barrier.Limit)
	s.show("a", "u1", "12", "")
	expect("both are shown", 0)
}

func TestWhatIsNotObservedIsNotWaitedFor(t *testing.T) {
	s := newScene(t)
	again := s.Observe(s.informer)
	s.Wrote(parent, s.informer, "10")
	s.cancel()
	s.cancel()
	s.expect("another holder observes still", false, 0)
	again()
	s.expect("the last holder is gone", true, 1)
	s.Wrote(parent, s.informer, "11")
	s.expect("nobody observes", true, 0)
}

func TestAForgottenParentIsNotWoken(t *testing.T) {
	s := newScene(t)
	s.Wrote(parent, s.informer, "10")
	s.expect("just written", false, 0)
	s.Forget(parent)
	s.show("a", "u1", "10", "")
	s.expect("it was forgotten", true, 0)
}

// TestAWriteShownBeforeItIsNotedIsNotWaitedFor goes the whole way: the watch may be faster than the answer to the write.
func TestAWriteShownBeforeItIsNotedIsNotWaitedFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"20"},"items":[]}`))
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := cache.New(cache.Options{Config: &rest.Config{Host: server.URL, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	informer := c.Acquire(cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
	defer informer.Release()
	b := barrier.New(nil)
	woken := make(chan struct{})
	defer b.Observe(informer)()
	b.Wrote(parent, informer, "20")
	if !b.Ready(parent, func() { close(woken) }) {
		<-woken
	}
	if !b.Ready(parent, nil) {
		t.Error("not ready after the cache showed the write")
	}
}
