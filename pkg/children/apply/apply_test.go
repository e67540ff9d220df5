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

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// api responses writes and keeps count of those that are under way. What it does to objects is proven elsewhere, on a real
// control plane.
type api struct {
	// crowd is how many requests have to come together before the first is returned. Default 1.
	crowd int

	mu       sync.Mutex
	arrived  *sync.Cond
	methods  []string
	underWay int
	most     int
	released bool
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.methods = append(a.methods, r.Method)
	a.underWay++
	a.most = max(a.most, a.underWay)
	if a.underWay >= a.crowd {
		a.released = true
		a.arrived.Broadcast()
	}
	for !a.released {
		a.arrived.Wait()
	}
	a.underWay--
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		return
	}
	_, _ = io.WriteString(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"u","resourceVersion":"1",`, 1))
}

func serve(t *testing.T, crowd int, options apply.Options) (*api, *apply.Applier) {
	t.Helper()
	a := &api{crowd: crowd}
	a.arrived = sync.NewCond(&a.mu)
	return a, against(t, a, options)
}

// against returns an applier that writes to handler.
func against(t *testing.T, handler http.Handler, options apply.Options) *apply.Applier {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var err error
	if options.Client, err = client.New(&rest.Config{Host: server.URL, QPS: -1}); err != nil {
		t.Fatal(err)
	}
	return apply.New(options)
}

// input is a parent with children to delete and children to create.
func input(t *testing.T, parent string, deletes, creates int) plan.Input {
	t.Helper()
	rules := children.NewRules([]children.Rule{{
		Kind:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource:   schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespaced: true,
	}})
	in := plan.Input{
		Parent: types.UID(parent), ParentName: "Parent p", Owner: map[string]any{"uid": parent}, Rules: rules, Now: time.Now(),
	}
	for i := range deletes {
		o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"old-%d","namespace":"ns","uid":"u"}}`, i),
			object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in.Observed = append(in.Observed, o)
	}
	list := make([]map[string]any, creates)
	for i := range list {
		list[i] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("new-", i)}}
	}
	var err error
	if in.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, rules, list); err != nil {
		t.Fatal(err)
	}
	return in
}

// carryOut gathers what a plan needs, makes it and applies it.
func carryOut(ctx context.Context, t *testing.T, a *apply.Applier, in plan.Input) ([]plan.Outcome, error) {
	t.Helper()
	in.Schemas = map[schema.GroupVersionKind]merge.Schema{}
	for _, kind := range plan.Missing(in).Schemas {
		in.Schemas[kind] = nil
	}
	in.Trials = a.Try(ctx, in)
	p, errPlan := plan.Make(in)
	outcomes, err := a.Apply(ctx, p)
	return outcomes, errors.Join(errPlan, err)
}

func TestDeletesGoFirst(t *testing.T) {
	server, applier := serve(t, 1, apply.Options{})
	outcomes, err := carryOut(t.Context(), t, applier, input(t, "p", 4, 4))
	if err != nil || len(outcomes) != 8 {
		t.Fatalf("%d outcomes, error %v", len(outcomes), err)
	}
	want := slices.Concat(slices.Repeat([]string{http.MethodDelete}, 4), slices.Repeat([]string{http.MethodPost}, 4))
	if !slices.Equal(server.methods, want) {
		t.Errorf("requests %v", server.methods)
	}
	for _, o := range outcomes {
		if !o.Done || (o.Written != nil) != (o.Action == plan.Create) {
			t.Errorf("outcome %+v", o)
		}
	}
}

func TestWritesOfOneParentAreBounded(t *testing.T) {
	server, applier := serve(t, 3, apply.Options{WritesPerParent: 3})
	if _, err := carryOut(t.Context(), t, applier, input(t, "p", 0, 12)); err != nil {
		t.Fatal(err)
	}
	if server.most != 3 {
		t.Errorf("%d writes at a time", server.most)
	}
}

func TestWritesOfAllParentsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		behind func() bool
		want   int
	}{
		"Always":    {"Nobody says whether caches are behind.", nil, 8},
		"KeepingUp": {"The caches follow.", func() bool { return false }, 8},
		"Behind":    {"A quarter is left for an API server whose watches are late.", func() bool { return true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			server, applier := serve(t, tc.want, apply.Options{Writes: 8, WritesPerParent: 3, Behind: tc.behind})
			var parents sync.WaitGroup
			for i := range 4 {
				in := input(t, fmt.Sprint("p", i), 0, 6)
				of := applier.For(fmt.Sprint("controller", i%2), false)
				parents.Go(func() {
					if _, err := carryOut(t.Context(), t, of, in); err != nil {
						t.Error(err)
					}
				})
			}
			parents.Wait()
			if server.most != tc.want {
				t.Errorf("%d writes at a time, want %d: %s", server.most, tc.want, tc.reason)
			}
		})
	}
}

func TestAWaitForASlotEndsWithTheContext(t *testing.T) {
	for name, options := range map[string]apply.Options{
		"All": {Writes: 1},
		"Few": {Writes: 2, Behind: func() bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			taken := make(chan struct{})
			// The first write holds the only slot until both give up.
			applier := against(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				// The server sees that the client went only once it has read the request.
				_, _ = io.Copy(io.Discard, r.Body)
				close(taken)
				<-r.Context().Done()
			}), options)
			var parents sync.WaitGroup
			for i := range 2 {
				in := input(t, fmt.Sprint("p", i), 0, 1)
				parents.Go(func() {
					if _, err := carryOut(ctx, t, applier, in); !errors.Is(err, context.Canceled) {
						t.Errorf("error %v", err)
					}
				})
			}
			<-taken
			cancel()
			parents.Wait()
		})
	}
}

func TestNothingIsWrittenAfterTheContextEnded(t *testing.T) {
	server, applier := serve(t, 1, apply.Options{Writes: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	outcomes, err := carryOut(ctx, t, applier, input(t, "p", 1, 2))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for _, o := range outcomes {
		if o.Done {
			t.Errorf("outcome %+v", o)
		}
	}
	if len(server.methods) > 0 {
		t.Errorf("requests %v", server.methods)
	}
}
