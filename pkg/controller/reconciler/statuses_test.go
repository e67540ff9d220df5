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
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// statuses is an API server with one parent, of whose status it knows some fields.
type statuses struct {
	t      *testing.T
	fields []string
	scene  *scene

	mu      sync.Mutex
	version int
	label   int
	// metadata is more of the parent's metadata.
	metadata string
	status   map[string]any
	sent     []map[string]any
}

func (a *statuses) object() *object.Object {
	encoded, err := json.Marshal(a.status)
	if err != nil {
		a.t.Error(err)
	}
	return thing(a.t, "p", a.version, fmt.Sprintf(`,"generation":3,"labels":{"n":"%d"}`, a.label)+a.metadata, `,"status":`+string(encoded))
}

func (a *statuses) serve(r *http.Request) (int, string) {
	if r.Method != http.MethodPatch {
		return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	var operations []struct {
		Value any `json:"value"`
	}
	if err := json.Unmarshal(body, &operations); err != nil {
		a.t.Error(err)
	}
	sent, _ := operations[len(operations)-1].Value.(map[string]any)
	a.mu.Lock()
	defer a.mu.Unlock()
	if operations[0].Value != strconv.Itoa(a.version) {
		return http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`
	}
	a.sent = append(a.sent, sent)
	kept := maps.Clone(sent)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if !slices.Contains(a.fields, name) {
			delete(kept, name)
			unknown = append(unknown, fmt.Sprintf("unknown field %q", "status."+name))
		}
	}
	if len(unknown) > 0 && r.URL.Query().Get("fieldValidation") == "Strict" {
		refusal, _ := json.Marshal(map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
			"message": `"" is invalid: patch: Invalid value: "{}": strict decoding error: ` + strings.Join(unknown, ", "),
		})
		return http.StatusUnprocessableEntity, string(refusal)
	}
	before, _ := json.Marshal(a.status)
	if after, _ := json.Marshal(kept); !bytes.Equal(after, before) {
		a.version++
		a.status = kept
	}
	return http.StatusOK, string(a.object().JSON())
}

// change has another client change a label of the parent, and its status if there is one.
func (a *statuses) change(status map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.label++
	if status != nil {
		a.status = status
	}
	a.scene.update(a.scene.things, a.object()) // Before the response of a later write.
}

func (a *statuses) requests() []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sent)
}

func (a *statuses) present() map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func TestAStatusThatTheAPIServerDoesNotTakeIsSentOnce(t *testing.T) {
	theirs := map[string]any{"replicas": float64(2)}
	for name, tc := range map[string]struct {
		reason string
		// group and fields are those of the kind of the parent; without a dot in it, the kind is built in.
		group  string
		fields []string
		status map[string]any
		// reports says that the engine adds the generation.
		reports bool
		// first is how many requests the first syncs make, and last what the status is then.
		first int
		last  map[string]any
		// later is how many requests more there are when another client changes the status.
		later int
	}{
		"of a custom resource": {
			reason: "What is left out is seen by the second write, which changes nothing.",
			group:  "example.com", fields: []string{"phase", "replicas"}, status: map[string]any{"phase": "X", "lost": "Y"},
			first: 2, last: map[string]any{"phase": "X"}, later: 1,
		},
		"of a custom resource without the generation": {
			reason: "No hook returns the field, and each sync would set it.",
			group:  "example.com", fields: []string{"phase", "replicas"}, status: map[string]any{"phase": "X"}, reports: true,
			first: 2, last: map[string]any{"phase": "X"}, later: 1,
		},
		"of a built-in kind": {
			reason: "The status stays as its own controller has written it, and whatever that writes the kind has no such field.",
			group:  "apps", fields: []string{"replicas", "observedGeneration"}, status: map[string]any{"phase": "X"},
			first: 1, last: theirs, later: 0,
		},
		"of a built-in kind without the generation": {
			reason: "What the engine adds is no reason to refuse what the hook returns.",
			group:  "", fields: []string{"replicas"}, status: map[string]any{"replicas": float64(5)}, reports: true,
			first: 2, last: map[string]any{"replicas": float64(5)}, later: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := &statuses{t: t, fields: tc.fields, version: 1, status: theirs}
			s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(server.serve)})
			server.scene = s
			resource := discovery.Resource{Kind: "Thing", HasStatus: true, GroupVersionResource: things.GroupVersionResource}
			resource.Group = tc.group
			s.things = s.shared.Cluster.Cache.Acquire(cache.Query{Resource: resource.GroupVersionResource})
			s.exist(server.object())
			var syncs atomic.Int64
			s.start(&kind{write: func(sync *reconciler.Sync) error {
				syncs.Add(1)
				status := maps.Clone(tc.status)
				if tc.reports {
					sync.Complete(status)
				}
				return sync.WriteStatus(t.Context(), status, false)
			}}, func(c *reconciler.Config) {
				c.Sources[0].Resource, c.Sources[0].ReportsGeneration = resource, tc.reports
			})
			round := func(status map[string]any) {
				before := syncs.Load()
				server.change(status)
				s.eventually("a sync", func() bool { return syncs.Load() > before })
			}
			for range 6 {
				round(nil)
			}
			if got := server.requests(); len(got) != tc.first {
				t.Errorf("%s: %d requests, want %d: %v", tc.reason, len(got), tc.first, got)
			}
			if got := server.present(); !reflect.DeepEqual(got, tc.last) {
				t.Errorf("%s: the status is %v, want %v", tc.reason, got, tc.last)
			}
			round(map[string]any{"replicas": float64(7)})
			for range 3 {
				round(nil)
			}
			if got := server.requests(); len(got) != tc.first+tc.later {
				t.Errorf("%s: %d requests after the status was changed, want %d: %v", tc.reason, len(got), tc.first+tc.later, got)
			}
		})
	}
}

// TestAStatusIsSentAgainWhenTheKindIsDefinedAnew has somebody declare a field of the status, and nothing else happen.
func TestAStatusIsSentAgainWhenTheKindIsDefinedAnew(t *testing.T) {
	server := &statuses{t: t, fields: []string{"phase"}, version: 1, status: map[string]any{"phase": "X"}}
	s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", QPS: -1, Transport: transport(server.serve)})
	server.scene = s
	defined := func(generation int) any {
		return parse(t, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com",
			"uid":"c","generation":%d,"resourceVersion":"%[1]d"}}`, generation))
	}
	definitions := s.defineKinds(defined(1))
	s.exist(server.object())
	s.start(&kind{write: func(sync *reconciler.Sync) error {
		return sync.WriteStatus(t.Context(), map[string]any{"phase": "X", "lost": "Y"}, false)
	}}, func(c *reconciler.Config) { c.Sources[0].Resource.HasStatus = true })
	s.eventually("the status to be sent", func() bool { return len(server.requests()) > 0 })
	server.mu.Lock()
	server.fields = append(server.fields, "lost")
	server.mu.Unlock()
	if err := definitions.Update(defined(2)); err != nil {
		t.Fatal(err)
	}
	s.eventually("the field to be stored", func() bool { return server.present()["lost"] == "Y" })
}
