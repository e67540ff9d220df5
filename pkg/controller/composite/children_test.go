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
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
)

// kindsOf are the kinds of the resources that a cluster serves, in each group-version.
type kindsOf map[string]string

// RoundTrip implements http.RoundTripper.
func (k kindsOf) RoundTrip(r *http.Request) (*http.Response, error) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for resource, kind := range k {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind, Namespaced: true})
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return responses{http.StatusOK, string(body)}.RoundTrip(r)
}

// TestChildrenOfAnUnservedKindStayOnTheirRevision plans for a controller of which the kind B is not served, with an older revision that has a
// child of a kind.
func TestChildrenOfAnUnservedKindStayOnTheirRevision(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// a, b and c are the methods of the rules; the kind A is of another group.
		a, b, c v1alpha1.ChildUpdateMethod
		served  kindsOf
		claimed schema.GroupKind
		left    int
	}{
		"it rolls":            {"It is waited for.", "RollingInPlace", "RollingRecreate", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "B"}, 1},
		"it does not roll":    {"It would not wait.", "RollingInPlace", "InPlace", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "B"}, 0},
		"another kind":        {"It is served, and does not roll.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "C"}, 0},
		"another group":       {"Nobody declares it.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "h", Kind: "B"}, 0},
		"it is served again":  {"The hook does not return it.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "A", "bs": "B", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "B"}, 0},
		"two are not served":  {"One of them rolls.", "RollingInPlace", "InPlace", "RollingInPlace", kindsOf{"as": "A"}, schema.GroupKind{Group: "g", Kind: "B"}, 1},
		"a kind of that name": {"It is another one.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "B", "cs": "C"}, schema.GroupKind{Group: "a", Kind: "B"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			rule := func(apiVersion, resource string, method v1alpha1.ChildUpdateMethod) v1alpha1.CompositeControllerChildResourceRule {
				return v1alpha1.CompositeControllerChildResourceRule{
					ResourceRule:   v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource},
					UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: method},
				}
			}
			served, err := cluster.New(cluster.Options{Config: &rest.Config{Host: "http://api", Transport: tc.served}})
			if err != nil {
				t.Fatal(err)
			}
			k := &kind{shared: &reconciler.Shared{Cluster: served}, spec: &v1alpha1.CompositeControllerSpec{
				ChildResources: []v1alpha1.CompositeControllerChildResourceRule{rule("a/v1", "as", tc.a), rule("g/v1", "bs", tc.b), rule("g/v1", "cs", tc.c)},
			}}
			if err := k.resolveChildren(t.Context(), &reconciler.Resolver{Shared: k.shared}); err != nil {
				t.Fatal(err)
			}
			revisions := func(n int64, stored ...*v1alpha1.ControllerRevision) []rollout.Revision {
				list, err := k.planner.Revisions(map[string]any{"metadata": map[string]any{"name": "p", "uid": "u"}, "spec": map[string]any{"n": n}}, stored)
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			old := revisions(1)[0].Object
			old.Children = []v1alpha1.ControllerRevisionChildren{{APIGroup: tc.claimed.Group, Kind: tc.claimed.Kind, Names: []string{"b0"}}}
			var desired []children.Desired
			if tc.claimed.Kind == "C" {
				desired = append(desired, children.Desired{Key: children.Key{Group: "g", Kind: "C", Name: "b0"}})
			}
			plan, err := k.planner.Plan(rollout.Input{Revisions: revisions(2, old), Responses: []rollout.Response{{Desired: desired}, {Desired: desired}}})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Outdated != tc.left {
				t.Errorf("%d children are left, want %d. %s", plan.Outdated, tc.left, tc.reason)
			}
			retires := slices.ContainsFunc(plan.Writes, func(w rollout.Write) bool { return w.Revision.Name == old.Name && len(w.Revision.Children) == 0 })
			if retires != (tc.left == 0) {
				t.Errorf("the revision retires: %t. %s", retires, tc.reason)
			}
		})
	}
}
