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

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

// listenLimit is how long a hook that returns may take to get its port back.
const listenLimit = 30 * time.Second

// Hook is the sync and finalize hook of a fleet. Its methods, but for Up and Down, may be used concurrently.
type Hook struct {
	t        testing.TB
	address  string
	children int
	server   *http.Server
	served   sync.WaitGroup

	calls          atomic.Int64
	inFlight, most atomic.Int64
	none           atomic.Bool

	mu   sync.Mutex
	seen map[string]int
}

// newHook returns a hook that is up. It ends with the test.
func newHook(t testing.TB, children int) *Hook {
	t.Helper()
	h := &Hook{t: t, address: freeport.Address(freeport.Find(t)), children: children, seen: map[string]int{}}
	h.Up()
	t.Cleanup(h.Down)
	return h
}

func (h *Hook) serve(listener net.Listener) {
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	h.served.Go(func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.t.Errorf("serving the hook: %v", err)
		}
	})
}

// Down ends the hook: connections are closed, and new ones refused.
func (h *Hook) Down() {
	_ = h.server.Close()
	h.served.Wait()
}

// Up has the hook respond again.
func (h *Hook) Up() {
	h.t.Helper()
	var listener net.Listener
	err := wait.PollUntilContextTimeout(h.t.Context(), 10*time.Millisecond, listenLimit, true, func(ctx context.Context) (bool, error) {
		var err error
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", h.address)
		return err == nil, nil
	})
	if err != nil {
		h.t.Fatalf("getting the port of the hook back: %v", err)
	}
	h.serve(listener)
}

// RespondNone has the hook respond that no parent wants children, or again what they want.
func (h *Hook) RespondNone(none bool) { h.none.Store(none) }

// Calls returns how often the hook was called.
func (h *Hook) Calls() int { return int(h.calls.Load()) }

// Most returns how many calls there were at once at most.
func (h *Hook) Most() int { return int(h.most.Load()) }

// Forget begins to count anew, but for Calls.
func (h *Hook) Forget() {
	h.most.Store(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.seen)
}

// Seen returns how often the hook was called for each parent since Forget, by name.
func (h *Hook) Seen() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.seen)
}

// ServeHTTP serves one call.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.inFlight.Add(-1)
	for now := h.inFlight.Add(1); ; {
		most := h.most.Load()
		if now <= most || h.most.CompareAndSwap(most, now) {
			break
		}
	}
	hooktest.Composite(h.respond).ServeHTTP(w, r)
}

func (h *Hook) respond(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	h.calls.Add(1)
	h.mu.Lock()
	h.seen[q.Parent.GetName()]++
	h.mu.Unlock()
	if q.Finalizing {
		left := 0
		for _, objects := range q.Children {
			left += len(objects)
		}
		return &hook.CompositeResponse{Finalized: left == 0}, nil
	}
	value := fixture.Value(q.Parent, "spec", "value")
	response := &hook.CompositeResponse{Status: map[string]any{"value": value}}
	if h.none.Load() {
		return response, nil
	}
	for i := range h.children {
		response.Children = append(response.Children, fixture.ConfigMap(childName(q.Parent.GetName(), i), map[string]any{"value": value}))
	}
	return response, nil
}

func childName(parent string, i int) string { return fmt.Sprintf("%s-%d", parent, i) }
