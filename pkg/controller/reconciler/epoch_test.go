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
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// coloredSpec is what a widget with a color has in its JSON.
const coloredSpec = `"spec":{"color":"red"`

// pruning is an API server that keeps no color of widgets until their schema knows it.
type pruning struct {
	knows   atomic.Bool
	version atomic.Int64
	stored  chan string
}

func (p *pruning) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var sent struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]any    `json:"metadata"`
		Spec       map[string]string `json:"spec"`
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	if !p.knows.Load() {
		delete(sent.Spec, "color")
	}
	sent.Metadata["uid"] = "uid-w"
	trial := r.URL.Query().Get("dryRun") != ""
	if !trial {
		sent.Metadata["resourceVersion"] = strconv.FormatInt(p.version.Add(1), 10)
	}
	encoded, _ := json.Marshal(sent)
	_, _ = w.Write(encoded)
	if !trial {
		p.stored <- string(encoded)
	}
}

// TestAChangeOfASchemaIsNoticedWithoutAnEventOfTheParent has a field of a child pruned, and then its schema changed.
func TestAChangeOfASchemaIsNoticedWithoutAnEventOfTheParent(t *testing.T) {
	api := &pruning{stored: make(chan string, 10)}
	api.version.Store(10)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	s := newSceneAt(t, server.URL)
	s.exist(thing(t, "p", 1, "", ""))
	definitions := s.shared.Cluster.Cache.Acquire(cache.Query{MetadataOnly: true, Resource: schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}})
	if err := definitions.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.shared.Cluster.Discovery.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	c := s.start(&kind{write: func(sync *reconciler.Sync) error {
		s.wantWidget(sync, map[string]any{"color": "red", "size": "1"})
		return sync.ReconcileChildren(t.Context(), "children")
	}}, nil)
	created := <-api.stored
	if strings.Contains(created, coloredSpec) {
		t.Fatalf("the field is not pruned: %s", created)
	}
	s.update(s.widgets, parse(t, created))
	s.eventually("the sync of the child's event", func() bool { return c.Counters().Syncs == 2 })

	api.knows.Store(true)
	s.changeDefinition("widgets.example.com")
	s.eventually("the field to be written", func() bool {
		select {
		case updated := <-api.stored:
			s.update(s.widgets, parse(t, updated))
			return strings.Contains(updated, coloredSpec)
		default:
			return false
		}
	})
}
