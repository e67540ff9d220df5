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
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// wantsAChildInItsNamespace has a finalize hook that wants a child in a namespace that is being deleted.
func wantsAChildInItsNamespace(s *stage) {
	s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		if !c.Finalizing {
			return &fixture.Reply{}, nil
		}
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("cleanup", nil)}}, nil
	}, `{}`, `{children: [{template: {apiVersion: v1, kind: ConfigMap, metadata: {name: cleanup}}}], finalized: "false"}`)
	// The event has the way out, too, since the error does not pass.
	s.namespaceKeepsParent("because it is being terminated", true)
}

func failsInItsNamespace(s *stage) {
	s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		if !c.Finalizing {
			return &fixture.Reply{}, nil
		}
		return nil, errors.New("out of order")
	}, `{}`, `finalized: "{'': true}['out of order']"`)
	s.namespaceKeepsParent("out of order", false)
}

// namespaceKeepsParent deletes the namespace of a parent that is not finalized: no event can be created there, so that the controller object says
// why, and how to go on. The event of the controller says what is given, and the way out if wayOut is true.
func (s *stage) namespaceKeepsParent(says string, wayOut bool) {
	s.definition.Children = []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}}
	running := s.Run(s.definition)
	s.Parent("p", nil)
	s.Await(fixture.Things, "p", "to have the finalizer", s.carries)
	s.In("").Delete(fixture.Namespaces, s.Namespace)
	event := s.In("default").AwaitEventAs(s.Name, "about the parent", func(e *corev1.Event) bool {
		return e.Reason == "SyncError" && strings.HasPrefix(e.Message, "Thing "+s.Namespace+"/p: ") && strings.Contains(e.Message, says)
	})
	if has := strings.Contains(event.Message, "kubectl patch"); has != wayOut {
		s.T.Errorf("the event is %q; want it to say how to go on: %t", event.Message, wayOut)
	}
	s.letGo(stuck(running, says, s.Namespace+"/p").Message)
	s.In("").Await(fixture.Namespaces, s.Namespace, "to be gone", cluster.Gone)
}

// stuck waits until the controller says what keeps its parents.
func stuck(c *controllers.Controller, parts ...string) metav1.Condition {
	return c.AwaitCondition(v1alpha1.ConditionProgressing, "to say what keeps the parent", func(c metav1.Condition) bool {
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return false
			}
		}
		return c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonFinalizing
	})
}

// letGo runs the command in a message.
func (s *stage) letGo(message string) {
	s.T.Helper()
	_, command, found := strings.Cut(message, "kubectl ")
	words, patch, quoted := strings.Cut(command, " '")
	patch, _, closed := strings.Cut(patch, "'")
	if !found || !quoted || !closed {
		s.T.Fatalf("there is no command in %q", message)
	}
	s.Kubectl(s.T, append(strings.Fields(words), patch)...)
}

// relatedKindIsGone deletes a parent after the kind of its related objects was uninstalled.
func relatedKindIsGone(s *stage) {
	extras := cluster.CustomResource{Kind: "Extra", Resource: schema.GroupVersionResource{Group: s.Name + "." + fixture.Group, Version: "v1", Resource: "extras"}}
	typeKey := hook.TypeKey(extras.Resource.GroupVersion().String(), extras.Kind)
	s.Cluster.Define(s.T, extras)
	s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		objects, shown := c.Related[typeKey]
		return &fixture.Reply{Status: map[string]any{"synced": "yes"}, Finalized: c.Finalizing && shown && len(objects) == 0}, nil
	}, `status: {synced: "yes"}`, `finalized: related.extras.size() == 0`)
	s.definition.Customize = s.Customizing(s.definition.Kind, s.inline, hook.RelatedResourceRule{APIVersion: extras.Resource.GroupVersion().String(), Resource: extras.Resource.Resource})
	s.Run(s.definition)
	s.Parent("p", nil)
	s.Parent("stays", nil)
	for _, name := range []string{"p", "stays"} {
		s.Await(fixture.Things, name, "to have the finalizer", s.carries)
	}
	s.Await(fixture.Things, "stays", "to be synced", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "synced") == "yes" })
	s.Kubectl(s.T, "delete", "crd", extras.Resource.GroupResource().String())
	s.AwaitEvent("stays", corev1.EventTypeWarning, "SyncError", "can't find resource extras")

	s.Delete(fixture.Things, "p")
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
	s.AwaitEvent("p", corev1.EventTypeWarning, "RelatedNotServed", "extras in "+extras.Resource.GroupVersion().String())
	s.Delete(fixture.Things, "stays")
	s.Await(fixture.Things, "stays", "to be gone", cluster.Gone)
}

// optOutLeavesNoChildBehind deselects a parent whose hook says at once that it is done. Its child is changed before it can be
// deleted, so that the deletion is refused.
func optOutLeavesNoChildBehind(s *stage) {
	s.definition.Children = []fixture.Child{{Resource: fixture.ConfigMaps}}
	finalized := 0
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if !c.Finalizing {
			return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("a", nil)}}, nil
		}
		if finalized++; finalized == 1 {
			patch := []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`)
			if _, err := s.Resource(fixture.ConfigMaps).Patch(s.T.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return nil, err
			}
		}
		return &fixture.Reply{Finalized: true}, nil
	})
	s.Run(s.definition)
	s.Parent("a", nil)
	s.Await(fixture.ConfigMaps, "a", "to be there", cluster.Exists)
	s.Await(fixture.Things, "a", "to have the finalizer", s.carries)
	s.Patch(fixture.Things, "a", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, fixture.Label))
	s.Await(fixture.Things, "a", "to be without the finalizer", s.released)
	s.Await(fixture.ConfigMaps, "a", "to be gone", cluster.Gone)
}

// namespaceGoes deletes the namespace of a parent whose children roll: its revisions go with all the rest, and none can be created any more.
func namespaceGoes(t *testing.T, e *fixture.Environment) {
	for name, done := range map[string]func(*fixture.Call) *fixture.Reply{
		"AtOnce": func(*fixture.Call) *fixture.Reply { return &fixture.Reply{Finalized: true} },
		"WhenTheChildrenAreGone": func(c *fixture.Call) *fixture.Reply {
			return &fixture.Reply{Finalized: len(c.Children.OfType("v1", "ConfigMap")) == 0}
		},
		"WithChildrenThatAreWanted": func(*fixture.Call) *fixture.Reply {
			return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("a", nil)}, Finalized: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, e, fixture.Composite)
			s.definition.Children = []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateRollingInPlace}}
			s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
				if c.Finalizing {
					return done(c), nil
				}
				return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("a", nil)}}, nil
			})
			s.goesWithItsNamespace()
		})
	}
	t.Run("WithInlineHooks", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, e, fixture.Composite)
		s.definition.Children = []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateRollingInPlace}}
		s.definition.Sync = fixture.Inline(t, fixture.Composite, `children: [{template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}]`)
		s.definition.Finalize = fixture.Inline(t, fixture.Composite, `finalized: children.configmaps.size() == 0`)
		s.goesWithItsNamespace()
	})
}

// goesWithItsNamespace runs the controller, and deletes the namespace once there is a child.
func (s *stage) goesWithItsNamespace() {
	s.T.Helper()
	s.Run(s.definition)
	s.Parent("a", nil)
	s.Await(fixture.ConfigMaps, "a", "to be there", cluster.Exists)
	s.In("").Delete(fixture.Namespaces, s.Namespace)
	s.In("").Await(fixture.Namespaces, s.Namespace, "to be gone", cluster.Gone)
}
