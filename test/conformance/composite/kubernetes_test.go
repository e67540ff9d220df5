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

package composite

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// changes is how often another client changes a label of a parent.
const changes = 5

// statusHook responds with a status, as JSON, and counts the calls.
type statusHook struct {
	status atomic.Value
	calls  atomic.Int64
}

func (h *statusHook) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.calls.Add(1)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{%s"children":[],"attachments":[]}`, h.status.Load())
}

// serves has a case's hook respond with a status.
func serves(st *fixture.Test, status string) *statusHook {
	h := &statusHook{}
	h.status.Store(status)
	st.Handle("/status", h)
	return h
}

// relabel changes a label of a parent several times, each time after the hook was called for the one before.
func (h *statusHook) relabel(st *fixture.Test, objects *cluster.Objects, r schema.GroupVersionResource, name string) {
	st.T.Helper()
	for n := range changes {
		before := h.calls.Load()
		objects.Patch(r, name, fmt.Sprintf(`{"metadata":{"labels":{"change":"%d"}}}`, n))
		cluster.Eventually(st.T, st.Limit, "the hook to be called", func(context.Context) (bool, string) {
			return h.calls.Load() > before, fmt.Sprint(before, " calls")
		})
	}
}

// patches returns the response codes of the writes of statuses that the server made in a namespace, without conflicts.
func patches(st *fixture.Test, r schema.GroupVersionResource) (codes []int32) {
	st.T.Helper()
	for _, e := range st.Audited(st.T, st.Name) {
		if cluster.AuditedRequest(&e) == "patch "+r.Resource+"/status" && e.ResponseStatus.Code != http.StatusConflict {
			codes = append(codes, e.ResponseStatus.Code)
		}
	}
	return codes
}

// testStatusOfKubernetes has parents whose status is that of a controller of Kubernetes, which it has to keep.
func testStatusOfKubernetes(t *testing.T, s *fixture.Environment) {
	labels := map[string]any{"app": "d"}
	containers := []any{map[string]any{"name": "c", "image": "i"}}
	deployment := map[string]any{
		"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": containers}},
	}
	job := map[string]any{
		"completions": int64(0), "template": map[string]any{"spec": map[string]any{"restartPolicy": "Never", "containers": containers}},
	}
	for name, tc := range map[string]struct {
		kind     fixture.Kind
		resource schema.GroupVersionResource
		spec     map[string]any
		// status is what the hook returns of it, and refused how often the API server is asked whether it takes that.
		status  string
		refused int
	}{
		"ADeploymentWithout":               {fixture.Composite, fixture.Deployments, deployment, ``, 0},
		"ADeploymentEmpty":                 {fixture.Composite, fixture.Deployments, deployment, `"status":{},`, 0},
		"ADeploymentWithFieldsOfAnother":   {fixture.Composite, fixture.Deployments, deployment, `"status":{"phase":"X"},`, 1},
		"AJobEmpty":                        {fixture.Composite, fixture.Jobs, job, `"status":{},`, 0},
		"AJobWithFieldsOfAnother":          {fixture.Composite, fixture.Jobs, job, `"status":{"phase":"X"},`, 1},
		"AnIngressEmpty":                   {fixture.Composite, fixture.Ingresses, nil, `"status":{},`, 0},
		"ATargetEmpty":                     {fixture.Decorator, fixture.Deployments, deployment, `"status":{},`, 0},
		"ATargetWithFieldsOfAnother":       {fixture.Decorator, fixture.Deployments, deployment, `"status":{"phase":"X"},`, 1},
		"ANamespaceWithFieldsOfAnother":    {fixture.Decorator, fixture.Namespaces, nil, `"status":{"ready-by-hook":"True"},`, 1},
		"ANamespaceOfACompositeController": {fixture.Composite, fixture.Namespaces, nil, `"status":{"phase":"Active"},`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := s.NewTest(t)
			hook := serves(st, tc.status)
			st.Run(fixture.Definition{Kind: tc.kind, Parents: []schema.GroupVersionResource{tc.resource}, Sync: st.At("/status")})
			object, objects := "d", st.Objects
			switch tc.resource {
			case fixture.Namespaces:
				object, objects = st.Name, st.In("")
				objects.Patch(tc.resource, object, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, fixture.Label, st.Name))
			case fixture.Ingresses: // No controller of theirs runs.
				st.Selected(tc.resource, object, map[string]any{"spec": map[string]any{
					"defaultBackend": map[string]any{"service": map[string]any{"name": "s", "port": map[string]any{"number": int64(80)}}},
				}})
			default:
				st.Selected(tc.resource, object, map[string]any{"spec": tc.spec})
				objects.Await(tc.resource, object, "to have the status of its controller", func(o *unstructured.Unstructured) bool {
					conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
					return len(conditions) > 0
				})
			}
			hook.relabel(st, objects, tc.resource, object)
			st.Settle()
			if codes := patches(st, tc.resource); len(codes) != tc.refused {
				t.Errorf("the status was sent %d times, want %d: %v", len(codes), tc.refused, codes)
			}
			for _, e := range objects.Get(tc.resource, object).GetManagedFields() {
				if e.Subresource == "status" && strings.HasPrefix(e.Manager, "metacontroller") {
					t.Errorf("%s has written the status: %s", e.Manager, e.FieldsV1)
				}
			}
			for _, e := range st.Events(object) {
				if e.Type == "Warning" && e.Source.Component == "metacontroller" {
					t.Errorf("an event warns: %s %s", e.Reason, e.Message)
				}
			}
		})
	}
}

// testStatusNotTaken has a custom resource whose schema lacks fields of the status: observedGeneration, and one that the hook returns. It is
// declared in the end.
func testStatusNotTaken(t *testing.T, s *fixture.Environment) {
	const schemaOf = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: narrows.narrow.example.com}
spec:
  group: narrow.example.com
  names: {kind: Narrow, plural: narrows}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, properties: {phase: {type: string}%s}}}}}
`
	narrows := schema.GroupVersionResource{Group: "narrow.example.com", Version: "v1", Resource: "narrows"}
	s.DefineManifests(t, fmt.Sprintf(schemaOf, ""))
	st := s.NewTest(t)
	hook := serves(st, `"status":{"phase":"X","lost":"L"},`)
	st.Run(fixture.Definition{Kind: fixture.Composite, Parents: []schema.GroupVersionResource{narrows}, Sync: st.At("/status")})
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "narrow.example.com/v1", "kind": "Narrow"}}
	o.SetName("p")
	o.SetLabels(map[string]string{fixture.Label: st.Name})
	st.Create(narrows, o)
	phase := func(want string) {
		t.Helper()
		st.Await(narrows, "p", "to have the phase "+want, func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "phase") == want })
	}
	phase("X")
	hook.relabel(st, st.Objects, narrows, "p")
	hook.status.Store(`"status":{"phase":"Y","lost":"L"},`)
	hook.relabel(st, st.Objects, narrows, "p")
	phase("Y")
	// Each of the two is written once, and once more before it is known that this changes nothing.
	if codes := patches(st, narrows); len(codes) > 4 {
		t.Errorf("the status was sent %d times: %v", len(codes), codes)
	}
	s.DefineManifests(t, fmt.Sprintf(schemaOf, ", lost: {type: string}"))
	n := 0
	cluster.Eventually(t, st.Limit, "the field that is declared now to be stored", func(context.Context) (bool, string) {
		n++
		found := st.Patch(narrows, "p", fmt.Sprintf(`{"metadata":{"labels":{"again":"%d"}}}`, n))
		return fixture.Value(found, "status", "lost") == "L", fmt.Sprint(found.Object["status"])
	})
}

func testStatus(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Respond(func(q *fixture.Call) (*fixture.Reply, error) {
		seen, _, _ := unstructured.NestedString(q.Parent.Object, "status", "phase")
		phase := map[string]string{"": "first", "first": "second", "second": "second"}[seen]
		return &fixture.Reply{Status: map[string]any{"phase": phase, "observedGeneration": int64(99)}}, nil
	})
	st.run(nil)
	st.Parent("p", map[string]any{})
	done := st.Await(fixture.Things, "p", "to have the second status", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "status", "phase") == "second"
	})
	if n, _, _ := unstructured.NestedInt64(done.Object, "status", "observedGeneration"); n != done.GetGeneration() {
		t.Errorf("observedGeneration is %d, want the parent's generation %d", n, done.GetGeneration())
	}
	calls := st.settled()
	if calls > 3 {
		t.Errorf("the hook was called %d times for two changes of status, want at most 3", calls)
	}
	before := st.Get(fixture.Things, "p").GetResourceVersion()
	// What is not in the response goes: the status is replaced as a whole.
	st.Patch(fixture.Things, "p", `{"status":{"foreign":"1"}}`, "status")
	after := st.Await(fixture.Things, "p", "to lose a foreign status field", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "status", "foreign") == "" && o.GetResourceVersion() != before
	})
	st.settled()
	if now := st.Get(fixture.Things, "p").GetResourceVersion(); now != after.GetResourceVersion() {
		t.Errorf("the status was written again although it is the same: %s, then %s", after.GetResourceVersion(), now)
	}
}
