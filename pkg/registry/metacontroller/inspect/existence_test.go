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

package inspect

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// TestWhoMayNotGetAParentIsNotToldWhetherItExists has the same requests about a parent that exists and one that does not.
func TestWhoMayNotGetAParentIsNotToldWhetherItExists(t *testing.T) {
	role := inspection.Parent{ParentReference: v1alpha1.ParentReference{Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: "one", Name: "a-role"}}
	requests := map[string]func(context.Context, *subresource) error{
		"request": func(ctx context.Context, s *subresource) error {
			_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Namespace: "one", Name: "it"})
			return err
		},
		"request of a resource": func(ctx context.Context, s *subresource) error {
			_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Resource: "things.example.com", Namespace: "one", Name: "it"})
			return err
		},
		"rollback": func(ctx context.Context, s *subresource) error {
			asked := &v1alpha1.ControllerRollback{Spec: v1alpha1.ControllerRollbackSpec{Namespace: "one", Name: "it"}}
			_, err := (&RollbackREST{s}).Create(ctx, "c", asked, nil, &metav1.CreateOptions{})
			return err
		},
	}
	for name, allowed := range map[string][]string{
		"no rights":               {"update things", "get secrets"},
		"rights elsewhere":        {"get things two", "get secrets"},
		"rights on other parents": {"get roles", "get secrets"},
	} {
		for request, do := range requests {
			t.Run(name+", "+request, func(t *testing.T) {
				told := func(thing inspection.Parent) error {
					s, ctx := scene(t, &engine{parents: []inspection.Parent{thing, role}}, &reviews{allowed: allowed})
					err := do(ctx, s)
					if !apierrors.IsForbidden(err) {
						t.Errorf("got %v, want 403", err)
					}
					return err
				}
				if diff := cmp.Diff(told(thing("one", "it")), told(thing("one", "another"))); diff != "" {
					t.Errorf("of a parent that exists (-) he is told something else than of one that does not (+):\n%s", diff)
				}
			})
		}
	}
}
