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
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// finalizes adds a finalize hook that is done when all children are gone.
func (s *stage) finalizes(spec *v1alpha1.CompositeControllerSpec) {
	s.Handle("/finalize", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Finalized: len(q.Children.OfType("v1", "ConfigMap")) == 0 && q.Finalizing}, nil
	}))
	spec.Hooks.Finalize = &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(s.Hook.URL("/finalize"))}}
}

func (s *stage) hasFinalizer(o *unstructured.Unstructured) bool {
	return o != nil && len(o.GetFinalizers()) == 1 && fixture.HasFinalizer(o, s.Finalizer(fixture.Definition{Kind: fixture.Composite}))
}

func testFinalize(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Want(fixture.ConfigMap("child", nil))
	st.run(st.finalizes)
	st.Parent("p", map[string]any{})
	st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	st.Await(fixture.Things, "p", "to have the finalizer", st.hasFinalizer)
	st.Delete(fixture.Things, "p")
	st.Await(fixture.Things, "p", "to be gone", cluster.Gone)
	if st.Get(fixture.ConfigMaps, "child") != nil {
		t.Error("the parent went before the finalize hook had its children deleted")
	}
}

func testOptOut(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Want(fixture.ConfigMap("child", nil))
	st.run(st.finalizes)
	st.Parent("p", map[string]any{})
	st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	st.Patch(fixture.Things, "p", `{"metadata":{"labels":{"`+fixture.Label+`":"somebody-else"}}}`)
	st.Await(fixture.ConfigMaps, "child", "to be deleted", cluster.Gone)
	st.Await(fixture.Things, "p", "to lose the finalizer", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 0 })
	if st.Get(fixture.Things, "p").GetDeletionTimestamp() != nil {
		t.Error("opting out deleted the parent")
	}
}

func testControllerDeletion(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Want()
	st.run(st.finalizes)
	for i := range 5 {
		st.Parent(fmt.Sprintf("p%d", i), map[string]any{})
	}
	for i := range 5 {
		st.Await(fixture.Things, fmt.Sprintf("p%d", i), "to have the finalizer", st.hasFinalizer)
	}
	st.running.Delete()
	st.running.AwaitGone()
	for i := range 5 {
		if o := st.Get(fixture.Things, fmt.Sprintf("p%d", i)); len(o.GetFinalizers()) > 0 {
			t.Errorf("%s keeps the finalizers %v of a controller that is gone", o.GetName(), o.GetFinalizers())
		}
	}
}

func testRelated(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.Create(fixture.ConfigMaps, fixture.ConfigMap("related", map[string]any{"v": "1"}))
	st.Create(fixture.ConfigMaps, fixture.ConfigMap("unrelated", map[string]any{"v": "1"}))
	st.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{
			{APIVersion: "v1", Resource: "configmaps", Names: []string{"related"}},
		}}, nil
	}))
	st.script.Respond(func(q *fixture.Call) (*fixture.Reply, error) {
		seen := ""
		for _, r := range q.Related.OfType("v1", "ConfigMap") {
			seen += fixture.Value(r, "data", "v")
		}
		return &fixture.Reply{Status: map[string]any{"seen": seen}}, nil
	})
	st.run(func(spec *v1alpha1.CompositeControllerSpec) {
		spec.Hooks.Customize = &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(st.Hook.URL("/customize"))}}
	})
	st.Parent("p", map[string]any{})
	sees := func(want string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "seen") == want }
	}
	st.Await(fixture.Things, "p", "to see the related object", sees("1"))
	st.Patch(fixture.ConfigMaps, "related", `{"data":{"v":"2"}}`)
	st.Await(fixture.Things, "p", "to see the change of the related object", sees("2"))
	calls := st.settled()
	st.Patch(fixture.ConfigMaps, "unrelated", `{"data":{"v":"2"}}`)
	if after := st.settled(); after != calls {
		t.Errorf("the hook was called %d times for an object that is not related", after-calls)
	}
	if n := len(st.Requests("/customize")); n != 1 {
		t.Errorf("the customize hook was called %d times for a parent that did not change, want 1", n)
	}
}

func testClusterParent(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		child := fixture.ConfigMap("child", map[string]any{"a": "1"})
		child.SetNamespace(st.Namespace)
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	})
	st.run(func(spec *v1alpha1.CompositeControllerSpec) { spec.ParentResource.Resource = "clusterthings" })
	p := st.In("").Create(fixture.ClusterThings, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fixture.example.com/v1", "kind": "ClusterThing",
		"metadata": map[string]any{"name": st.Name, "labels": map[string]any{fixture.Label: st.Name}},
	}})
	child := st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != p.GetUID() {
		t.Errorf("owner is %v", owner)
	}
	cluster.Eventually(t, limit, "the child to be shown to the hook by namespace and name", func(context.Context) (bool, string) {
		shown := st.script.Last().Children.OfType("v1", "ConfigMap")
		return shown[st.Namespace+"/child"] != nil, fmt.Sprint(shown)
	})
	st.Delete(fixture.ConfigMaps, "child")
	again := st.Await(fixture.ConfigMaps, "child", "to be created again", func(o *unstructured.Unstructured) bool {
		return o != nil && o.GetUID() != child.GetUID()
	})
	if again.GetDeletionTimestamp() != nil {
		t.Error("the new child is being deleted")
	}
}

// testNamespaceChild has a hook that returns a Namespace after many objects in it: none may be refused because the Namespace is not there yet.
func testNamespaceChild(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	name := st.Name + "-child"
	wanted := make([]*hook.Object, 0, 13)
	for i := range 12 {
		child := fixture.ConfigMap(fmt.Sprint("child-", i), map[string]any{"a": "1"})
		child.SetNamespace(name)
		wanted = append(wanted, child)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	st.script.Want(append(wanted, namespace)...)
	st.run(func(spec *v1alpha1.CompositeControllerSpec) {
		spec.ParentResource.Resource = "clusterthings"
		spec.ChildResources = append(spec.ChildResources, fixture.Child{Resource: fixture.Namespaces}.OfComposite())
	})
	st.In("").Create(fixture.ClusterThings, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fixture.example.com/v1", "kind": "ClusterThing",
		"metadata": map[string]any{"name": st.Name, "labels": map[string]any{fixture.Label: st.Name}},
	}})
	for i := range 12 {
		st.In(name).Await(fixture.ConfigMaps, fmt.Sprint("child-", i), "to be created", cluster.Exists)
	}
	// Events about one object come in their order.
	st.script.Want(append(slices.Clone(wanted[1:]), namespace)...)
	st.In("").Patch(fixture.ClusterThings, st.Name, `{"spec":{"n":"2"}}`)
	st.In("").AwaitEvent(st.Name, corev1.EventTypeNormal, "ChildDeleted", "child-0")
	for _, e := range st.In("").Events(st.Name) {
		if e.Type == corev1.EventTypeWarning {
			t.Errorf("there is an event %s: %s", e.Reason, e.Message)
		}
	}
}
