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
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// TestChecklist runs what the checklist of docs/reference/contract.md#s22 has of CompositeControllers alone.
func TestChecklist(t *testing.T) {
	s := fixture.SetUp(t, fixture.Options{Limit: limit})
	// Normal events of the whole process have one budget, which the others spend.
	t.Run("18_NormalEvents", func(t *testing.T) { testNormalEvents(t, s) })
	t.Run("11_NamespacesBeforeWhatIsInThem", func(t *testing.T) { testNamespaceChild(t, s) })
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"03_CreateWritesLastAppliedAndOwner", testCreate},
		{"06_AdoptReleaseAndStrangers", testClaims},
		{"06_AStrangerOfTheSameNameIsNeverTaken", testConflict},
		{"07_SelectorMismatchIsRefused", testSelector},
		{"07_LabelsOfTheParentAreNotThoseOfChildren", testCopiedLabels},
		{"08_StatusIsReplacedOnce", testStatus},
		{"08_StatusOfKubernetesStays", testStatusOfKubernetes},
		{"08_StatusThatIsNotTakenIsSentOnce", testStatusNotTaken},
		{"13_RefusedResponsesAreEvents", testRefusals},
		{"15_FinalizeOnDeletion", testFinalize},
		{"ClusterScopedParents", testClusterParent},
		{"ChildrenThatChangeFasterThanTheHookResponds", testFastChild},
		{"ParentsThatChangeFasterThanTheHookResponds", testFastParent},
		{"ResyncAfterARefusedResponseOfARollout", testResyncOfRollout},
		{"KindsThatAreMissing", testMissingKind},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, s)
		})
	}
}

func testCreate(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Want(fixture.ConfigMap("child", map[string]any{"a": "1"}))
	st.run(nil)
	p := st.Parent("p", map[string]any{})
	child := st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)

	owners := child.GetOwnerReferences()
	if len(owners) != 1 || owners[0].UID != p.GetUID() || owners[0].Kind != "Thing" || owners[0].APIVersion != p.GetAPIVersion() ||
		owners[0].Controller == nil || !*owners[0].Controller || owners[0].BlockOwnerDeletion == nil || !*owners[0].BlockOwnerDeletion {
		t.Errorf("owner references: %+v", owners)
	}
	var last map[string]any
	text := child.GetAnnotations()["metacontroller.k8s.io/last-applied-configuration"]
	if err := json.Unmarshal([]byte(text), &last); err != nil {
		t.Fatalf("last-applied configuration %q: %v", text, err)
	}
	metadata, _ := last["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if metadata["namespace"] != st.Namespace || labels["controller-uid"] != string(p.GetUID()) || metadata["ownerReferences"] != nil {
		t.Errorf("last-applied configuration holds %v", metadata)
	}
	if got := child.GetLabels()["controller-uid"]; got != string(p.GetUID()) {
		t.Errorf("label controller-uid is %q, want the parent's UID", got)
	}
}

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

// beats has another client change an object: a hook that does so with every call is slower than that client.
func (s *stage) beats(r schema.GroupVersionResource, name string, n int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"beat":"%d"}}}`, n)
	_, err := s.Resource(r).Patch(s.T.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// testFastChild has a child change between what the hook is shown and what is written, each time.
func testFastChild(t *testing.T, e *fixture.Environment) {
	for name, edit := range map[string]func(*v1alpha1.CompositeControllerSpec){
		"Merged": nil,
		"Applied": func(spec *v1alpha1.CompositeControllerSpec) {
			spec.ChildResources[0].UpdateStrategy.Apply = v1alpha1.ChildApplyServerSide
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, e)
			calls := 0
			s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
				calls++
				child := fixture.ConfigMap("child", map[string]any{"phase": fixture.Value(c.Parent, "spec", "phase")})
				if c.Children.Find("v1", "ConfigMap", s.Namespace, "child") != nil {
					if err := s.beats(fixture.ConfigMaps, "child", calls); err != nil {
						return nil, err
					}
				}
				if fixture.Value(c.Parent, "spec", "phase") == "last" {
					return &fixture.Reply{}, nil
				}
				return &fixture.Reply{Children: []*hook.Object{child}}, nil
			})
			s.run(edit)
			s.Parent("p", map[string]any{"phase": "first"})
			s.Await(fixture.ConfigMaps, "child", "to be there", cluster.Exists)
			if name == "Applied" { // A merged child is written as a whole, and may be so only as it was read.
				s.Patch(fixture.Things, "p", `{"spec":{"phase":"second"}}`)
				s.Await(fixture.ConfigMaps, "child", "to be changed", func(o *unstructured.Unstructured) bool {
					return fixture.Value(o, "data", "phase") == "second"
				})
			}
			s.Patch(fixture.Things, "p", `{"spec":{"phase":"last"}}`)
			s.Await(fixture.ConfigMaps, "child", "to be gone", cluster.Gone)
		})
	}
}

// testFastParent has a parent change between what the hook is shown and what is written, each time: it has its status, and goes, all the same.
func testFastParent(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e)
	calls := 0
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		calls++
		if err := s.beats(fixture.Things, "p", calls); err != nil {
			return nil, err
		}
		return &fixture.Reply{Status: map[string]any{"phase": "done"}, Finalized: c.Finalizing}, nil
	})
	s.run(func(spec *v1alpha1.CompositeControllerSpec) { spec.Hooks.Finalize = s.At("/sync") })
	s.Parent("p", nil)
	s.Await(fixture.Things, "p", "to have its status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "phase") == "done" })
	s.Delete(fixture.Things, "p")
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
}

// testResyncOfRollout has the hook return a child that is refused, and a time after which it is to be asked again.
func testResyncOfRollout(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e)
	s.script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{ResyncAfterSeconds: 0.2, Children: []*hook.Object{{Object: map[string]any{"kind": "ConfigMap"}}}}, nil
	})
	s.run(func(spec *v1alpha1.CompositeControllerSpec) {
		spec.ChildResources[0].UpdateStrategy.Method = v1alpha1.ChildUpdateRollingInPlace
	})
	s.Parent("p", nil)
	// The back-off alone would take longer than the test may.
	s.script.AwaitCalls(t, "p", 20)
	s.script.Want()
	s.settled()
}
