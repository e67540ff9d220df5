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
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

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
