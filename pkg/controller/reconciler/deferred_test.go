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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestADeferredStatusThatCannotBeWrittenIsNotLost has the hook return a status once, as a hook of a decorator does that finds it there then:
// the next response has none. The deferred status comes due during that call, and the write of it fails.
func TestADeferredStatusThatCannotBeWrittenIsNotLost(t *testing.T) {
	var statuses, syncs atomic.Int64
	refused, created := make(chan struct{}), make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/widgets"):
			var sent map[string]any
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
				t.Error(err)
			}
			metadata, _ := sent["metadata"].(map[string]any)
			metadata["uid"], metadata["resourceVersion"] = "uid-w", "10"
			encoded, _ := json.Marshal(sent)
			_, _ = w.Write(encoded)
			created <- string(encoded)
		case strings.Contains(r.URL.Path, "/things/p") && statuses.Add(1) == 1:
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			close(refused)
		default:
			_, _ = fmt.Fprint(w, string(thing(t, "p", 11, "", `,"status":{"phase":"X"}`).JSON()))
		}
	}))
	t.Cleanup(server.Close)
	s := newSceneAt(t, server.URL)
	s.exist(thing(t, "p", 1, "", ""))
	s.start(&kind{
		decide: func(*reconciler.Sync) error {
			if syncs.Add(1) == 2 {
				<-refused
			}
			return nil
		},
		write: func(sync *reconciler.Sync) error {
			s.wantWidget(sync, nil)
			if err := sync.ReconcileChildren(t.Context(), "children"); err != nil {
				return err
			}
			if _, there := sync.Parent.Field("status", "phase"); !there {
				sync.Decision.Status = map[string]any{"phase": "X"}
			}
			return sync.WriteStatus(t.Context(), sync.Decision.Status, true)
		},
	}, nil)
	s.update(s.widgets, parse(t, <-created))
	s.eventually("the status to be written after all", func() bool { return statuses.Load() == 2 })
}

// TestADeferredStatusWithWhichMoreIsStoredIsShown has the kind redefined between the call of the hook and the write of the status that it was
// shown: what the API server stores with it has a field more, and of the write comes one event.
func TestADeferredStatusWithWhichMoreIsStoredIsShown(t *testing.T) {
	stored := thing(t, "p", 11, "", `,"spec":{"size":1},"status":{"phase":"X"}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(r.URL.Path, "/events"):
			_, _ = w.Write(body)
		case r.Method == http.MethodPost:
			_, _ = fmt.Fprint(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"uid-w","resourceVersion":"5",`, 1))
		default:
			_, _ = w.Write(stored.JSON())
		}
	}))
	t.Cleanup(server.Close)
	s := newSceneAt(t, server.URL)
	s.exist(thing(t, "p", 1, "", ""))
	var syncs, shown atomic.Int64
	s.start(&kind{
		decide: func(sync *reconciler.Sync) error {
			if _, there := sync.Parent.Field("spec", "size"); there {
				shown.Add(1)
			}
			return nil
		},
		write: func(sync *reconciler.Sync) error {
			s.wantWidget(sync, nil)
			if err := sync.ReconcileChildren(t.Context(), "children"); err != nil {
				return err
			}
			first := syncs.Add(1) == 1
			if err := sync.WriteStatus(t.Context(), map[string]any{"phase": "X"}, first); err != nil {
				return err
			}
			if first {
				s.update(s.widgets, widget(t, "w", 5, "p", ""))
			} else {
				s.update(s.things, stored)
			}
			return nil
		},
	}, nil)
	s.eventually("the hook to be shown the field", func() bool { return shown.Load() > 0 })
}
