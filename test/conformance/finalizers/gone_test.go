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
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// namespaceKeepsParent deletes the namespace of a parent that is not finalized: no event can be created there, so that the controller object says
// why, and how to go on.
func namespaceKeepsParent(t *testing.T, e *fixture.Environment) {
	for name, tc := range map[string]struct {
		finalize http.Handler
		// says is what the event and the condition say. The event has the way out, too, where the error does not pass.
		says   string
		wayOut bool
	}{
		"WhoseHookWantsAChild": {says: "because it is being terminated", wayOut: true},
		"WhoseHookFails": {
			finalize: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "out of order", http.StatusInternalServerError)
			}),
			says: "out of order",
		},
	} {
		for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, e, kind, fixture.Things)
				s.definition.Children = []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}}
				s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
					if !c.Finalizing {
						return &fixture.Reply{}, nil
					}
					return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("cleanup", nil)}}, nil
				})
				if tc.finalize != nil {
					s.Hook.Handle("/finalize", tc.finalize)
					s.definition.Finalize = s.At("/finalize")
				}
				running := s.Run(s.definition)
				s.Parent("p", nil)
				s.Await(fixture.Things, "p", "to have the finalizer", s.carries)
				s.In("").Delete(fixture.Namespaces, s.Namespace)
				event := s.In("default").AwaitEventAs(s.Name, "about the parent", func(e *corev1.Event) bool {
					return e.Reason == "SyncError" && strings.HasPrefix(e.Message, "Thing "+s.Namespace+"/p: ") && strings.Contains(e.Message, tc.says)
				})
				if has := strings.Contains(event.Message, "kubectl patch"); has != tc.wayOut {
					t.Errorf("the event is %q; want it to say how to go on: %t", event.Message, tc.wayOut)
				}
				s.letGo(stuck(running, tc.says, s.Namespace+"/p").Message)
				s.In("").Await(fixture.Namespaces, s.Namespace, "to be gone", cluster.Gone)
			})
		}
	}
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
func relatedKindIsGone(t *testing.T, e *fixture.Environment) {
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, e, kind, fixture.Things)
			extras := cluster.CustomResource{Kind: "Extra", Resource: schema.GroupVersionResource{
				Group: "gone-" + strings.ToLower(string(kind)) + "." + fixture.Group, Version: "v1", Resource: "extras",
			}}
			s.Cluster.Define(t, extras)
			s.definition.Customize = s.At("/customize")
			s.Hook.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
				return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{
					{APIVersion: extras.Resource.GroupVersion().String(), Resource: extras.Resource.Resource},
				}}, nil
			}))
			s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) { return &fixture.Reply{Finalized: c.Finalizing}, nil })
			s.Run(s.definition)
			s.Parent("p", nil)
			s.Parent("stays", nil)
			for _, name := range []string{"p", "stays"} {
				s.Await(fixture.Things, name, "to have the finalizer", s.carries)
			}
			s.script.AwaitCalls(t, "stays", 1)
			s.Kubectl(t, "delete", "crd", extras.Resource.GroupResource().String())
			s.AwaitEvent("stays", corev1.EventTypeWarning, "SyncError", "can't find resource extras")

			s.Delete(fixture.Things, "p")
			s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
			s.AwaitEvent("p", corev1.EventTypeWarning, "RelatedNotServed", "extras in "+extras.Resource.GroupVersion().String())
			if objects, shown := s.script.Last().Related[hook.TypeKey(extras.Resource.GroupVersion().String(), extras.Kind)]; !shown || len(objects) > 0 {
				t.Errorf("the finalize hook was shown %v", s.script.Last().Related)
			}
			s.Delete(fixture.Things, "stays")
			s.Await(fixture.Things, "stays", "to be gone", cluster.Gone)
		})
	}
}

// optOutLeavesNoChildBehind deselects a parent whose hook says at once that it is done. Its child is changed before it can be
// deleted, so that the deletion is refused.
func optOutLeavesNoChildBehind(t *testing.T, e *fixture.Environment) {
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, e, kind)
			s.definition.Children = []fixture.Child{{Resource: fixture.ConfigMaps}}
			finalized := 0
			s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
				if !c.Finalizing {
					return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("a", nil)}}, nil
				}
				if finalized++; finalized == 1 {
					patch := []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`)
					if _, err := s.Resource(fixture.ConfigMaps).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
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
		})
	}
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
