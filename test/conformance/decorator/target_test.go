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

package decorator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// targets is what a decorator does with its targets themselves.
func targets(t *testing.T, e *fixture.Environment) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"LabelsAndAnnotationsAreSetAndNullRemoves", labelsAndAnnotations},
		{"StatusIsReplacedAndNullLeavesIt", statusOfTargets},
		{"BothSelectorsMustMatch", bothSelectors},
		{"AnObjectThatIsNoLongerSelectedIsFinalized", optOut},
		{"ADeletedTargetIsFinalized", deletion},
		{"DeleteDeletesTheTarget", deleteTarget},
		{"DeleteIsRefusedUnlessAllowed", refuseToDelete},
		{"StatusChangesAreIgnoredWhereTheRuleSaysSo", ignoreStatusChanges},
		{"ATargetThatTheResponseDeselectsHasItsAttachmentsFirst", deselectedByTheResponse},
		{"ATargetThatTheResponseDeselectsWaitsForWhatIsRecreated", deselectedWhileRecreated},
		{"ATargetThatOptsOutIsDeletedAsTheHookAsks", deletedAfterOptingOut},
		{"NamespacesAreTargets", namespaceTargets},
		{"ANamespaceIsNoKeeperOfWhatStays", namespaceThatKeeps},
		{"ObjectsOfAggregatedServersAreTargets", aggregatedTargets},
		{"AConflictDoesNotKeepAttachmentsWaiting", conflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, e)
		})
	}
}

func labelsAndAnnotations(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(*fixture.Call) *fixture.Reply {
		return &fixture.Reply{
			Labels:      map[string]*string{"team/color": new("blue"), "old": nil, "absent": nil},
			Annotations: map[string]*string{"note/a.b": new(""), "gone": nil},
		}
	})
	s.run(nil, fixture.StatefulSets)
	created := s.Selected(fixture.StatefulSets, "web", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"gone": "x", "kept": "y"}},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
			"replicas": int64(0), "serviceName": "web",
		},
	})
	s.Await(fixture.StatefulSets, "web", "to be decorated", func(o *unstructured.Unstructured) bool {
		_, empty := o.GetAnnotations()["note/a.b"]
		_, gone := o.GetAnnotations()["gone"]
		return empty && !gone && o.GetLabels()["team/color"] == "blue" && o.GetAnnotations()["kept"] == "y"
	})
	s.Patch(fixture.StatefulSets, "web", `{"metadata":{"labels":{"old":"1"}}}`)
	done := s.Await(fixture.StatefulSets, "web", "to lose its label", func(o *unstructured.Unstructured) bool {
		_, old := o.GetLabels()["old"]
		return !old
	})
	if done.GetGeneration() != created.GetGeneration() {
		t.Errorf("the generation went from %d to %d: the spec was rewritten", created.GetGeneration(), done.GetGeneration())
	}
	// The controller of StatefulSets writes the status of a new one when it gets to it.
	s.Await(fixture.StatefulSets, "web", "to have the status of its controller", func(o *unstructured.Unstructured) bool {
		observed, _, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		return err == nil && observed == o.GetGeneration() && fixture.Value(o, "status", "updateRevision") != ""
	})
	s.settled()
	before := s.script.Calls("web")
	poked := s.Patch(fixture.StatefulSets, "web", `{"metadata":{"annotations":{"poke":"1"}}}`)
	s.script.AwaitCalls(t, "web", before+1)
	s.settled()
	if now := s.Get(fixture.StatefulSets, "web"); now.GetResourceVersion() != poked.GetResourceVersion() {
		t.Errorf("a target that is as the hook wants it was written, from version %s to %s", poked.GetResourceVersion(), now.GetResourceVersion())
	}
}

func statusOfTargets(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		seen, _, err := unstructured.NestedString(q.Parent.Object, "spec", "mode")
		if err != nil {
			t.Errorf("reading the mode: %v", err)
		}
		switch seen {
		case "set":
			return &fixture.Reply{Status: map[string]any{"mode": "set", "n": int64(1)}}
		case "empty":
			return &fixture.Reply{Status: map[string]any{}}
		}
		return &fixture.Reply{Annotations: map[string]*string{"seen": new(seen)}}
	})
	s.run(nil, bareThings, fullThings)
	s.Selected(fullThings, "full", map[string]any{"spec": map[string]any{"mode": "set"}})
	s.Selected(bareThings, "bare", map[string]any{"spec": map[string]any{"mode": "set"}, "status": map[string]any{"other": "x"}})
	for name, resource := range map[string]schema.GroupVersionResource{"full": fullThings, "bare": bareThings} {
		status := func(want ...string) func(*unstructured.Unstructured) bool {
			return func(o *unstructured.Unstructured) bool {
				got, _, err := unstructured.NestedMap(o.Object, "status")
				if err != nil || len(got) != len(want) {
					return false
				}
				for _, key := range want {
					if _, ok := got[key]; !ok {
						return false
					}
				}
				return true
			}
		}
		s.Await(resource, name, "to have the hook's status and no other", status("mode", "n"))
		s.Patch(resource, name, `{"spec":{"mode":"null"}}`)
		s.Await(resource, name, "to be seen", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["seen"] == "null" })
		if left := s.Get(resource, name); !status("mode", "n")(left) {
			t.Errorf("a null status changed that of %s to %v", name, left.Object["status"])
		}
		s.Patch(resource, name, `{"spec":{"mode":"empty"}}`)
		s.Await(resource, name, "to have an empty status", status())
	}
	s.settled()
}

func bothSelectors(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, nothing)
	s.Run(fixture.Definition{
		Kind: fixture.Decorator, Parents: []schema.GroupVersionResource{fixture.ConfigMaps}, Sync: s.At("/sync"),
		Annotations: map[string]string{"decorate": "yes"},
		EditDecorator: func(spec *v1alpha1.DecoratorControllerSpec) {
			spec.Resources[0].AnnotationSelector = &v1alpha1.AnnotationSelector{
				MatchAnnotations: map[string]string{"decorate": "yes"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}},
			}
		},
	})
	annotated := func(a map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": a}}
	}
	s.Selected(fixture.ConfigMaps, "neither", nil)
	s.Selected(fixture.ConfigMaps, "skipped", annotated(map[string]any{"decorate": "yes", "skip": ""}))
	s.Selected(fixture.ConfigMaps, "both", annotated(map[string]any{"decorate": "yes"}))
	s.script.AwaitCalls(t, "both", 1)
	s.Patch(fixture.ConfigMaps, "skipped", `{"metadata":{"annotations":{"skip":null}}}`)
	s.script.AwaitCalls(t, "skipped", 1)
	s.settled()
	if n := s.script.Calls("neither"); n != 0 {
		t.Errorf("the hook was called %d times for an object without the annotation", n)
	}
}

// cleaningUp responses finalize calls in two steps: attachments away first, then finalized.
func cleaningUp(attachment string) func(*fixture.Call) *fixture.Reply {
	return func(q *fixture.Call) *fixture.Reply {
		if !q.Finalizing {
			return &fixture.Reply{Labels: map[string]*string{"decorated": new("yes")}, Children: attach(attachment)}
		}
		return &fixture.Reply{
			Labels: map[string]*string{"decorated": nil}, Finalized: len(q.Children.OfType("v1", "ConfigMap")) == 0,
		}
	}
}

func optOut(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, cleaningUp("attached"))
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Hooks.Finalize = s.At("/finalize")
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "target", nil)
	s.Await(fixture.ConfigMaps, "attached", "to be there", cluster.Exists)
	finalizer := "metacontroller.io/decoratorcontroller-" + s.Name
	if o := s.Get(fixture.Secrets, "target"); !slices.Contains(o.GetFinalizers(), finalizer) {
		t.Errorf("the finalizers are %v, want %s among them", o.GetFinalizers(), finalizer)
	}
	s.Patch(fixture.Secrets, "target", `{"metadata":{"labels":{"`+fixture.Label+`":null}}}`)
	s.Await(fixture.ConfigMaps, "attached", "to be gone", cluster.Gone)
	o := s.Await(fixture.Secrets, "target", "to be released", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 0 })
	if _, still := o.GetLabels()["decorated"]; still {
		t.Error("the finalize hook's labels were not written")
	}
	n := s.settled()
	s.Patch(fixture.Secrets, "target", `{"metadata":{"labels":{"more":"1"}}}`)
	if m := s.settled(); m != n {
		t.Errorf("the hook was called %d times more for an object that is released", m-n)
	}
}

func deletion(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, cleaningUp("attached"))
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Hooks.Finalize = s.At("/finalize")
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "target", nil)
	s.Await(fixture.ConfigMaps, "attached", "to be there", cluster.Exists)
	s.Delete(fixture.Secrets, "target")
	s.Await(fixture.Secrets, "target", "to be gone", cluster.Gone)
	if q := s.script.Last(); !q.Finalizing || len(q.Children.OfType("v1", "ConfigMap")) != 0 {
		t.Errorf("the last call had finalizing %v and attachments %v", q.Finalizing, q.Children)
	}
}

func tellOfDeletedTarget(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(*fixture.Call) *fixture.Reply { return &fixture.Reply{Delete: true} })
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { spec.Resources[0].AllowDelete = new(true) }, fixture.Secrets)
	s.Selected(fixture.Secrets, "target", nil)
	s.AwaitEvent("target", corev1.EventTypeNormal, "TargetDeleted", s.Name)
}

func deleteTarget(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		return &fixture.Reply{Delete: q.Parent.GetAnnotations()["condemned"] != "", Children: attach("of-" + q.Parent.GetName())}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
		spec.Resources[0].AllowDelete = new(true)
	}, fixture.Secrets)
	first := s.Selected(fixture.Secrets, "target", nil)
	s.Selected(fixture.Secrets, "bystander", nil)
	s.Await(fixture.ConfigMaps, "of-target", "to be there", cluster.Exists)
	s.Patch(fixture.Secrets, "target", `{"metadata":{"annotations":{"condemned":"1"}}}`)
	s.Await(fixture.Secrets, "target", "to be gone", cluster.Gone)
	s.Await(fixture.ConfigMaps, "of-target", "to be collected", cluster.Gone)
	second := s.Selected(fixture.Secrets, "target", nil)
	s.Await(fixture.ConfigMaps, "of-target", "to be there again", cluster.Exists)
	s.settled()
	if now := s.Get(fixture.Secrets, "target"); now == nil || now.GetUID() != second.GetUID() || now.GetUID() == first.GetUID() {
		t.Errorf("the new object was deleted too: %v", now)
	}
	if s.Get(fixture.Secrets, "bystander") == nil {
		t.Error("another target was deleted")
	}
}

// refuseToDelete has the hook ask for what the rule does not allow: nothing of the response is done.
func refuseToDelete(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		return &fixture.Reply{
			Delete: q.Parent.GetAnnotations()["condemned"] != "", Labels: map[string]*string{"done": new("1")},
			Children: attach("of-" + q.Parent.GetName()),
		}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
		spec.Resources[0].AllowDelete = new(true)
	}, fixture.ConfigMaps, fixture.Secrets)
	target := s.Selected(fixture.Secrets, "target", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"condemned": "1"}}})
	s.AwaitEvent("target", corev1.EventTypeWarning, "SyncError", "allowDelete: true, which it does not for secrets")
	now := s.Get(fixture.Secrets, "target")
	if now == nil || now.GetUID() != target.GetUID() || now.GetDeletionTimestamp() != nil || now.GetLabels()["done"] != "" {
		t.Errorf("the target is %v; nothing was to be done with it", now)
	}
	s.Patch(fixture.Secrets, "target", `{"metadata":{"annotations":{"condemned":null}}}`)
	s.Await(fixture.ConfigMaps, "of-target", "to be there", cluster.Exists)
	// Of the kind for which it is allowed, an object goes.
	s.Selected(fixture.ConfigMaps, "other", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"condemned": "1"}}})
	s.Await(fixture.ConfigMaps, "other", "to be gone", cluster.Gone)
}

// ignoreStatusChanges is about targets without a status: package hooks has those with one.
func ignoreStatusChanges(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, nothing)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { spec.Resources[0].IgnoreStatusChanges = new(true) }, bareThings)
	s.Selected(bareThings, "bare", nil)
	s.script.AwaitCalls(t, "bare", 1)
	s.settled()
	bare := s.script.Calls("bare")
	s.Patch(bareThings, "bare", `{"spec":{"a":"b"}}`)
	s.script.AwaitCalls(t, "bare", bare+1)
}

// deselectedByTheResponse has the hook mark a target as done, after which it is not selected, and attach what cannot be created at first.
func deselectedByTheResponse(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(*fixture.Call) *fixture.Reply {
		return &fixture.Reply{Labels: map[string]*string{"done": new("1")}, Children: attach("receipt")}
	})
	s.CreateIn(s.Namespace, fixture.ConfigMaps, "receipt", nil, nil)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
		spec.Resources[0].LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "done", Operator: metav1.LabelSelectorOpDoesNotExist}}
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "order", nil)
	s.AwaitEvent("order", corev1.EventTypeWarning, "SyncError", "receipt")
	if o := s.Get(fixture.Secrets, "order"); o.GetLabels()["done"] != "" {
		t.Error("the target is marked, though its attachment could not be created: nobody would try again")
	}
	s.Delete(fixture.ConfigMaps, "receipt")
	s.Await(fixture.Secrets, "order", "to be marked", func(o *unstructured.Unstructured) bool { return o.GetLabels()["done"] == "1" })
	if s.Get(fixture.ConfigMaps, "receipt") == nil {
		t.Error("the target is marked before its attachment is there")
	}
}

// deselectedWhileRecreated has the hook mark a target as done together with a change of its attachment, which takes two syncs.
func deselectedWhileRecreated(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		if q.Parent.GetAnnotations()["paid"] == "" {
			return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("receipt", map[string]any{"paid": "no"})}}
		}
		return &fixture.Reply{
			Labels: map[string]*string{"done": new("1")}, Children: []*hook.Object{fixture.ConfigMap("receipt", map[string]any{"paid": "yes"})},
		}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateRecreate)
		spec.Resources[0].LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "done", Operator: metav1.LabelSelectorOpDoesNotExist}}
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "order", nil)
	s.Await(fixture.ConfigMaps, "receipt", "to be there", cluster.Exists)
	s.Patch(fixture.Secrets, "order", `{"metadata":{"annotations":{"paid":"yes"}}}`)
	s.Await(fixture.Secrets, "order", "to be marked", func(o *unstructured.Unstructured) bool { return o.GetLabels()["done"] == "1" })
	if paid := fixture.Value(s.Get(fixture.ConfigMaps, "receipt"), "data", "paid"); paid != "yes" {
		t.Errorf("the target is marked, and the receipt says %q of it", paid)
	}
}

// deletedAfterOptingOut has the finalize hook of a target that is not selected any more ask for its deletion. It keeps the finalizer until it is in
// deletion: a deletion that fails is tried again.
func deletedAfterOptingOut(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		return &fixture.Reply{Finalized: q.Finalizing, Delete: q.Finalizing}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Hooks.Finalize = s.At("/finalize")
		spec.Resources[0].AllowDelete = new(true)
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "target", nil)
	s.Await(fixture.Secrets, "target", "to have the finalizer", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 1 })
	s.Patch(fixture.Secrets, "target", `{"metadata":{"labels":{"`+fixture.Label+`":null}}}`)
	s.Await(fixture.Secrets, "target", "to be gone", cluster.Gone)
	if q := s.script.Last(); q.Parent.GetDeletionTimestamp() == nil {
		t.Error("the finalizer was taken off before the target was deleted")
	}
}

func namespaceTargets(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		attached := fixture.ConfigMap("default", map[string]any{"for": q.Parent.GetName()})
		attached.SetNamespace(q.Parent.GetName())
		return &fixture.Reply{Annotations: map[string]*string{"decorated": new("yes")}, Children: []*hook.Object{attached}}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Namespaces)
	s.In("").Patch(fixture.Namespaces, s.Namespace, `{"metadata":{"labels":{"`+fixture.Label+`":"`+s.Name+`"}}}`)
	s.Await(fixture.ConfigMaps, "default", "to be there", cluster.Exists)
	s.In("").Await(fixture.Namespaces, s.Namespace, "to be annotated", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["decorated"] == "yes" })
	cluster.Eventually(t, limit, "the hook to be shown the attachment", func(context.Context) (bool, string) {
		shown := s.script.Last().Children
		return shown.Find("v1", "ConfigMap", s.Namespace, "default") != nil, fmt.Sprint(shown)
	})
}

// namespaceThatKeeps has attachments stay without their target, which is the namespace that they are in and goes with.
func namespaceThatKeeps(t *testing.T, e *fixture.Environment) {
	for _, apply := range []v1alpha1.ChildApplyStrategy{v1alpha1.ChildApplyMerge, v1alpha1.ChildApplyServerSide} {
		t.Run(string(apply), func(t *testing.T) {
			s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
				stays := fixture.ConfigMap("stays", map[string]any{"of": q.Parent.GetLabels()["poke"]})
				stays.SetNamespace(q.Parent.GetName())
				return &fixture.Reply{Children: []*hook.Object{stays}}
			})
			s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
				attached := fixture.Child{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace, OnParentDeletion: v1alpha1.ParentDeletionRetain}.OfDecorator()
				attached.UpdateStrategy.Apply = apply
				spec.Attachments = append(spec.Attachments, attached)
			}, fixture.Namespaces)
			s.In("").Patch(fixture.Namespaces, s.Namespace, `{"metadata":{"labels":{"`+fixture.Label+`":"`+s.Name+`","poke":"1"}}}`)
			s.Await(fixture.ConfigMaps, "stays", "to be there", cluster.Exists)
			before := s.settled()
			s.In("").Patch(fixture.Namespaces, s.Namespace, `{"metadata":{"labels":{"poke":"2"}}}`)
			changed := s.Await(fixture.ConfigMaps, "stays", "to be updated", func(o *unstructured.Unstructured) bool {
				return o != nil && fixture.Value(o, "data", "of") == "2"
			})
			if owners := changed.GetOwnerReferences(); len(owners) != 1 || owners[0].Controller == nil || !*owners[0].Controller {
				t.Errorf("the owners are %v, want the namespace once", owners)
			}
			s.In("").Patch(fixture.Namespaces, s.Namespace, `{"metadata":{"annotations":{"poke":"3"}}}`)
			cluster.Eventually(t, limit, "another sync", func(context.Context) (bool, string) { n := s.script.All(); return n > before+1, fmt.Sprint(n) })
			s.settled()
			if after := s.Get(fixture.ConfigMaps, "stays"); after.GetResourceVersion() != changed.GetResourceVersion() {
				t.Errorf("it was written again: %v, then %v", changed.Object, after.Object)
			}
		})
	}
}

func aggregatedTargets(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(*fixture.Call) *fixture.Reply {
		return &fixture.Reply{Annotations: map[string]*string{"decorated": new("yes")}, Children: attach("attached")}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Revisions)
	s.Selected(fixture.Revisions, "target", map[string]any{"parentPatch": map[string]any{"spec": map[string]any{}}})
	s.Await(fixture.Revisions, "target", "to be annotated", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["decorated"] == "yes" })
	s.Await(fixture.ConfigMaps, "attached", "to be there", cluster.Exists)
}

func conflict(t *testing.T, e *fixture.Environment) {
	var s *stage
	calls := 0
	s = newStage(t, e, func(*fixture.Call) *fixture.Reply {
		// Another client writes while the hook thinks, at the first call.
		if calls++; calls == 1 {
			s.Patch(fixture.Secrets, "target", `{"metadata":{"annotations":{"meanwhile":"1"}}}`)
		}
		return &fixture.Reply{Labels: map[string]*string{"calls": new(fmt.Sprint(min(calls, 2)))}, Children: attach("attached")}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "target", nil)
	s.Await(fixture.ConfigMaps, "attached", "to be there", cluster.Exists)
	s.Await(fixture.Secrets, "target", "to be labeled by a later call", func(o *unstructured.Unstructured) bool { return o.GetLabels()["calls"] == "2" })
}
