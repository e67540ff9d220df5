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
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// servedCondition tells whether all resources of a controller are served.
const servedCondition = "ResourcesServed"

// An absence is a controller with a finalize hook and two kinds of children: ConfigMaps, and a custom resource of its own.
type absence struct {
	*fixture.Test

	kind       fixture.Kind
	child      cluster.CustomResource
	script     *fixture.Script
	definition fixture.Definition
}

func newAbsence(t *testing.T, e *fixture.Environment, kind fixture.Kind) *absence {
	t.Helper()
	s := &absence{Test: e.NewTest(t), kind: kind, script: e.NewScript(kind)}
	// A group of its own: nothing that happens to it concerns other tests.
	s.child = cluster.CustomResource{
		Resource: schema.GroupVersionResource{Group: s.Name + "." + fixture.Group, Version: "v1", Resource: "passings"}, Kind: "Passing",
	}
	s.script.Respond(s.respond)
	s.Handle("/hook", s.script)
	s.definition = fixture.Definition{
		Kind: kind, Sync: s.At("/hook"), Finalize: s.At("/hook"),
		Children: []fixture.Child{
			{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}, {Resource: s.child.Resource, Method: v1alpha1.ChildUpdateInPlace},
		},
	}
	return s
}

// inline has inline hooks do what respond does.
func (s *absence) inline() {
	s.T.Helper()
	s.definition.Sync = fixture.Inline(s.T, s.kind, fmt.Sprintf(`
children:
- template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${parent.metadata.name}"}, data: {"n": "${parent.spec.n}"}}
- template: {apiVersion: %s, kind: %s, metadata: {name: "${parent.metadata.name}"}}
`, s.child.Resource.GroupVersion(), s.child.Kind))
	s.definition.Finalize = fixture.Inline(s.T, s.kind, `finalized: children.configmaps.size() == 0`)
}

// respond wants a child of each kind. Finalizing is done when no ConfigMap is left.
func (s *absence) respond(c *fixture.Call) (*fixture.Reply, error) {
	if c.Finalizing {
		return &fixture.Reply{Finalized: len(c.Children.OfType("v1", "ConfigMap")) == 0}, nil
	}
	name, n := c.Parent.GetName(), fixture.Value(c.Parent, "spec", "n")
	return &fixture.Reply{
		Children: []*hook.Object{fixture.ConfigMap(name, map[string]any{"n": n}), {Object: map[string]any{
			"apiVersion": s.child.Resource.GroupVersion().String(), "kind": s.child.Kind, "metadata": map[string]any{"name": name},
		}}},
	}, nil
}

// lose takes the child's kind away, and waits until the controller says so.
func (s *absence) lose(c *controllers.Controller) {
	s.T.Helper()
	s.Kubectl(s.T, "delete", "crd", s.child.Resource.GroupResource().String())
	s.awaitMissing(c)
}

func (s *absence) awaitMissing(c *controllers.Controller) {
	s.T.Helper()
	c.AwaitCondition(servedCondition, "to name the kind", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonResourceNotFound && strings.Contains(c.Message, s.child.Resource.Resource)
	})
}

func (s *absence) regain(c *controllers.Controller) {
	s.T.Helper()
	s.Cluster.Define(s.T, s.child)
	c.AwaitCondition(servedCondition, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
}

func has(n string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "n") == n }
}

func testMissingKind(t *testing.T, e *fixture.Environment) {
	fixture.Table[*absence]{
		Both: map[string]func(*absence){
			"GoesWhileTheControllerRuns": goes, "IsMissingWhenTheControllerStarts": comesLater, "ParentsAreFinalizedWithoutIt": finalizes,
		},
		Stage: func(t *testing.T, kind fixture.Kind, inline bool) *absence {
			s := newAbsence(t, e, kind)
			if inline {
				s.inline()
			}
			return s
		},
	}.Run(t)
}

// goes has the controller serve its parents without the kind, and create its children when it is back.
func goes(s *absence) {
	s.Cluster.Define(s.T, s.child)
	c := s.Run(s.definition)
	s.Parent("p", map[string]any{"n": "1"})
	s.Await(s.child.Resource, "p", "to be created", cluster.Exists)
	s.Await(fixture.ConfigMaps, "p", "to be created", has("1"))
	s.lose(c)
	c.AwaitReady()
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.ConfigMaps, "p", "to be updated", has("2"))
	s.regain(c)
	s.Await(s.child.Resource, "p", "to be created again", cluster.Exists)
	s.Delete(fixture.Things, "p")
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
}

// comesLater starts the controller before the kind is there.
func comesLater(s *absence) {
	c := s.Run(s.definition)
	s.awaitMissing(c)
	s.Parent("p", map[string]any{"n": "1"})
	s.Await(fixture.ConfigMaps, "p", "to be created", has("1"))
	s.regain(c)
	s.Await(s.child.Resource, "p", "to be created", cluster.Exists)
}

// finalizes deletes a parent after the kind of its children, as most uninstallations do.
func finalizes(s *absence) {
	s.Cluster.Define(s.T, s.child)
	c := s.Run(s.definition)
	s.Parent("p", map[string]any{"n": "1"})
	s.Await(s.child.Resource, "p", "to be created", cluster.Exists)
	s.lose(c)
	s.Delete(fixture.Things, "p")
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
	if s.Get(fixture.ConfigMaps, "p") != nil {
		s.T.Error("the parent went before the finalize hook had its children deleted")
	}
}

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
