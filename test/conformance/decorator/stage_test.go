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

// Package decorator tests DecoratorControllers on a real control plane with the server's binary, as
// docs/reference/contract.md#s22 and docs/reference/compatibility.md say. It holds tests only.
package decorator

import (
	"os"
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

const limit = cluster.Limit

// Targets without and with a status subresource.
var (
	bareThings = schema.GroupVersionResource{Group: fixture.Group, Version: "v1", Resource: "barethings"}
	fullThings = fixture.Things
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestDecorators has one server for all.
func TestDecorators(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{
		Limit: limit, Resources: []cluster.CustomResource{{Resource: bareThings, Kind: "BareThing", WithoutStatus: true}},
	})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		// Normal events of the whole process have one budget, which the others spend.
		{"AnEventTellsOfADeletedTarget", tellOfDeletedTarget},
		{"Attachments", attachments},
		{"Targets", targets},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

// A stage is one test of a DecoratorController, whose hooks are one script.
type stage struct {
	*fixture.Test

	script *fixture.Script
}

func newStage(t *testing.T, e *fixture.Environment, decide func(*fixture.Call) *fixture.Reply) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(fixture.Decorator)}
	s.responses(decide)
	s.Handle("/sync", s.script)
	s.Handle("/finalize", s.script)
	return s
}

// responses changes what the hooks respond.
func (s *stage) responses(decide func(*fixture.Call) *fixture.Reply) {
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) { return decide(c), nil })
}

// run creates the controller, changed by edit, and waits until it runs.
func (s *stage) run(edit func(*v1alpha1.DecoratorControllerSpec), targets ...schema.GroupVersionResource) {
	s.T.Helper()
	s.Run(fixture.Definition{Kind: fixture.Decorator, Parents: targets, Sync: s.At("/sync"), EditDecorator: edit})
}

// attaches declares a kind of attachments.
func attaches(spec *v1alpha1.DecoratorControllerSpec, r schema.GroupVersionResource, method v1alpha1.ChildUpdateMethod) {
	spec.Attachments = append(spec.Attachments, fixture.Child{Resource: r, Method: method}.OfDecorator())
}

// settled waits until the controller has dealt with all that was written before, and returns how often the hooks were called.
func (s *stage) settled() int {
	s.T.Helper()
	s.Settle()
	return s.script.All()
}

// nothing is a response that changes nothing.
func nothing(*fixture.Call) *fixture.Reply { return &fixture.Reply{} }

const (
	marker      = "metacontroller.k8s.io/decorator-controller"
	lastApplied = "metacontroller.k8s.io/last-applied-configuration"
)

// attach returns one ConfigMap to attach.
func attach(name string) []*hook.Object {
	return []*hook.Object{fixture.ConfigMap(name, map[string]any{"a": "1"})}
}

// attachments is what a decorator does with attachments.
func attachments(t *testing.T, e *fixture.Environment) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"AreMarkedOwnedAndRepaired", markedAndOwned},
		{"OfOthersAreLeftAlone", foreignAttachments},
		{"TheTargetIsNoneOfThem", targetAsAttachment},
		{"OfSeveralKindsOfTargets", severalKinds},
		{"TheirStatusIsNotWrittenAndAnEventSaysSo", statusOfAttachments},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, e)
		})
	}
}

func markedAndOwned(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(*fixture.Call) *fixture.Reply { return &fixture.Reply{Children: attach("attached")} })
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Secrets)
	target := s.Selected(fixture.Secrets, "target", nil)
	o := s.Await(fixture.ConfigMaps, "attached", "to be there", cluster.Exists)
	if o.GetAnnotations()[marker] != s.Name || o.GetAnnotations()[lastApplied] == "" {
		t.Errorf("the annotations are %v", o.GetAnnotations())
	}
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.UID != target.GetUID() || owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
		t.Errorf("the owners are %v", o.GetOwnerReferences())
	}
	s.Patch(fixture.ConfigMaps, "attached", `{"data":{"a":"2","b":"kept"}}`)
	s.Await(fixture.ConfigMaps, "attached", "to be repaired", func(o *unstructured.Unstructured) bool {
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		return err == nil && data["a"] == "1" && data["b"] == "kept"
	})
	s.Delete(fixture.ConfigMaps, "attached")
	s.Await(fixture.ConfigMaps, "attached", "to be there again", cluster.Exists)
	s.responses(nothing)
	s.Patch(fixture.Secrets, "target", `{"metadata":{"labels":{"poke":"1"}}}`)
	s.Await(fixture.ConfigMaps, "attached", "to be gone", cluster.Gone)
}

func foreignAttachments(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, nothing)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.Secrets)
	target := s.Selected(fixture.Secrets, "target", nil)
	owned := func(name, by string) {
		o := fixture.ConfigMap(name, nil)
		o.SetAnnotations(map[string]string{marker: by})
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(target, corev1.SchemeGroupVersion.WithKind("Secret"))})
		s.Create(fixture.ConfigMaps, o)
	}
	owned("of-another", "another")
	owned("of-ours", s.Name)
	s.Await(fixture.ConfigMaps, "of-ours", "to be deleted, for the hook does not want it", cluster.Gone)
	if s.Get(fixture.ConfigMaps, "of-another") == nil {
		t.Error("the attachment of another decorator was deleted")
	}
	s.Create(fixture.ConfigMaps, fixture.ConfigMap("orphan", nil))
	s.responses(func(*fixture.Call) *fixture.Reply { return &fixture.Reply{Children: attach("orphan")} })
	s.Patch(fixture.Secrets, "target", `{"metadata":{"labels":{"poke":"1"}}}`)
	s.AwaitEvent("target", corev1.EventTypeWarning, "SyncError", "ConfigMap "+s.Namespace+"/orphan exists and is not controlled by")
	if o := s.Get(fixture.ConfigMaps, "orphan"); len(o.GetOwnerReferences()) != 0 {
		t.Errorf("an orphan was adopted: %v", o.GetOwnerReferences())
	}
}

// targetAsAttachment has a hook that returns its target, to label it: it is told how to, and not to delete it.
func targetAsAttachment(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply { return &fixture.Reply{Children: attach(q.Parent.GetName())} })
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateInPlace)
	}, fixture.ConfigMaps)
	s.Selected(fixture.ConfigMaps, "target", nil)
	s.AwaitEvent("target", corev1.EventTypeWarning, "SyncError", "ConfigMap "+s.Namespace+"/target is the target itself, which cannot be an attachment; "+
		"to change it, return labels, annotations or status of the response in place of it")
}

func severalKinds(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(q *fixture.Call) *fixture.Reply {
		return &fixture.Reply{Children: attach("of-" + q.Parent.GetKind() + "-" + q.Parent.GetName())}
	})
	s.responses(func(q *fixture.Call) *fixture.Reply { return &fixture.Reply{Children: attach(q.Parent.GetName())} })
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.ConfigMaps, v1alpha1.ChildUpdateRecreate)
	}, fixture.Secrets, bareThings)
	s.Selected(fixture.Secrets, "secret", nil)
	s.Selected(bareThings, "thing", nil)
	for name, kind := range map[string]string{"secret": "Secret", "thing": "BareThing"} {
		o := s.Await(fixture.ConfigMaps, name, "to be there", cluster.Exists)
		if owner := metav1.GetControllerOf(o); owner == nil || owner.Kind != kind {
			t.Errorf("%s is controlled by %v, want a %s", name, owner, kind)
		}
		before := o.GetUID()
		s.Patch(fixture.ConfigMaps, name, `{"data":{"a":"2"}}`)
		s.Await(fixture.ConfigMaps, name, "to be created anew", func(o *unstructured.Unstructured) bool { return o != nil && o.GetUID() != before })
	}
}

func statusOfAttachments(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, func(*fixture.Call) *fixture.Reply {
		service := &hook.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "svc"},
			"spec":   map[string]any{"clusterIP": "None", "selector": map[string]any{"a": "b"}},
			"status": map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "10.1.2.3"}}}},
		}}
		return &fixture.Reply{Children: []*hook.Object{service}}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		attaches(spec, fixture.Services, v1alpha1.ChildUpdateInPlace)
	}, fixture.Secrets)
	s.Selected(fixture.Secrets, "target", nil)
	s.Await(fixture.Services, "svc", "to be there", cluster.Exists)
	s.AwaitEvent("target", corev1.EventTypeWarning, "ChildStatusIgnored", "Service "+s.Namespace+"/svc")
	s.settled()
}
