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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// finalizes adds a finalize hook that is done when all children are gone.
func (s *stage) finalizes(spec *v1alpha1.CompositeControllerSpec) {
	s.hook.Handle("/finalize", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Finalized: len(q.Children.OfType("v1", "ConfigMap")) == 0 && q.Finalizing}, nil
	}))
	spec.Hooks.Finalize = &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(s.hook.URL("/finalize"))}}
}

func (s *stage) finalizer() string { return "metacontroller.io/compositecontroller-" + s.controller }

func (s *stage) hasFinalizer(o *unstructured.Unstructured) bool {
	return o != nil && len(o.GetFinalizers()) == 1 && o.GetFinalizers()[0] == s.finalizer()
}

func testFinalize(t *testing.T, s *shared) {
	st := newStage(t, s)
	st.wants(configMap("child", nil))
	st.run(st.finalizes)
	st.parent("p", map[string]any{})
	st.await(configMaps, "child", "to be created", exists)
	st.await(things, "p", "to have the finalizer", st.hasFinalizer)
	st.remove(things, "p")
	st.await(things, "p", "to be gone", gone)
	if st.get(configMaps, "child") != nil {
		t.Error("the parent went before the finalize hook had its children deleted")
	}
}

func testOptOut(t *testing.T, s *shared) {
	st := newStage(t, s)
	st.wants(configMap("child", nil))
	st.run(st.finalizes)
	st.parent("p", map[string]any{})
	st.await(configMaps, "child", "to be created", exists)
	st.patch(things, "p", `{"metadata":{"labels":{"`+selected+`":"somebody-else"}}}`)
	st.await(configMaps, "child", "to be deleted", gone)
	st.await(things, "p", "to lose the finalizer", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 0 })
	if st.get(things, "p").GetDeletionTimestamp() != nil {
		t.Error("opting out deleted the parent")
	}
}

func testControllerDeletion(t *testing.T, s *shared) {
	st := newStage(t, s)
	st.wants()
	st.run(st.finalizes)
	for i := range 5 {
		st.parent(fmt.Sprintf("p%d", i), map[string]any{})
	}
	for i := range 5 {
		st.await(things, fmt.Sprintf("p%d", i), "to have the finalizer", st.hasFinalizer)
	}
	own := st.own.MetacontrollerV1alpha1().CompositeControllers()
	if err := own.Delete(t.Context(), st.controller, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, limit, "the controller to be gone", func(ctx context.Context) (bool, string) {
		c, err := own.Get(ctx, st.controller, metav1.GetOptions{})
		return err != nil, fmt.Sprintf("%v %+v", c.Finalizers, c.Status)
	})
	for i := range 5 {
		if o := st.get(things, fmt.Sprintf("p%d", i)); len(o.GetFinalizers()) > 0 {
			t.Errorf("%s keeps the finalizers %v of a controller that is gone", o.GetName(), o.GetFinalizers())
		}
	}
}

func testRelated(t *testing.T, s *shared) {
	st := newStage(t, s)
	o := configMap("related", map[string]any{"v": "1"})
	o.SetNamespace(st.namespace)
	st.create(configMaps, o)
	other := configMap("unrelated", map[string]any{"v": "1"})
	other.SetNamespace(st.namespace)
	st.create(configMaps, other)
	st.hook.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{
			{APIVersion: "v1", Resource: "configmaps", Names: []string{"related"}},
		}}, nil
	}))
	st.answers(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		seen := ""
		for _, r := range q.Related.OfType("v1", "ConfigMap") {
			seen += value(r, "data", "v")
		}
		return &hook.CompositeResponse{Status: map[string]any{"seen": seen}}, nil
	})
	st.run(func(spec *v1alpha1.CompositeControllerSpec) {
		spec.Hooks.Customize = &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(st.hook.URL("/customize"))}}
	})
	st.parent("p", map[string]any{})
	sees := func(want string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return value(o, "status", "seen") == want }
	}
	st.await(things, "p", "to see the related object", sees("1"))
	st.patch(configMaps, "related", `{"data":{"v":"2"}}`)
	st.await(things, "p", "to see the change of the related object", sees("2"))
	calls := st.quiet()
	st.patch(configMaps, "unrelated", `{"data":{"v":"2"}}`)
	if after := st.quiet(); after != calls {
		t.Errorf("the hook was called %d times for an object that is not related", after-calls)
	}
	if n := len(st.hook.Requests("/customize")); n != 1 {
		t.Errorf("the customize hook was called %d times for a parent that did not change, want 1", n)
	}
}

func testClusterParent(t *testing.T, s *shared) {
	st := newStage(t, s)
	name := st.controller
	st.answers(func(*hook.CompositeRequest) (*hook.CompositeResponse, error) {
		child := configMap("child", map[string]any{"a": "1"})
		child.SetNamespace(st.namespace)
		return &hook.CompositeResponse{Children: []*hook.Object{child}}, nil
	})
	st.run(func(spec *v1alpha1.CompositeControllerSpec) { spec.ParentResource.Resource = "clusterthings" })
	p := st.create(clusterThings, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "conformance.example.com/v1", "kind": "ClusterThing",
		"metadata": map[string]any{"name": name, "labels": map[string]any{selected: st.controller}},
	}})
	t.Cleanup(func() {
		err := s.dynamic.Resource(clusterThings).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("deleting the parent: %v", err)
		}
	})
	child := st.await(configMaps, "child", "to be created", exists)
	if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != p.GetUID() {
		t.Errorf("owner is %v", owner)
	}
	cluster.Eventually(t, limit, "the child to be shown to the hook by namespace and name", func(context.Context) (bool, string) {
		_, q := st.calls()
		shown := q.Children.OfType("v1", "ConfigMap")
		return shown[st.namespace+"/child"] != nil, fmt.Sprint(shown)
	})
	st.remove(configMaps, "child")
	again := st.await(configMaps, "child", "to be created again", func(o *unstructured.Unstructured) bool {
		return o != nil && o.GetUID() != child.GetUID()
	})
	if again.GetDeletionTimestamp() != nil {
		t.Error("the new child is being deleted")
	}
}
