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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// labeled returns a ConfigMap with a label.
func labeled(name, app string) *hook.Object {
	o := fixture.ConfigMap(name, map[string]any{"a": "1"})
	o.SetLabels(map[string]string{"app": app})
	return o
}

// selecting is the spec of a parent that selects by the label app.
func selecting(app string) map[string]any {
	return map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": app}}}
}

func byOwnSelector(spec *v1alpha1.CompositeControllerSpec) { spec.GenerateSelector = nil }

func testClaims(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.Create(fixture.ConfigMaps, labeled("orphan", "mine"))
	st.script.Want(labeled("orphan", "mine"), labeled("kept", "mine"))
	st.run(byOwnSelector)
	p := st.Parent("p", selecting("mine"))

	adopted := st.Await(fixture.ConfigMaps, "orphan", "to be adopted", func(o *unstructured.Unstructured) bool {
		owner := metav1.GetControllerOf(o)
		return owner != nil && owner.UID == p.GetUID()
	})
	if metav1.GetControllerOf(adopted).BlockOwnerDeletion == nil {
		t.Error("the adopted child's owner reference does not block the owner's deletion")
	}

	st.Await(fixture.ConfigMaps, "kept", "to be created", cluster.Exists)
	st.Patch(fixture.ConfigMaps, "kept", `{"metadata":{"labels":{"app":"other"}}}`)
	st.Await(fixture.ConfigMaps, "kept", "to be released, since its labels changed", func(o *unstructured.Unstructured) bool {
		return o != nil && metav1.GetControllerOf(o) == nil
	})
	// The released object now is a stranger of a desired child's name.
	st.AwaitEvent("p", "Warning", "SyncError", "ConfigMap "+st.Namespace+"/kept exists and is not controlled by Thing "+st.Namespace+"/p")
}

func testNormalEvents(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.Create(fixture.ConfigMaps, labeled("orphan", "mine"))
	st.script.Want(labeled("orphan", "mine"), labeled("kept", "mine"))
	st.run(byOwnSelector)
	st.Parent("p", selecting("mine"))
	st.AwaitEvent("p", "Normal", "ChildAdopted", "Adopted ConfigMap "+st.Namespace+"/orphan")
	st.AwaitEvent("p", "Normal", "ChildCreated", "Created ConfigMap "+st.Namespace+"/kept")
	st.Patch(fixture.ConfigMaps, "kept", `{"metadata":{"labels":{"app":"other"}}}`)
	st.AwaitEvent("p", "Normal", "ChildReleased", "Released ConfigMap "+st.Namespace+"/kept")
}

func testConflict(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	before := st.Create(fixture.ConfigMaps, fixture.ConfigMap("child", map[string]any{"theirs": "1"}))
	st.script.Want(fixture.ConfigMap("child", map[string]any{"ours": "1"}))
	st.run(nil)
	st.Parent("p", map[string]any{})
	st.AwaitEvent("p", "Warning", "SyncError", "ConfigMap "+st.Namespace+"/child exists and is not controlled by Thing "+st.Namespace+"/p")
	if after := st.Get(fixture.ConfigMaps, "child"); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the stranger was changed: %v", after.Object)
	}
	st.running.AwaitCounters("conflicts", func(n *v1alpha1.ControllerCounters) bool { return n.Conflicts > 0 })
	// It is retried, and succeeds when the stranger has gone.
	st.Delete(fixture.ConfigMaps, "child")
	st.Await(fixture.ConfigMaps, "child", "to be created", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "ours") == "1" })
}

// testCopiedLabels has a parent that is itself a child of a controller with generateSelector, and a hook that gives its labels to the child.
func testCopiedLabels(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		child := fixture.ConfigMap("child", nil)
		child.SetLabels(c.Parent.GetLabels())
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	})
	st.run(nil)
	st.Selected(fixture.Things, "p", map[string]any{"metadata": map[string]any{"labels": map[string]any{"controller-uid": "outer"}}})
	st.AwaitEvent("p", "Warning", "SyncError",
		"the hook returned the label controller-uid=outer, which it copied from the labels of the parent: leave it out of children, where the server sets it")
}

func testSelector(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Want(labeled("child", "other"))
	st.run(byOwnSelector)
	st.Parent("p", selecting("mine"))
	st.AwaitEvent("p", "Warning", "SyncError", "labels on desired child ConfigMap "+st.Namespace+"/child don't match parent selector app=mine")
	if st.Get(fixture.ConfigMaps, "child") != nil {
		t.Error("the child was created")
	}
	st.Parent("q", map[string]any{})
	st.AwaitEvent("q", "Warning", "SyncError", ".spec.selector must have either matchLabels, matchExpressions, or both")
}
