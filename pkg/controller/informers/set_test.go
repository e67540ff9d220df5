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

package informers_test

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
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/informers"
)

var (
	pods    = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	secrets = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
)

// apiServer has one Pod, and refuses everything about Secrets. It counts the watches that are open.
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
	if strings.HasSuffix(r.URL.Path, "/secrets") {
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
	set := informers.New(expectations.New(nil, nil))
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
	set.Subscribe(informer, func(e cache.Event) { seen = append(seen, e.New.Name()) })
	if len(seen) != 1 || seen[0] != "a" {
		t.Errorf("the subscriber was told of %v, want what is there", seen)
	}
	set.Release()
	eventually(t, "the watch to end", func() bool { return s.count(0) == 0 })
}

func TestAProblemNamesTheResource(t *testing.T) {
	_, c := run(t)
	set := informers.New(expectations.New(nil, nil))
	defer set.Release()
	set.Acquire(c, pods)
	set.Acquire(c, secrets)
	eventually(t, "the problem", func() bool { return set.Problem() != nil })
	if got := set.Problem().Error(); !strings.HasPrefix(got, "secrets: ") || !strings.Contains(got, "not for you") {
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
	set := informers.New(expectations.New(nil, nil))
	set.Release()
	informer := set.Acquire(c, pods)
	set.Subscribe(informer, func(cache.Event) {})
	eventually(t, "no watch to be open", func() bool { return s.count(0) == 0 })
	if again := set.Acquire(c, pods); again == informer {
		t.Error("the set still has an informer that nobody runs")
	}
}
