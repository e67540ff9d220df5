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

package reconciler_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// TestAHiddenValueThatAHookReturnsIsTheObservedOne plans with the response of a hook that was sent requests as people see them: values of
// Secrets are hidden in them, and in what it makes of them.
func TestAHiddenValueThatAHookReturnsIsTheObservedOne(t *testing.T) {
	const (
		value, hidden = "aHVudGVyMg==", "KGhpZGRlbik="
		applied       = "metadata.annotations[metacontroller.k8s.io/last-applied-configuration]"
	)
	secret := func(data string) string {
		return `{"apiVersion":"v1","data":` + data + `,"kind":"Secret","metadata":{"name":"copy","namespace":"ns"}}`
	}
	for name, tc := range map[string]struct {
		returned string
		want     v1alpha1.ChildAction
		changes  []string
	}{
		"what was hidden":     {`{"a":"` + hidden + `"}`, v1alpha1.ChildLeave, nil},
		"a value of its own":  {`{"a":"YmV0dGVy"}`, v1alpha1.ChildUpdate, []string{"data.a", applied}},
		"another key as well": {`{"a":"` + hidden + `","b":"` + hidden + `"}`, v1alpha1.ChildUpdate, []string{"data.b", applied}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			resource := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
			secrets := s.shared.Cluster.Cache.Acquire(cache.Query{Resource: resource})
			record, err := merge.Encode(map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "copy", "namespace": "ns"}, "data": map[string]any{"a": value},
			})
			if err != nil {
				t.Fatal(err)
			}
			observed := parse(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","data":{"a":%q},"metadata":{"name":"copy","namespace":"ns","uid":"s",
				"resourceVersion":"1","annotations":{"metacontroller.k8s.io/last-applied-configuration":%q},
				"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Thing","name":"p","uid":"uid-p","controller":true}]}}`, value, record))
			if err := secrets.Replace([]any{observed}, "1"); err != nil {
				t.Fatal(err)
			}
			s.exist(thing(t, "p", 1, "", ""))
			c := s.start(&kind{
				observe: func(sync *reconciler.Sync) error {
					sync.Observed = secrets.ControlledBy("uid-p")
					return nil
				},
				decide: func(sync *reconciler.Sync) error { return sync.Decide(t.Context()) },
				apply:  func(ctx context.Context, sync *reconciler.Sync) error { return sync.ReconcileChildren(ctx, "children") },
			}, func(c *reconciler.Config) {
				c.Definition.Paused = true
				c.Children = []children.Rule{{
					Kind: resource.GroupVersion().WithKind("Secret"), Resource: resource, Namespaced: true, Method: v1alpha1.ChildUpdateInPlace,
				}}
			})
			body := []byte(`{"children":[` + secret(tc.returned) + `]}`)
			plan, _ := c.Plan(t.Context(), v1alpha1.ParentReference{Group: things.Group, Resource: things.Resource, Name: "p"}, inspection.PlanOptions{
				Responses: []v1alpha1.GivenResponse{{Hook: "sync", Body: runtime.RawExtension{Raw: body}}},
			})
			if plan.Error != "" || len(plan.Children) != 1 || plan.Children[0].Action != tc.want {
				t.Fatalf("got %+v, want %s", plan, tc.want)
			}
			var paths []string
			for _, change := range plan.Children[0].Changes {
				paths = append(paths, change.Path)
			}
			if diff := cmp.Diff(tc.changes, paths); diff != "" {
				t.Errorf("places that change (-want +got):\n%s", diff)
			}
		})
	}
}
