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
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testRefusals sends every response that docs/reference/compatibility.md refuses, each from one parent of one controller.
func testRefusals(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	child := func(text string) string { return `{"children":[` + configMapText("good") + `,` + text + `]}` }
	responses := map[string]struct{ body, event string }{
		"null":       {`null`, "must be a JSON object"},
		"empty":      {``, "must be a JSON object"},
		"nil-child":  {child(`null`), "children[1]"},
		"undeclared": {child(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`), "Secret x is of kind Secret in v1, which is not declared; add it to spec.childResources"},
		"elsewhere": {
			child(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default"}}`),
			"ConfigMap default/x is not in its parent's namespace NS; a namespaced parent can only have children in its namespace",
		},
		"cluster": {
			child(`{"apiVersion":"fixture.example.com/v1","kind":"ClusterThing","metadata":{"name":"x"}}`),
			"ClusterThing x is cluster-scoped, but its parent is in namespace NS",
		},
		"nameless":  {child(`{"apiVersion":"v1","kind":"ConfigMap"}`), "children[1]: ConfigMap has no metadata.name"},
		"generated": {child(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-"}}`), "has generateName but no name"},
		"twice":     {child(configMapText("good")), "ConfigMap NS/good is there twice, also as children[0]"},
		"labels":    {child(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":1}}}`), "invalid labels on desired child ConfigMap NS/x"},
	}
	st.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q hook.CompositeRequest
		hooktest.Composite(func(got *hook.CompositeRequest) (*hook.CompositeResponse, error) {
			q = *got
			return &hook.CompositeResponse{}, nil
		}).ServeHTTP(discard{http.Header{}}, r)
		hooktest.Body("application/json", responses[q.Parent.GetName()].body).ServeHTTP(w, r)
	}))
	st.run(func(spec *v1alpha1.CompositeControllerSpec) {
		spec.ChildResources = append(spec.ChildResources, fixture.Child{Resource: fixture.ClusterThings, Method: v1alpha1.ChildUpdateOnDelete}.OfComposite())
	})
	for _, name := range slices.Sorted(maps.Keys(responses)) {
		st.Parent(name, map[string]any{})
	}
	for _, name := range slices.Sorted(maps.Keys(responses)) {
		st.AwaitEvent(name, "Warning", "SyncError", strings.ReplaceAll(responses[name].event, "NS", st.Namespace))
	}
	if st.Get(fixture.ConfigMaps, "good") != nil {
		t.Error("a child of a refused response was created: a response is refused as a whole")
	}
	st.running.AwaitCounters("rejectedAnswers", func(n *v1alpha1.ControllerCounters) bool { return n.RejectedAnswers >= int64(len(responses)) })
}

func configMapText(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
}

// discard takes a response that nobody wants.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// testHostile lets one controller's hook give every hostile response, while another controller goes on as usual.
func testHostile(t *testing.T, s *fixture.Environment) {
	hostile, healthy := newStage(t, s), newStage(t, s)
	handlers := hooktest.Hostile()
	names := slices.Sorted(maps.Keys(handlers))
	var mu sync.Mutex
	asked := map[string]int{}
	for _, name := range names {
		hostile.Handle("/"+name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked[name]++
			mu.Unlock()
			handlers[name].ServeHTTP(w, r)
		}))
	}
	var controllers []string
	for i, name := range names {
		c := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", hostile.Name, i)}}
		url, selector := hostile.Hook.URL("/"+name), metav1.LabelSelector{MatchLabels: map[string]string{fixture.Label: hostile.Name}}
		c.Spec = v1alpha1.CompositeControllerSpec{
			GenerateSelector: new(bool),
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{
				ResourceRule: v1alpha1.ResourceRule{APIVersion: "fixture.example.com/v1", Resource: "things"}, LabelSelector: &selector,
			},
			ChildResources: []v1alpha1.CompositeControllerChildResourceRule{fixture.Child{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}.OfComposite()},
			Hooks: &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
				URL: &url, Timeout: &metav1.Duration{Duration: time.Second},
			}}},
		}
		*c.Spec.GenerateSelector = true
		if _, err := s.Versioned.MetacontrollerV1alpha1().CompositeControllers().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllers = append(controllers, c.Name)
	}
	t.Cleanup(func() {
		for _, name := range controllers {
			err := s.Versioned.MetacontrollerV1alpha1().CompositeControllers().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
			if err != nil {
				t.Errorf("deleting %s: %v", name, err)
			}
		}
	})
	healthy.script.Respond(func(q *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap(q.Parent.GetName(), map[string]any{"n": fixture.Value(q.Parent, "spec", "n")})}}, nil
	})
	healthy.run(nil)
	hostile.Parent("victim", map[string]any{})
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		healthy.Parent(name, map[string]any{})
		healthy.Await(fixture.ConfigMaps, name, "to be created while other hooks misbehave", cluster.Exists)
	}
	cluster.Eventually(t, limit, "every hostile hook to be called", func(context.Context) (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		var missing []string
		for _, name := range names {
			if asked[name] == 0 {
				missing = append(missing, name)
			}
		}
		return len(missing) == 0, strings.Join(missing, ", ")
	})
	hostile.AwaitEvent("victim", "Warning", "SyncError", "sync hook failed")
	list, err := s.Dynamic.Resource(fixture.ConfigMaps).Namespace(hostile.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if owner := metav1.GetControllerOf(&o); owner != nil && owner.Name == "victim" {
			t.Errorf("a hostile response led to ConfigMap %s", o.GetName())
		}
	}
	select {
	case <-s.Server.Ended():
		t.Fatal("the server ended")
	default:
	}
	healthy.Patch(fixture.Things, "p0", `{"spec":{"n":"2"}}`)
	healthy.Await(fixture.ConfigMaps, "p0", "to be updated after all that", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "n") == "2" })
}
