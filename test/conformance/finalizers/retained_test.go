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

package finalizers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// childrenStay deletes parents with a child that stays and one that does not. The garbage collector of the cluster takes part. While the controller is
// paused it is the only one that acts.
func childrenStay(t *testing.T, e *fixture.Environment) {
	for name, tc := range map[string]struct {
		kind    fixture.Kind
		cascade string
		// paused says that the controller is, until the garbage collector has done what it does.
		paused bool
		// finalizes says that there is a finalize hook, which wants no children.
		finalizes bool
	}{
		"Composite/Background":           {kind: fixture.Composite, cascade: "background"},
		"Composite/Foreground/Paused":    {kind: fixture.Composite, cascade: "foreground", paused: true},
		"Decorator/Foreground":           {kind: fixture.Decorator, cascade: "foreground"},
		"Decorator/Background/Finalizes": {kind: fixture.Decorator, cascade: "background", finalizes: true},
	} {
		stay := func(t *testing.T, inline bool) {
			t.Parallel()
			s := newStage(t, e, tc.kind, fixture.Things)
			s.inline = inline
			s.definition.Children = []fixture.Child{
				{Resource: fixture.ConfigMaps, OnParentDeletion: v1alpha1.ParentDeletionRetain}, {Resource: fixture.Secrets},
			}
			s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.GenerateSelector = nil }
			s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
				if c.Finalizing {
					return &fixture.Reply{Finalized: len(c.Children["ConfigMap.v1"])+len(c.Children["Secret.v1"]) == 0}, nil
				}
				secret := fixture.ConfigMap("goes", nil)
				secret.Object["kind"] = "Secret"
				list := []*hook.Object{fixture.ConfigMap("stays", map[string]any{"a": "1"}), secret}
				for _, o := range list {
					o.SetLabels(map[string]string{"app": "mine"})
				}
				return &fixture.Reply{Children: list}, nil
			}, `
children:
- template: {apiVersion: v1, kind: ConfigMap, metadata: {name: stays, labels: {app: mine}}, data: {a: "1"}}
- template: {apiVersion: v1, kind: Secret, metadata: {name: goes, labels: {app: mine}}}
`, `finalized: children.configmaps.size() + children.secrets.size() == 0`)
			if !tc.finalizes {
				s.definition.Finalize = nil
			}
			running := s.Run(s.definition)
			spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "mine"}}}
			p := s.Parent("p", spec)
			before := s.Await(fixture.ConfigMaps, "stays", "to be created", cluster.Exists)
			s.Await(fixture.Secrets, "goes", "to be created", cluster.Exists)
			if owners := before.GetOwnerReferences(); len(owners) != 2 || !metav1.IsControlledBy(before, p) {
				t.Errorf("the child has the owners %v, want its parent and its namespace", owners)
			}
			if tc.paused {
				running.Patch(`{"spec":{"paused":true}}`)
				running.AwaitCondition(v1alpha1.ConditionPaused, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
			}
			s.Kubectl(t, "delete", "--wait=false", "--cascade="+tc.cascade, "-n", s.Namespace, fixture.Things.GroupResource().String(), "p")
			if tc.paused {
				s.Await(fixture.Secrets, "goes", "to be deleted by the garbage collector", cluster.Gone)
				s.Await(fixture.ConfigMaps, "stays", "to lose its parent to the garbage collector", func(o *unstructured.Unstructured) bool {
					return o != nil && !metav1.IsControlledBy(o, p)
				})
				running.Patch(`{"spec":{"paused":false}}`)
			}
			s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
			s.Await(fixture.Secrets, "goes", "to be gone", cluster.Gone)
			after := s.Get(fixture.ConfigMaps, "stays")
			_, marked := after.GetAnnotations()[children.DecoratorMark]
			if after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil || len(after.GetOwnerReferences()) > 0 || marked {
				t.Errorf("the child is %v, want it as it was, without owners and mark", after.Object)
			}
			s.AwaitEvent("p", corev1.EventTypeNormal, "ChildRetained", "ConfigMap "+s.Namespace+"/stays")
			if tc.kind != fixture.Composite {
				return
			}
			again := s.Parent("p", spec)
			s.Await(fixture.ConfigMaps, "stays", "to be adopted by the next parent of that name", func(o *unstructured.Unstructured) bool {
				return o != nil && metav1.IsControlledBy(o, again) && len(o.GetOwnerReferences()) == 2
			})
		}
		t.Run(name, func(t *testing.T) { stay(t, false) })
		t.Run(name+"/Inline", func(t *testing.T) { stay(t, true) })
	}
}
