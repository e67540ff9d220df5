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

package credentials_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer has one Secret and counts the watches that are open.
type apiServer struct {
	mu   sync.Mutex
	open map[string]int
	// late says that the Secret late may be read.
	late bool
}

func (s *apiServer) readable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

func (s *apiServer) count(name string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[name] += n
	return s.open[name]
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	w.Header().Set("Content-Type", "application/json")
	var items string
	if name == "late" && s.readable() {
		name = "token"
	}
	switch name {
	case "token":
		items = `{"metadata":{"namespace":"ns","name":"token","uid":"u","resourceVersion":"1"},"data":{"k":"dg=="}}`
	case "broken":
		items = `{"metadata":{"namespace":"ns","name":"broken","uid":"u","resourceVersion":"1"},"data":{"k":"hidden!"}}`
	case "missing":
	default:
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
		return
	}
	if r.URL.Query().Get("watch") == "" {
		_, _ = w.Write([]byte(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[` + items + `]}`))
		return
	}
	s.count(name, 1)
	defer s.count(name, -1)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func run(t *testing.T) (*apiServer, *clocktesting.FakeClock, *credentials.Store) {
	t.Helper()
	s := &apiServer{open: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	store, err := credentials.New(&rest.Config{Host: server.URL, QPS: -1}, clock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return s, clock, store
}

// TestWhoCouldNotReadIsToldWhenHeCan has the right to read a Secret granted after an attempt.
func TestWhoCouldNotReadIsToldWhenHeCan(t *testing.T) {
	s, _, store := run(t)
	told := make(chan credentials.Reference, 10)
	defer store.Subscribe(func(r credentials.Reference) { told <- r })()
	if _, _, err := store.Secret(t.Context(), "ns", "late"); !apierrors.IsForbidden(err) {
		t.Fatalf("error %v", err)
	}
	s.mu.Lock()
	s.late = true
	s.mu.Unlock()
	if r := <-told; r.Name != "late" {
		t.Errorf("told of %v", r)
	}
}

func TestSecretsAreReadOnceAndSharedByAllReaders(t *testing.T) {
	s, _, store := run(t)
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			version, data, err := store.Secret(t.Context(), "ns", "token")
			if err != nil || string(data["k"]) != "v" || version != "u/1" {
				t.Errorf("read %q in version %q, %v", data, version, err)
			}
		})
	}
	readers.Wait()
	eventually(t, func() bool { return s.count("token", 0) == 1 })
}

func TestErrorsSayWhatIsWrongAndShowNoData(t *testing.T) {
	_, _, store := run(t)
	if _, _, err := store.Secret(t.Context(), "ns", "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret that is missing: %v", err)
	}
	if _, _, err := store.Secret(t.Context(), "ns", "forbidden"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Secret ns/forbidden") {
		t.Errorf("a Secret that may not be read: %v", err)
	}
	if _, _, err := store.Secret(t.Context(), "ns", "broken"); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a Secret with broken data: %v", err)
	}
}

func TestWatchesEndWhenTheyAreNotUsed(t *testing.T) {
	s, clock, store := run(t)
	read := func(name string) {
		t.Helper()
		if _, _, err := store.Secret(t.Context(), "ns", name); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	read("token")
	read("missing")
	eventually(t, func() bool { return s.count("token", 0) == 1 && s.count("missing", 0) == 1 })
	eventually(t, func() bool { return clock.Waiters() > 0 })
	clock.Step(9 * time.Minute)
	read("token")
	clock.Step(5 * time.Minute)
	eventually(t, func() bool { return s.count("missing", 0) == 0 })
	if n := s.count("token", 0); n != 1 {
		t.Errorf("%d watches of what is used are open, want 1", n)
	}
	read("missing")
	eventually(t, func() bool { return s.count("missing", 0) == 1 })
}

func eventually(t *testing.T, met func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return met(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
