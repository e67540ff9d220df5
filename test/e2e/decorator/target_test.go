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
)

// TestTargets is what a decorator does with its targets themselves.
func TestTargets(t *testing.T) {
	s := setUp(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *shared)
	}{
		{"LabelsAndAnnotationsAreSetAndNullRemoves", labelsAndAnnotations},
		{"StatusIsReplacedAndNullLeavesIt", statusOfTargets},
		{"BothSelectorsMustMatch", bothSelectors},
		{"AnObjectThatIsNoLongerSelectedIsFinalized", optOut},
		{"ADeletedTargetIsFinalized", deletion},
		{"DeleteDeletesTheTarget", deleteTarget},
		{"StatusChangesAreIgnoredWhereTheRuleSaysSo", ignoreStatusChanges},
		{"ResyncAfterSeconds", resyncAfter},
		{"NamespacesAreTargets", namespaceTargets},
		{"ObjectsOfAggregatedServersAreTargets", aggregatedTargets},
		{"AConflictDoesNotKeepAttachmentsWaiting", conflict},
		{"TheControllerIsDeleted", controllerDeleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, s)
		})
	}
}

func labelsAndAnnotations(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(*request) *response {
		return &response{
			Labels:      map[string]*string{"team/color": new("blue"), "old": nil, "absent": nil},
			Annotations: map[string]*string{"note/a.b": new(""), "gone": nil},
		}
	})
	s.run(nil, statefulSets)
	created := s.createLabeled(statefulSets, "StatefulSet", "web", map[string]any{
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
	s.Await(statefulSets, "web", "to be decorated", func(o *unstructured.Unstructured) bool {
		_, empty := o.GetAnnotations()["note/a.b"]
		_, gone := o.GetAnnotations()["gone"]
		return empty && !gone && o.GetLabels()["team/color"] == "blue" && o.GetAnnotations()["kept"] == "y"
	})
	s.Patch(statefulSets, "web", `{"metadata":{"labels":{"old":"1"}}}`)
	done := s.Await(statefulSets, "web", "to lose its label", func(o *unstructured.Unstructured) bool {
		_, old := o.GetLabels()["old"]
		return !old
	})
	if done.GetGeneration() != created.GetGeneration() {
		t.Errorf("the generation went from %d to %d: the spec was rewritten", created.GetGeneration(), done.GetGeneration())
	}
	s.quiet()
	before, _ := s.called("web")
	poked := s.Patch(statefulSets, "web", `{"metadata":{"annotations":{"poke":"1"}}}`)
	s.awaitCalls("web", before+1)
	s.quiet()
	if now := s.Get(statefulSets, "web"); now.GetResourceVersion() != poked.GetResourceVersion() {
		t.Errorf("a target that is as the hook wants it was written, from version %s to %s", poked.GetResourceVersion(), now.GetResourceVersion())
	}
}

func statusOfTargets(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(q *request) *response {
		seen, _, err := unstructured.NestedString(q.Object.Object, "spec", "mode")
		if err != nil {
			t.Errorf("reading the mode: %v", err)
		}
		switch seen {
		case "set":
			return &response{Status: map[string]any{"mode": "set", "n": int64(1)}}
		case "empty":
			return &response{Status: map[string]any{}}
		}
		return &response{Annotations: map[string]*string{"seen": new(seen)}}
	})
	s.run(nil, bareThings, fullThings)
	s.createLabeled(fullThings, "FullThing", "full", map[string]any{"spec": map[string]any{"mode": "set"}})
	s.createLabeled(bareThings, "BareThing", "bare", map[string]any{"spec": map[string]any{"mode": "set"}, "status": map[string]any{"other": "x"}})
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
	s.quiet()
}

func bothSelectors(t *testing.T, shared *shared) {
	s := newStage(t, shared, nothing)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Resources[0].AnnotationSelector = &v1alpha1.AnnotationSelector{
			MatchAnnotations: map[string]string{"decorate": "yes"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}},
		}
	}, configMaps)
	annotated := func(a map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": a}}
	}
	s.createLabeled(configMaps, "ConfigMap", "neither", nil)
	s.createLabeled(configMaps, "ConfigMap", "skipped", annotated(map[string]any{"decorate": "yes", "skip": ""}))
	s.createLabeled(configMaps, "ConfigMap", "both", annotated(map[string]any{"decorate": "yes"}))
	s.awaitCalls("both", 1)
	s.Patch(configMaps, "skipped", `{"metadata":{"annotations":{"skip":null}}}`)
	s.awaitCalls("skipped", 1)
	s.quiet()
	if n, _ := s.called("neither"); n != 0 {
		t.Errorf("the hook was called %d times for an object without the annotation", n)
	}
}

// cleaningUp responses finalize calls in two steps: attachments away first, then finalized.
func cleaningUp(attachment string) func(*request) *response {
	return func(q *request) *response {
		if !q.Finalizing {
			return &response{Labels: map[string]*string{"decorated": new("yes")}, Attachments: attach(attachment)}
		}
		return &response{
			Labels: map[string]*string{"decorated": nil}, Finalized: len(q.Attachments.OfType("v1", "ConfigMap")) == 0,
		}
	}
}

func optOut(t *testing.T, shared *shared) {
	s := newStage(t, shared, cleaningUp("attached"))
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Hooks.Finalize = s.hookAt("/finalize")
		attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace)
	}, secrets)
	s.createLabeled(secrets, "Secret", "target", nil)
	s.Await(configMaps, "attached", "to be there", cluster.Exists)
	finalizer := "metacontroller.io/decoratorcontroller-" + s.controller
	if o := s.Get(secrets, "target"); !slices.Contains(o.GetFinalizers(), finalizer) {
		t.Errorf("the finalizers are %v, want %s among them", o.GetFinalizers(), finalizer)
	}
	s.Patch(secrets, "target", `{"metadata":{"labels":{"`+selected+`":null}}}`)
	s.Await(configMaps, "attached", "to be gone", cluster.Gone)
	o := s.Await(secrets, "target", "to be released", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 0 })
	if _, still := o.GetLabels()["decorated"]; still {
		t.Error("the finalize hook's labels were not written")
	}
	n := s.quiet()
	s.Patch(secrets, "target", `{"metadata":{"labels":{"more":"1"}}}`)
	if m := s.quiet(); m != n {
		t.Errorf("the hook was called %d times more for an object that is released", m-n)
	}
}

func deletion(t *testing.T, shared *shared) {
	s := newStage(t, shared, cleaningUp("attached"))
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Hooks.Finalize = s.hookAt("/finalize")
		attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace)
	}, secrets)
	s.createLabeled(secrets, "Secret", "target", nil)
	s.Await(configMaps, "attached", "to be there", cluster.Exists)
	s.Delete(secrets, "target")
	s.Await(secrets, "target", "to be gone", cluster.Gone)
	if q := s.lastRequest(); !q.Finalizing || len(q.Attachments.OfType("v1", "ConfigMap")) != 0 {
		t.Errorf("the last call had finalizing %v and attachments %v", q.Finalizing, q.Attachments)
	}
}

func deleteTarget(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(q *request) *response {
		return &response{Delete: q.Object.GetAnnotations()["condemned"] != "", Attachments: attach("of-" + q.Object.GetName())}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace) }, secrets)
	first := s.createLabeled(secrets, "Secret", "target", nil)
	s.createLabeled(secrets, "Secret", "bystander", nil)
	s.Await(configMaps, "of-target", "to be there", cluster.Exists)
	s.Patch(secrets, "target", `{"metadata":{"annotations":{"condemned":"1"}}}`)
	s.Await(secrets, "target", "to be gone", cluster.Gone)
	s.Await(configMaps, "of-target", "to be collected", cluster.Gone)
	s.AwaitEvent("target", corev1.EventTypeNormal, "TargetDeleted", s.controller)
	second := s.createLabeled(secrets, "Secret", "target", nil)
	s.Await(configMaps, "of-target", "to be there again", cluster.Exists)
	s.quiet()
	if now := s.Get(secrets, "target"); now == nil || now.GetUID() != second.GetUID() || now.GetUID() == first.GetUID() {
		t.Errorf("the new object was deleted too: %v", now)
	}
	if s.Get(secrets, "bystander") == nil {
		t.Error("another target was deleted")
	}
}

func ignoreStatusChanges(t *testing.T, shared *shared) {
	s := newStage(t, shared, nothing)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { spec.Resources[0].IgnoreStatusChanges = new(true) }, fullThings, bareThings)
	s.createLabeled(fullThings, "FullThing", "full", nil)
	s.createLabeled(bareThings, "BareThing", "bare", nil)
	s.awaitCalls("full", 1)
	s.awaitCalls("bare", 1)
	s.quiet()
	full, _ := s.called("full")
	s.Patch(fullThings, "full", `{"status":{"a":"b"}}`, "status")
	s.quiet()
	if n, _ := s.called("full"); n != full {
		t.Errorf("a status change called the hook %d times", n-full)
	}
	s.Patch(fullThings, "full", `{"metadata":{"labels":{"a":"b"}}}`)
	s.awaitCalls("full", full+1)
	bare, _ := s.called("bare")
	s.Patch(bareThings, "bare", `{"spec":{"a":"b"}}`)
	s.awaitCalls("bare", bare+1)
}

func resyncAfter(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(*request) *response { return &response{ResyncAfterSeconds: 0.2} })
	s.run(nil, configMaps)
	s.createLabeled(configMaps, "ConfigMap", "target", nil)
	s.awaitCalls("target", 5)
	s.responses(nothing)
	s.quiet()
}

func namespaceTargets(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(q *request) *response {
		attached := configMap("default", map[string]any{"for": q.Object.GetName()})
		attached.SetNamespace(q.Object.GetName())
		return &response{Annotations: map[string]*string{"decorated": new("yes")}, Attachments: []*hook.Object{attached}}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace) }, namespaces)
	s.In("").Patch(namespaces, s.Namespace, `{"metadata":{"labels":{"`+selected+`":"`+s.controller+`"}}}`)
	s.Await(configMaps, "default", "to be there", cluster.Exists)
	s.In("").Await(namespaces, s.Namespace, "to be annotated", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["decorated"] == "yes" })
	cluster.Eventually(t, limit, "the hook to be shown the attachment", func(context.Context) (bool, string) {
		shown := s.lastRequest().Attachments
		return shown.Find("v1", "ConfigMap", s.Namespace, "default") != nil, fmt.Sprint(shown)
	})
}

func aggregatedTargets(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(*request) *response {
		return &response{Annotations: map[string]*string{"decorated": new("yes")}, Attachments: attach("attached")}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace) }, revisions)
	s.createLabeled(revisions, "ControllerRevision", "target", map[string]any{"parentPatch": map[string]any{"spec": map[string]any{}}})
	s.Await(revisions, "target", "to be annotated", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["decorated"] == "yes" })
	s.Await(configMaps, "attached", "to be there", cluster.Exists)
}

func conflict(t *testing.T, shared *shared) {
	var s *stage
	s = newStage(t, shared, func(*request) *response {
		// Somebody else writes while the hook thinks, at the first call.
		if s.calls["target"] == 1 {
			s.Patch(secrets, "target", `{"metadata":{"annotations":{"meanwhile":"1"}}}`)
		}
		return &response{Labels: map[string]*string{"calls": new(fmt.Sprint(min(s.calls["target"], 2)))}, Attachments: attach("attached")}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace) }, secrets)
	s.createLabeled(secrets, "Secret", "target", nil)
	s.Await(configMaps, "attached", "to be there", cluster.Exists)
	s.Await(secrets, "target", "to be labeled by a later call", func(o *unstructured.Unstructured) bool { return o.GetLabels()["calls"] == "2" })
}

func controllerDeleted(t *testing.T, shared *shared) {
	s := newStage(t, shared, nothing)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { spec.Hooks.Finalize = s.hookAt("/finalize") }, secrets)
	s.createLabeled(secrets, "Secret", "target", nil)
	s.Await(secrets, "target", "to have the finalizer", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 1 })
	s.running.Delete()
	s.Await(secrets, "target", "to be released", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 0 })
	s.running.AwaitGone()
}
