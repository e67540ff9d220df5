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

package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
)

var errBroken = errors.New("broken")

// engineFunc is an engine.
type engineFunc func(ctx context.Context) error

func (f engineFunc) Run(ctx context.Context) error { return f(ctx) }

// newRunner returns a runner of the engine, and the failures that it reports.
func newRunner(t *testing.T, create NewEngine) (*engineRunner, chan error) {
	t.Helper()
	failures := make(chan error, 1)
	h := &engineRunner{create: create, fail: func(err error) { failures <- err }}
	h.ctx, h.stop = context.WithCancel(t.Context())
	return h, failures
}

func hook(t *testing.T) genericapiserver.PostStartHookContext {
	t.Helper()
	return genericapiserver.PostStartHookContext{Context: t.Context(), LoopbackClientConfig: &rest.Config{Host: "loopback", QPS: 50}}
}

func TestClientDisablesCompression(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
		_, _ = io.WriteString(w, `{"major":"1","minor":"36"}`)
	}))
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(unlimited(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ServerVersion(); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "" {
		t.Errorf("Accept-Encoding: %s", got)
	}
}

func TestTheEngineEndsBeforeTheServer(t *testing.T) {
	started, ended := make(chan EngineConfig, 1), false
	h, failures := newRunner(t, func(_ context.Context, c EngineConfig) (Engine, error) {
		return engineFunc(func(ctx context.Context) error {
			started <- c
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}), nil
	})
	if err := h.start(hook(t)); err != nil {
		t.Fatal(err)
	}
	if c := <-started; c.Loopback.Host != "loopback" || c.Loopback.QPS != -1 || !strings.HasPrefix(c.Loopback.UserAgent, "metacontroller-apiserver/") {
		t.Errorf("the engine got %v", c.Loopback)
	}
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
	if !ended {
		t.Error("the shutdown did not wait for the engine")
	}
	if len(failures) > 0 {
		t.Errorf("an engine that was asked to end is reported: %v", <-failures)
	}
}

func TestAnEngineThatEndsByItselfEndsTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		create NewEngine
		want   string
	}{
		"an engine that cannot be made": {
			func(context.Context, EngineConfig) (Engine, error) { return nil, errBroken }, "preparing to run controllers: broken",
		},
		"an engine that fails": {
			func(context.Context, EngineConfig) (Engine, error) {
				return engineFunc(func(context.Context) error { return errBroken }), nil
			}, "running controllers: broken",
		},
		"an engine that just ends": {
			func(context.Context, EngineConfig) (Engine, error) {
				return engineFunc(func(context.Context) error { return nil }), nil
			}, "running controllers: it ended by itself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, failures := newRunner(t, test.create)
			if err := h.start(hook(t)); err != nil {
				t.Fatal(err)
			}
			if err := <-failures; err.Error() != test.want {
				t.Errorf("got %q, want %q", err, test.want)
			}
			if err := h.shutdown(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoEngineStartsAfterTheShutdown(t *testing.T) {
	h, failures := newRunner(t, func(context.Context, EngineConfig) (Engine, error) {
		t.Error("it started")
		return nil, errBroken
	})
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := h.start(hook(t)); err != nil || len(failures) > 0 {
		t.Errorf("starting after the shutdown: %v", err)
	}
}

// terms is an elector that elects this process for so many terms.
type terms struct {
	fence leaderelection.Fence
	left  int
	// end ends the present term.
	end chan struct{}
}

func (x *terms) Fence() *leaderelection.Fence { return &x.fence }

func (x *terms) Stand(ctx context.Context, lead func(context.Context)) error {
	if x.left == 0 {
		<-ctx.Done()
		return nil
	}
	x.left--
	term, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		<-x.end
		end(leaderelection.ErrLost)
	}()
	lead(term)
	return nil
}

func TestEachTermHasAnEngineOfItsOwn(t *testing.T) {
	waiting, elected, ended := make(chan int, 9), make(chan int), make(chan int, 9)
	created := 0
	h, failures := newRunner(t, func(_ context.Context, c EngineConfig) (Engine, error) {
		created++
		number := created
		return engineFunc(func(ctx context.Context) error {
			waiting <- number
			select {
			case <-c.Elected:
				elected <- number
				<-ctx.Done()
			case <-ctx.Done():
			}
			ended <- number
			return nil
		}), nil
	})
	x := &terms{left: 2, end: make(chan struct{})}
	h.elector, h.config.Cluster = x, &rest.Config{}
	if err := h.start(hook(t)); err != nil {
		t.Fatal(err)
	}
	for number := 1; number <= 2; number++ {
		if got := <-elected; got != number {
			t.Errorf("engine %d was elected, not %d", got, number)
		}
		x.end <- struct{}{}
		if got := <-ended; got != number {
			t.Errorf("engine %d ended, not %d", got, number)
		}
	}
	for range 3 {
		<-waiting
	}
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != 3 || created != 3 {
		t.Errorf("engine %d of %d ended, which waited for the election", got, created)
	}
	if len(failures) > 0 {
		t.Errorf("the server failed: %v", <-failures)
	}
}

func TestAnEngineThatOutlivesItsTermEndsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		h, failures := newRunner(t, func(context.Context, EngineConfig) (Engine, error) {
			return engineFunc(func(context.Context) error {
				<-stuck
				return nil
			}), nil
		})
		x := &terms{left: 1, end: make(chan struct{})}
		h.elector, h.config.Cluster = x, &rest.Config{}
		if err := h.start(hook(t)); err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		x.end <- struct{}{}
		if err := <-failures; !errors.Is(err, leaderelection.ErrLost) || time.Since(lost) != engineGrace {
			t.Errorf("after %s: %v", time.Since(lost), err)
		}
		close(stuck)
		if err := h.shutdown(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEnginesAskTheFence lets an engine write before its election.
func TestEnginesAskTheFence(t *testing.T) {
	configs := make(chan EngineConfig, 1)
	h, _ := newRunner(t, func(_ context.Context, c EngineConfig) (Engine, error) {
		configs <- c
		return engineFunc(func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}), nil
	})
	h.elector, h.config.Cluster = &terms{}, &rest.Config{Host: "https://cluster.test"}
	if err := h.start(hook(t)); err != nil {
		t.Fatal(err)
	}
	c := <-configs
	for name, config := range map[string]*rest.Config{"the cluster": c.Cluster, "its own API": c.Loopback} {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://nowhere.test/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if !errors.Is(err, leaderelection.ErrNotLeading) {
			t.Errorf("writing to %s: %v", name, err)
		}
	}
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
}

func TestTheFileOfTheLeaderCountsOnItsHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leader")
	here, elsewhere := leaderFile{path, "here"}, leaderFile{path, "elsewhere"}
	if former, err := here.read(); former != "" || err != nil {
		t.Errorf("before the first term: %q %v", former, err)
	}
	for _, identity := range []string{"here_1", "here_2"} {
		if err := here.write(identity); err != nil {
			t.Fatal(err)
		}
		if former, err := here.read(); former != identity || err != nil {
			t.Errorf("after %s led: %q %v", identity, former, err)
		}
	}
	if former, err := elsewhere.read(); former != "" || err != nil {
		t.Errorf("on another host: %q %v", former, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := leaderFile{filepath.Join(t.TempDir(), "leader"), "here"}
	if err := os.WriteFile(copied.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if former, err := copied.read(); former != "" || err != nil {
		t.Errorf("in a copy of the directory: %q %v", former, err)
	}
}

func TestAServerSaysWhoRunsControllers(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "engine", errors.New("no RBAC policy matched"))
	for name, tc := range map[string]struct {
		holder  string
		failure error
		want    []string
	}{
		"nobody":                                 {"", nil, []string{"no server runs controllers at present", "try again"}},
		"nobody, and this one may not":           {"", forbidden, []string{"may not take the Lease", "no RBAC policy matched", "rights-leader-election"}},
		"nobody, and this one cannot":            {"", errors.New("EOF"), []string{"cannot take the Lease", "EOF"}},
		"this one":                               {"here_1", nil, []string{"this server is about to run controllers"}},
		"another one":                            {"pod-b_77", nil, []string{"controllers are run by another server, pod-b_77"}},
		"another one, who has taken what failed": {"pod-b_77", forbidden, []string{"controllers are run by another server, pod-b_77"}},
	} {
		got := absence(tc.holder, "here_1", tc.failure)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", name, got, want)
			}
		}
	}
}

func TestTheServerWaitsForTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		answers []int
	}{
		"one that serves":             {"It is there.", []int{http.StatusOK}},
		"one that refuses":            {"What it refuses is said by who needs it.", []int{http.StatusForbidden}},
		"one that is starting":        {"It responds before it serves.", []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK}},
		"one that has too much to do": {"It is not said how it would answer.", []int{http.StatusTooManyRequests, http.StatusOK}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := int(asked.Add(1))
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.answers[min(n, len(c.answers))-1])
			}))
			defer cluster.Close()
			// The default transport is shared, and each test server that closes ends what is on its way there.
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			if err := awaitCluster(t.Context(), &rest.Config{Host: cluster.URL, Transport: transport}); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
			if n := int(asked.Load()); n != len(c.answers) {
				t.Errorf("%s: asked %d times, want %d", c.reason, n, len(c.answers))
			}
		})
	}
}

func TestWaitingForTheClusterEndsWithTheProcess(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- awaitCluster(ctx, &rest.Config{Host: gone.URL}) }()
	cancel(errBroken)
	if err := <-asked; !errors.Is(err, errBroken) {
		t.Errorf("got %v, want the cause", err)
	}
}

// lost is a storage that has ended.
type lost struct{ done chan struct{} }

func (l lost) Done() <-chan struct{} { return l.done }

func (lost) Err() error { return errBroken }

func TestALostStorageEndsTheServer(t *testing.T) {
	gone := lost{make(chan struct{})}
	close(gone.done)
	t.Run("that ends when told", func(t *testing.T) {
		server := make(chan error, 1)
		var failed error
		err := await(server, gone, func(err error) {
			failed = err
			server <- nil
		}, time.Hour)
		if err != nil || !errors.Is(failed, errBroken) {
			t.Errorf("got %v, and the failure %v", err, failed)
		}
	})
	t.Run("that does not", func(t *testing.T) {
		var failed error
		if err := await(nil, gone, func(err error) { failed = err }, time.Millisecond); err != nil || !errors.Is(failed, errBroken) {
			t.Errorf("got %v, and the failure %v", err, failed)
		}
	})
	t.Run("but not when the server ended before", func(t *testing.T) {
		server := make(chan error, 1)
		server <- errBroken
		err := await(server, lost{make(chan struct{})}, func(err error) { t.Errorf("it failed: %v", err) }, time.Hour)
		if !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	})
}
