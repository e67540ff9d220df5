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
	"strings"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
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
