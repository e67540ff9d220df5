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

package expectations_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

var (
	pods    = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	secrets = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
)

// apiServer has one Pod, and refuses everything about other kinds. It counts the watches that are open.
type apiServer struct {
	mu   sync.Mutex
	open int
}

func (s *apiServer) count(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	return s.open
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/pods") {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not for you","code":403}`))
		return
	}
	if r.URL.Query().Get("watch") == "" {
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},` +
			`"items":[{"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"1"}}]}`))
		return
	}
	s.count(1)
	defer s.count(-1)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// run runs a cache until the test ends.
func run(t *testing.T) (*apiServer, *cache.Cache) {
	t.Helper()
	s := &apiServer{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := cache.New(cache.Options{Config: &rest.Config{Host: server.URL, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return s, c
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return holds(), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func TestInformersAreSharedAndReleasedTogether(t *testing.T) {
	s, c := run(t)
	set := expectations.NewInformers(expectations.New(nil, nil))
	informer := set.Acquire(c, pods)
	if set.Acquire(c, pods) != informer {
		t.Error("one query has two informers")
	}
	if !set.Await(t.Context()) {
		t.Fatal("waiting ended early")
	}
	if err := set.Problem(); err != nil {
		t.Errorf("there is a problem: %v", err)
	}
	var seen []string
	set.Keep(informer, informer.Subscribe(func(e cache.Event) { seen = append(seen, e.New.Name()) }))
	if len(seen) != 1 || seen[0] != "a" {
		t.Errorf("the subscriber was told of %v, want what is there", seen)
	}
	set.Close()
	eventually(t, "the watch to end", func() bool { return s.count(0) == 0 })
}

func TestAProblemNamesTheResource(t *testing.T) {
	_, c := run(t)
	set := expectations.NewInformers(expectations.New(nil, nil))
	defer set.Close()
	set.Acquire(c, pods)
	set.Acquire(c, secrets)
	eventually(t, "the problem", func() bool { return set.Problem() != nil })
	if got := set.Problem().Error(); !strings.HasPrefix(got, "secrets: ") || !strings.Contains(got, "not for you") {
		t.Errorf("the problem is %q", got)
	}
	set.Acquire(c, cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
	eventually(t, "both problems", func() bool {
		return strings.Contains(set.Problem().Error(), "secrets") && strings.Contains(set.Problem().Error(), "configmaps")
	})
	if got := set.Problem().Error(); !strings.HasPrefix(got, "configmaps: ") || !strings.Contains(got, "; secrets: ") {
		t.Errorf("the problem is %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if set.Await(ctx) {
		t.Error("waiting ended although an informer cannot list")
	}
}

// TestLatecomersHoldNothing lets a sync that is still under way ask for an informer of a set that was released.
func TestLatecomersHoldNothing(t *testing.T) {
	s, c := run(t)
	set := expectations.NewInformers(expectations.New(nil, nil))
	set.Close()
	informer := set.Acquire(c, pods)
	set.Keep(informer, informer.Subscribe(func(cache.Event) {}))
	eventually(t, "no watch to be open", func() bool { return s.count(0) == 0 })
	if again := set.Acquire(c, pods); again == informer {
		t.Error("the set still has an informer that nobody runs")
	}
}

// within fails when act does not end.
func within(t *testing.T, what string, act func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		act()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s has to wait", what)
	}
}

// TestABusyHandlerHoldsUpOnlyItsInformer would deadlock where the handler, of another controller, needed what waits for this one's set.
func TestABusyHandlerHoldsUpOnlyItsInformer(t *testing.T) {
	c, err := cache.New(cache.Options{Config: &rest.Config{Host: "example.invalid"}}) // It does not run.
	if err != nil {
		t.Fatal(err)
	}
	e := expectations.New(func(parent.Key) {}, nil)
	defer e.Close()
	set := expectations.NewInformers(e)
	defer set.Close()
	present := set.Acquire(c, pods)
	busy := c.Acquire(secrets)
	defer busy.Release()
	entered, leave := make(chan struct{}), make(chan struct{})
	defer busy.Subscribe(func(cache.Event) {
		close(entered)
		<-leave
	})()
	o, err := object.Parse([]byte(`{"metadata":{"namespace":"ns","name":"s","uid":"u","resourceVersion":"3"}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer close(leave)
	running.Go(func() {
		if err := busy.Add(o); err != nil {
			t.Error(err)
		}
	})
	<-entered
	within(t, "who asks for it", func() { set.Acquire(c, secrets) })
	if e.WroteVersion(parent.Key{Name: "p"}, busy, "99"); e.Pending() == 0 {
		t.Error("its progress is not observed")
	}
	within(t, "who asks for problems", func() { _ = set.Problem() })
	within(t, "who asks for another informer", func() { set.Acquire(c, pods) })
	within(t, "who subscribes to another informer", func() { set.Keep(present, present.Subscribe(func(cache.Event) {})) })
}

func TestOneQueryOfTwoCachesHasTwoInformers(t *testing.T) {
	_, one := run(t)
	_, two := run(t)
	set := expectations.NewInformers(expectations.New(nil, nil))
	defer set.Close()
	if set.Acquire(one, pods) == set.Acquire(two, pods) {
		t.Error("the informer of one cache was returned for another")
	}
}

func TestTheLastUseOfAnInformerGivesItBack(t *testing.T) {
	s, c := run(t)
	set := expectations.NewInformers(expectations.New(nil, nil))
	defer set.Close()
	ignore := func(cache.Event) {}
	_, release := set.Watch(c, secrets, ignore)
	_, again := set.Watch(c, secrets, ignore)
	first, releasePods := set.Watch(c, pods, ignore)
	eventually(t, "the problem", func() bool { return set.Problem() != nil })
	eventually(t, "the watch to begin", func() bool { return s.count(0) == 1 })
	release()
	if set.Problem() == nil {
		t.Error("an informer that is still in use is in the set no more")
	}
	again()
	if err := set.Problem(); err != nil {
		t.Errorf("an informer that has no use has a problem: %v", err)
	}
	// A use that begins while the last one ends.
	releasePods()
	_, releasePods = set.Watch(c, pods, ignore)
	releasePods()
	eventually(t, "the watch to end", func() bool { return s.count(0) == 0 })
	if set.Acquire(c, pods) == first {
		t.Error("the set returned an informer that does not run")
	}
}

// TestAHandlerMayGiveItsOwnInformerBack is about a parent that is gone and whose kind is related.
func TestAHandlerMayGiveItsOwnInformerBack(t *testing.T) {
	_, c := run(t)
	set := expectations.NewInformers(expectations.New(nil, nil))
	_, release := set.Watch(c, pods, func(cache.Event) {})
	within(t, "the handler", func() {
		_, done := set.Watch(c, pods, func(cache.Event) { release() })
		defer done()
		eventually(t, "the list", func() bool { return set.Await(t.Context()) })
	})
	within(t, "closing", set.Close)
}
