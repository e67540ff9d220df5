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

package brakes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func deletionGuard(t *testing.T, e *fixture.Environment) {
	tests(t, e, fixture.Table[*stage]{
		Both: map[string]func(*stage){"HeldUntilConfirmed": heldUntilConfirmed, "Finalization": finalization},
		Composites: map[string]func(*stage){
			"HeldUntilTheHookIsCorrected": heldUntilCorrected, "Recreation": recreation, "Share": share, "GarbageCollection": collection,
			"OptOut": optOut, "ParentInDeletion": inDeletion,
		},
	})
	t.Run("Rollout", func(t *testing.T) { rollout(newStage(t, e, fixture.Composite)) })
	t.Run("Restart", func(t *testing.T) { restart(newStage(t, e, fixture.Composite)) })
	t.Run("ShareBesideAnotherController", func(t *testing.T) { shareBesideAnother(newStage(t, e, fixture.Composite)) })
	e.DefineManifests(t, fixture.DualManifest("counted", "Counted", "v1alpha1", "v1"))
	t.Run("ShareOfAKindInTwoVersions", func(t *testing.T) { shareOfTwoVersions(newStage(t, e, fixture.Composite)) })
}

// guarded runs the controller with a guard.
func (s *stage) guarded(limit intstr.IntOrString) {
	s.T.Helper()
	guard := &v1alpha1.DeletionGuard{MaxDeletions: &limit}
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.DeletionGuard = guard }
	s.definition.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) { spec.DeletionGuard = guard }
	s.run()
}

// awaitHeld waits until deletions are held, and returns what kubectl is to be given to confirm them.
func (s *stage) awaitHeld(parts ...string) []string {
	s.T.Helper()
	held := s.controller.AwaitCondition(v1alpha1.ConditionDeletionsHeld, "to be true", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonLimitPassed &&
			!slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(c.Message, part) })
	})
	_, command, ok := strings.Cut(held.Message, "kubectl ")
	if !ok {
		s.T.Fatalf("no command in %q", held.Message)
	}
	return strings.Fields(command)
}

func (s *stage) awaitNoneHeld() {
	s.T.Helper()
	s.controller.AwaitCondition(v1alpha1.ConditionDeletionsHeld, "to be false", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNoneHeld
	})
}

// heldUntilConfirmed has the hook want less. The rest of the sync goes on.
func heldUntilConfirmed(s *stage) {
	s.guarded(intstr.FromInt32(2))
	s.Parent("a", map[string]any{"n": 4, "data": "1"})
	s.Parent("b", map[string]any{"n": 2, "data": "1"})
	s.awaitNames("a-0", "a-1", "a-2", "a-3", "b-0", "b-1")
	s.Patch(fixture.Things, "a", `{"spec":{"n":1,"data":"2"}}`)
	command := s.awaitHeld("3 deletions, of 1 parent", "(2)", s.controller.Name)
	s.Await(fixture.ConfigMaps, "a-0", "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	s.Await(fixture.Things, "a", "to have its status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "n") == "1" })
	s.AwaitEvent("a", corev1.EventTypeWarning, "DeletionsHeld", strings.Join(command, " "))
	// While deletions are held, none passes, also not one that would not pass the limit.
	s.Patch(fixture.Things, "b", `{"spec":{"n":1}}`)
	s.awaitHeld("4 deletions, of 2 parents")
	if names := s.names(); len(names) != 6 {
		s.T.Errorf("of 6 children there are %v", names)
	}
	s.In("default").AwaitEvent(s.controller.Name, corev1.EventTypeWarning, "DeletionsHeld", strings.Join(command, " "))
	s.Kubectl(s.T, command...)
	s.awaitNames("a-0", "b-0")
	s.awaitNoneHeld()
}

// heldUntilCorrected has a hook make a mistake, and then not.
func heldUntilCorrected(s *stage) {
	s.guarded(intstr.FromInt32(0))
	s.Parent("a", map[string]any{"n": 2})
	s.awaitNames("a-0", "a-1")
	s.Patch(fixture.Things, "a", `{"spec":{"n":1}}`)
	s.awaitHeld("1 deletion, of 1 parent")
	s.Patch(fixture.Things, "a", `{"spec":{"n":2}}`)
	s.awaitNoneHeld()
	if names := s.names(); !slices.Equal(names, []string{"a-0", "a-1"}) {
		s.T.Errorf("the children are %v", names)
	}
}

// recreation counts, since a child is away for a time, and its successor may never come.
func recreation(s *stage) {
	s.definition.Children[0].Method = v1alpha1.ChildUpdateRecreate
	s.guarded(intstr.FromInt32(1))
	s.Parent("a", map[string]any{"n": 3, "data": "1"})
	s.awaitNames("a-0", "a-1", "a-2")
	before := s.versions()
	s.Patch(fixture.Things, "a", `{"spec":{"data":"2"}}`)
	command := s.awaitHeld("3 deletions, of 1 parent")
	if now := s.versions(); !slices.Equal(now, before) {
		s.T.Errorf("children were written:\n%v\n%v", before, now)
	}
	s.Kubectl(s.T, command...)
	for _, name := range []string{"a-0", "a-1", "a-2"} {
		s.Await(fixture.ConfigMaps, name, "to be made again", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	}
}

// finalization has the finalize hook remove the children. The parent waits.
func finalization(s *stage) {
	s.definition.Finalize = s.finalize
	s.guarded(intstr.FromInt32(1))
	s.Parent("a", map[string]any{"n": 2})
	s.awaitNames("a-0", "a-1")
	s.Delete(fixture.Things, "a")
	command := s.awaitHeld("2 deletions, of 1 parent")
	if a := s.Get(fixture.Things, "a"); a == nil || !fixture.HasFinalizer(a, s.Finalizer(s.definition)) {
		s.T.Errorf("the parent is %v", a)
	}
	s.Kubectl(s.T, command...)
	s.Await(fixture.Things, "a", "to be gone", cluster.Gone)
	s.awaitNames()
}

// share takes the limit from the children of all parents.
func share(s *stage) {
	s.guarded(intstr.FromString("20%"))
	s.Parent("a", map[string]any{"n": 8})
	s.Parent("b", map[string]any{"n": 7})
	s.Await(fixture.ConfigMaps, "a-7", "to be there", cluster.Exists)
	s.Await(fixture.ConfigMaps, "b-6", "to be there", cluster.Exists)
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"spec":{"n":5}}`) // 3 of 15.
	s.Await(fixture.ConfigMaps, "a-5", "to be gone", cluster.Gone)
	s.Patch(fixture.Things, "b", `{"spec":{"n":6}}`)
	s.awaitHeld("1 deletion, of 1 parent", "(20%)")
	s.controller.Patch(`{"spec":{"deletionGuard":{"maxDeletions":"50%"}}}`)
	s.Await(fixture.ConfigMaps, "b-6", "to be gone", cluster.Gone)
	s.awaitNoneHeld()
}

// collection leaves what goes with its parent to the garbage collector.
func collection(s *stage) {
	s.guarded(intstr.FromInt32(0))
	s.Parent("a", map[string]any{"n": 3})
	s.awaitNames("a-0", "a-1", "a-2")
	s.Delete(fixture.Things, "a")
	for _, name := range []string{"a-0", "a-1", "a-2"} {
		s.Await(fixture.ConfigMaps, name, "to be collected", cluster.Gone)
	}
	s.Idle(s.controller)
	s.controller.AwaitCondition(v1alpha1.ConditionDeletionsHeld, "not to be there", func(c metav1.Condition) bool { return c.Type == "" })
}

// optOut deselects a parent whose hook is done at once. It stays finalized until its children may go.
func optOut(s *stage) {
	s.definition.Finalize = s.At("/hook")
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if c.Finalizing {
			return &fixture.Reply{Finalized: true}, nil
		}
		return &fixture.Reply{Children: wanted(c.Parent)}, nil
	})
	s.guarded(intstr.FromInt32(1))
	s.Parent("a", map[string]any{"n": 2})
	s.awaitNames("a-0", "a-1")
	s.Patch(fixture.Things, "a", `{"metadata":{"labels":{"`+fixture.Label+`":null}}}`)
	command := s.awaitHeld("2 deletions, of 1 parent")
	if a := s.Get(fixture.Things, "a"); a == nil || !fixture.HasFinalizer(a, s.Finalizer(s.definition)) {
		s.T.Errorf("the parent is %v", a)
	}
	s.Kubectl(s.T, command...)
	s.awaitNames()
	s.Await(fixture.Things, "a", "to be without the finalizer", func(o *unstructured.Unstructured) bool {
		return o != nil && !fixture.HasFinalizer(o, s.Finalizer(s.definition))
	})
}

// inDeletion deletes a parent whose deletions are held, and which somebody else keeps. Its children are left to the garbage collector.
func inDeletion(s *stage) {
	s.guarded(intstr.FromInt32(0))
	s.Parent("a", map[string]any{"n": 2})
	s.awaitNames("a-0", "a-1")
	s.Patch(fixture.Things, "a", `{"metadata":{"finalizers":["test.example.com/keep"]},"spec":{"n":1}}`)
	s.awaitHeld("1 deletion, of 1 parent")
	s.Delete(fixture.Things, "a")
	s.awaitNoneHeld()
	s.Patch(fixture.Things, "a", `{"metadata":{"finalizers":null}}`)
	s.awaitNames()
}

// shareBesideAnother has most children of the parents be those of another controller.
func shareBesideAnother(s *stage) {
	other := s.NewScript(fixture.Decorator)
	other.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		var attachments []*hook.Object
		for i := range 20 {
			attachments = append(attachments, fixture.ConfigMap(fmt.Sprint("other-", c.Parent.GetName(), "-", i), nil))
		}
		return &fixture.Reply{Children: attachments}, nil
	})
	s.Handle("/other", other)
	s.Run(fixture.Definition{
		Kind: fixture.Decorator, Name: s.Name + "-other", Sync: s.At("/other"), Children: []fixture.Child{{Resource: fixture.ConfigMaps}},
	})
	s.guarded(intstr.FromString("10%"))
	s.Parent("a", map[string]any{"n": 10})
	s.Await(fixture.ConfigMaps, "a-9", "to be there", cluster.Exists)
	s.Await(fixture.ConfigMaps, "other-a-19", "to be there", cluster.Exists)
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"spec":{"n":8}}`)
	s.awaitHeld("2 deletions, of 1 parent", "(10%)")
}

// shareOfTwoVersions declares the kind of the children in two versions.
func shareOfTwoVersions(s *stage) {
	older, newer := fixture.Dual("v1alpha1", "counted"), fixture.Dual("v1", "counted")
	s.definition.Children = []fixture.Child{{Resource: older}, {Resource: newer}}
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		children := wanted(c.Parent)
		for _, child := range children {
			child.Object["apiVersion"], child.Object["kind"] = fixture.Group+"/v1alpha1", "Counted"
		}
		return &fixture.Reply{Children: children}, nil
	})
	s.guarded(intstr.FromString("20%"))
	s.Parent("a", map[string]any{"n": 10})
	s.Await(newer, "a-9", "to be there", cluster.Exists)
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"spec":{"n":7}}`)
	s.awaitHeld("3 deletions, of 1 parent", "(20%)")
}

// rollout recreates children one after the other.
func rollout(s *stage) {
	s.definition.Children[0].Method = v1alpha1.ChildUpdateRollingRecreate
	s.guarded(intstr.FromInt32(2))
	s.Parent("a", map[string]any{"n": 5, "data": "1"})
	s.awaitNames("a-0", "a-1", "a-2", "a-3", "a-4")
	s.Patch(fixture.Things, "a", `{"spec":{"data":"2"}}`)
	command := s.awaitHeld("1 deletion, of 1 parent")
	after := func(name string) string { return fixture.Value(s.Get(fixture.ConfigMaps, name), "data", "data") }
	if got := []string{after("a-0"), after("a-1"), after("a-2"), after("a-4")}; !slices.Equal(got, []string{"2", "2", "1", "1"}) {
		s.T.Errorf("the rollout has come to %v, want two children on the new revision", got)
	}
	s.Kubectl(s.T, command...)
	s.Await(fixture.ConfigMaps, "a-4", "to be made again", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
}

// restart lets the minute begin anew. What was held is held again, and needs another confirmation.
func restart(s *stage) {
	s.guarded(intstr.FromInt32(1))
	s.Parent("a", map[string]any{"n": 4})
	s.awaitNames("a-0", "a-1", "a-2", "a-3")
	s.Patch(fixture.Things, "a", `{"spec":{"n":1}}`)
	before := s.awaitHeld("3 deletions, of 1 parent")
	if err := s.Server.Stop(); err != nil {
		s.T.Fatal(err)
	}
	s.Server.Restart()
	s.Patch(fixture.Things, "a", `{"spec":{"n":0}}`)
	command := s.awaitHeld("4 deletions, of 1 parent")
	if slices.Equal(before, command) {
		s.T.Errorf("%v confirms two holds", command)
	}
	s.Kubectl(s.T, before...)
	s.Parent("b", map[string]any{"n": 1})
	s.Await(fixture.ConfigMaps, "b-0", "to be there", cluster.Exists)
	if names := s.names(); len(names) != 5 {
		s.T.Errorf("a confirmation of before the restart lets children go: %v", names)
	}
	s.Kubectl(s.T, command...)
	s.awaitNames("b-0")
}
