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
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

const (
	marker      = "metacontroller.k8s.io/decorator-controller"
	lastApplied = "metacontroller.k8s.io/last-applied-configuration"
)

// attach returns one ConfigMap to attach.
func attach(name string) []*hook.Object {
	return []*hook.Object{configMap(name, map[string]any{"a": "1"})}
}

// TestAttachments is what a decorator does with attachments.
func TestAttachments(t *testing.T) {
	s := setUp(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *shared)
	}{
		{"AreMarkedOwnedAndRepaired", markedAndOwned},
		{"OfOthersAreLeftAlone", foreignAttachments},
		{"OfSeveralKindsOfTargets", severalKinds},
		{"TheirStatusIsNotWrittenAndAnEventSaysSo", statusOfAttachments},
		{"RequestsHaveTheFixedKeys", requestKeys},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, s)
		})
	}
}

func markedAndOwned(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(*request) *response { return &response{Attachments: attach("attached")} })
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace) }, secrets)
	target := s.createLabeled(secrets, "Secret", "target", nil)
	o := s.Await(configMaps, "attached", "to be there", cluster.Exists)
	if o.GetAnnotations()[marker] != s.controller || o.GetAnnotations()[lastApplied] == "" {
		t.Errorf("the annotations are %v", o.GetAnnotations())
	}
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.UID != target.GetUID() || owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
		t.Errorf("the owners are %v", o.GetOwnerReferences())
	}
	s.Patch(configMaps, "attached", `{"data":{"a":"2","b":"kept"}}`)
	s.Await(configMaps, "attached", "to be repaired", func(o *unstructured.Unstructured) bool {
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		return err == nil && data["a"] == "1" && data["b"] == "kept"
	})
	s.Delete(configMaps, "attached")
	s.Await(configMaps, "attached", "to be there again", cluster.Exists)
	s.responses(nothing)
	s.Patch(secrets, "target", `{"metadata":{"labels":{"poke":"1"}}}`)
	s.Await(configMaps, "attached", "to be gone", cluster.Gone)
}

func foreignAttachments(t *testing.T, shared *shared) {
	s := newStage(t, shared, nothing)
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace) }, secrets)
	target := s.createLabeled(secrets, "Secret", "target", nil)
	owned := func(name, by string) {
		o := configMap(name, nil)
		o.SetAnnotations(map[string]string{marker: by})
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(target, corev1.SchemeGroupVersion.WithKind("Secret"))})
		s.Create(configMaps, o)
	}
	owned("of-another", "another")
	owned("of-ours", s.controller)
	s.Await(configMaps, "of-ours", "to be deleted, for the hook does not want it", cluster.Gone)
	if s.Get(configMaps, "of-another") == nil {
		t.Error("the attachment of another decorator was deleted")
	}
	s.Create(configMaps, configMap("orphan", nil))
	s.responses(func(*request) *response { return &response{Attachments: attach("orphan")} })
	s.Patch(secrets, "target", `{"metadata":{"labels":{"poke":"1"}}}`)
	s.AwaitEvent("target", corev1.EventTypeWarning, "SyncError", "ConfigMap "+s.Namespace+"/orphan exists and is not controlled by")
	if o := s.Get(configMaps, "orphan"); len(o.GetOwnerReferences()) != 0 {
		t.Errorf("an orphan was adopted: %v", o.GetOwnerReferences())
	}
}

func severalKinds(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(q *request) *response {
		return &response{Attachments: attach("of-" + q.Object.GetKind() + "-" + q.Object.GetName())}
	})
	s.responses(func(q *request) *response { return &response{Attachments: attach(q.Object.GetName())} })
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, configMaps, v1alpha1.ChildUpdateRecreate) }, secrets, bareThings)
	s.createLabeled(secrets, "Secret", "secret", nil)
	s.createLabeled(bareThings, "BareThing", "thing", nil)
	for name, kind := range map[string]string{"secret": "Secret", "thing": "BareThing"} {
		o := s.Await(configMaps, name, "to be there", cluster.Exists)
		if owner := metav1.GetControllerOf(o); owner == nil || owner.Kind != kind {
			t.Errorf("%s is controlled by %v, want a %s", name, owner, kind)
		}
		before := o.GetUID()
		s.Patch(configMaps, name, `{"data":{"a":"2"}}`)
		s.Await(configMaps, name, "to be created anew", func(o *unstructured.Unstructured) bool { return o != nil && o.GetUID() != before })
	}
}

func statusOfAttachments(t *testing.T, shared *shared) {
	s := newStage(t, shared, func(*request) *response {
		service := &hook.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "svc"},
			"spec":   map[string]any{"clusterIP": "None", "selector": map[string]any{"a": "b"}},
			"status": map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "10.1.2.3"}}}},
		}}
		return &response{Attachments: []*hook.Object{service}}
	})
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) { attaches(spec, services, v1alpha1.ChildUpdateInPlace) }, secrets)
	s.createLabeled(secrets, "Secret", "target", nil)
	s.Await(services, "svc", "to be there", cluster.Exists)
	s.AwaitEvent("target", corev1.EventTypeWarning, "ChildStatusIgnored", "Service "+s.Namespace+"/svc")
	s.quiet()
}

func requestKeys(t *testing.T, shared *shared) {
	for _, version := range []v1alpha1.HookVersion{v1alpha1.HookVersionV1, v1alpha1.HookVersionV2} {
		s := newStage(t, shared, func(*request) *response { return &response{Attachments: attach("attached")} })
		s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
			attaches(spec, configMaps, v1alpha1.ChildUpdateInPlace)
			attaches(spec, deployments, v1alpha1.ChildUpdateInPlace)
			spec.Hooks.Sync.Version = &version
		}, secrets)
		s.createLabeled(secrets, "Secret", "target", nil)
		s.Await(configMaps, "attached", "to be there", cluster.Exists)
		s.awaitCalls("target", 2)
		s.quiet()
		calls := s.hook.Requests("/sync")
		var body map[string]json.RawMessage
		if err := json.Unmarshal(calls[len(calls)-1].Body, &body); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"controller", "object", "attachments", "related", "finalizing"} {
			if _, ok := body[key]; !ok || len(body) != 5 {
				t.Errorf("%s: the request has %d fields and %q among them is %v", version, len(body), key, ok)
			}
		}
		var shown map[string]map[string]any
		if err := json.Unmarshal(body["attachments"], &shown); err != nil {
			t.Fatal(err)
		}
		key := "attached"
		if version == v1alpha1.HookVersionV2 {
			key = s.Namespace + "/attached"
		}
		if shown["ConfigMap.v1"][key] == nil || shown["Deployment.apps/v1"] == nil {
			t.Errorf("%s: the attachments are shown as %v", version, shown)
		}
	}
}
