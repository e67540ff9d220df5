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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

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
			s.Run(s.definition)
			s.Parent("a", nil)
			s.Await(fixture.ConfigMaps, "a", "to be there", cluster.Exists)
			s.In("").Delete(fixture.Namespaces, s.Namespace)
			s.In("").Await(fixture.Namespaces, s.Namespace, "to be gone", cluster.Gone)
		})
	}
}
