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

package overhttp

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

// Handler serves a server. It lets one request at a time reach it, so that it may be used by many.
type Handler struct {
	mu      sync.Mutex
	server  *apiserver.Server
	changed *sync.Cond
}

// New returns a handler for a server, which must be used through Use from then on.
func New(server *apiserver.Server) *Handler {
	h := &Handler{server: server}
	h.changed = sync.NewCond(&h.mu)
	return h
}

// Use calls a function that uses the server, alone.
func (h *Handler) Use(use func(*apiserver.Server)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	use(h.server)
	h.changed.Broadcast()
}

// ServeHTTP implements http.Handler. The user is that of the header Impersonate-User.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	user := r.Header.Get("Impersonate-User")
	if user == "" {
		user = "admin"
	}
	var response apiserver.Response
	h.Use(func(s *apiserver.Server) {
		response = s.Do(apiserver.Request{
			User: user, UserAgent: r.UserAgent(), Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
			ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"), Body: body,
		})
	})
	w.Header().Set("Content-Type", response.ContentType)
	if response.RetryAfter != "" {
		w.Header().Set("Retry-After", response.RetryAfter)
	}
	for _, text := range response.Warnings {
		w.Header().Add("Warning", fmt.Sprintf("299 - %q", text))
	}
	w.WriteHeader(response.Code)
	if response.Watch == nil {
		_, _ = w.Write(response.Body) // A client that went away needs nothing.
		return
	}
	h.stream(w, r, response.Watch)
}

// stream sends the events of a watch until it ends on either side.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, watch *apiserver.Watch) {
	defer h.Use(func(*apiserver.Server) { watch.Close() })
	wake := func() { h.Use(func(*apiserver.Server) {}) }
	var over bool
	end := func() {
		h.mu.Lock()
		over = true
		h.mu.Unlock()
		wake()
	}
	if seconds, err := time.ParseDuration(r.URL.Query().Get("timeoutSeconds") + "s"); err == nil && seconds > 0 {
		defer time.AfterFunc(seconds, end).Stop()
	}
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-r.Context().Done():
			end()
		case <-stopped:
		}
	}()
	flush := http.NewResponseController(w)
	_ = flush.Flush() // The client sees that the watch began.
	for {
		h.mu.Lock()
		for watch.Pending() == 0 && !watch.Ended() && !over {
			h.changed.Wait()
		}
		line, ok := watch.Next()
		h.mu.Unlock()
		if !ok {
			return
		}
		if _, err := w.Write(line); err != nil {
			return
		}
		_ = flush.Flush() // As above.
	}
}
