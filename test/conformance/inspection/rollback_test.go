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

package inspection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func rollbacks(t *testing.T, e *fixture.Environment) {
	t.Run("a rollout half-way", func(t *testing.T) { rollback(newStage(t, e, fixture.Composite)) })
	t.Run("without revisions", func(t *testing.T) { withoutRevisions(newStage(t, e, fixture.Composite)) })
}

// rollback asks for rollbacks of the parent a.
func (s *stage) rollback(
	as typedv1alpha1.MetacontrollerV1alpha1Interface, spec v1alpha1.ControllerRollbackSpec, dryRun ...string,
) (*v1alpha1.ControllerRollback, error) {
	spec.Namespace, spec.Name = s.Name, "a"
	return as.CompositeControllers().Rollback(
		s.T.Context(), s.controller.Name, &v1alpha1.ControllerRollback{Spec: spec}, metav1.CreateOptions{DryRun: dryRun},
	)
}

// names of the children of the parent a.
var parts = []string{"a-one", "a-two", "a-three"}

// rollback begins a rollout, whose first child does not work any more, and leads it back.
func rollback(s *stage) {
	halfRolled(s)
	uids, before := s.uids(), s.Get(fixture.Things, "a")
	latest, old := s.revisionOf("y"), s.revisionOf("x")

	s.rollbacksThatAreRefused(old)
	tried, err := s.rollback(s.admin(), v1alpha1.ControllerRollbackSpec{}, metav1.DryRunAll)
	if err != nil || tried.Status.Revision != old || tried.Status.From != latest || len(tried.Status.Changes) != 1 {
		s.T.Fatalf("the dry run is %+v, error %v", tried, err)
	}
	if c := tried.Status.Changes[0]; c.Path != "spec.data" || *c.Observed != `"y"` || *c.Desired != `"x"` {
		s.T.Errorf("what would change is %+v", c)
	}
	if now := s.Get(fixture.Things, "a"); now.GetResourceVersion() != before.GetResourceVersion() {
		s.T.Error("the dry run wrote the parent")
	}

	role := s.role("operator", []string{"get", "update"}, fixture.Things)
	done, err := s.rollback(s.as("jane-"+s.Name, role), v1alpha1.ControllerRollbackSpec{Revision: old, ResourceVersion: before.GetResourceVersion()})
	if err != nil || done.Status.Revision != old || done.Status.ResourceVersion == before.GetResourceVersion() {
		s.T.Fatalf("the rollback is %+v, error %v", done, err)
	}
	s.Await(fixture.Things, "a-one", "to be led back", isOn("x"))
	s.Await(fixture.Things, "a", "to be on the former revision", func(o *unstructured.Unstructured) bool { return updated(o) == "True" })
	s.Idle(s.controller)
	if now := s.uids(); !slices.Equal(uids, now) {
		s.T.Errorf("the children are others: %v before and %v after", uids, now)
	}
	s.rolledBackBy("jane-"+s.Name, old)
	s.rolledForward(old, latest)
}

// rolledForward rolls the parent back once more when no child is on the revision any more from which it came.
func (s *stage) rolledForward(present, former string) {
	s.T.Helper()
	if names := s.revisionNames(); len(names) != 2 || !slices.Contains(names, present) || !slices.Contains(names, former) {
		s.T.Errorf("the revisions are %v, want %s and %s", names, present, former)
	}
	s.presentStays(present)
	done, err := s.rollback(s.admin(), v1alpha1.ControllerRollbackSpec{Revision: v1alpha1.RevisionPrevious})
	if err != nil || done.Status.Revision != former || done.Status.From != present {
		s.T.Fatalf("rolling back after the rollout: %+v, error %v", done, err)
	}
	s.Await(fixture.Things, "a-one", "to be on the former revision", isOn("y"))
}

// halfRolled stops a rollout after the first child.
func halfRolled(s *stage) {
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{Status: map[string]any{}}
		for _, name := range parts {
			reply.Children = append(reply.Children, &hook.Object{Object: map[string]any{
				"apiVersion": fixture.Group + "/v1", "kind": "Thing", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"data": fixture.Value(c.Parent, "spec", "data")},
			}})
		}
		return reply, nil
	})
	s.definition.Children = []fixture.Child{{Resource: fixture.Things}}
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) {
		spec.ChildResources[0].UpdateStrategy = &v1alpha1.CompositeControllerChildUpdateStrategy{
			Method:       v1alpha1.ChildUpdateRollingInPlace,
			StatusChecks: v1alpha1.ChildUpdateStatusChecks{Conditions: []v1alpha1.StatusConditionCheck{{Type: "Works", Status: new("True")}}},
		}
	}
	s.run()
	s.Parent("a", map[string]any{"data": "x", "kept": "1"})
	for i, name := range parts {
		s.Await(fixture.Things, name, "to be there", cluster.Exists)
		works := "True"
		if i == 0 {
			works = "False"
		}
		s.Patch(fixture.Things, name, fmt.Sprintf(`{"status":{"conditions":[{"type":"Works","status":%q}]}}`, works), "status")
	}
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"spec":{"data":"y"}}`)
	s.Await(fixture.Things, "a-one", "to be on the new revision", isOn("y"))
	s.Idle(s.controller)
	if !isOn("x")(s.Get(fixture.Things, "a-two")) || len(s.revisionNames()) != 2 {
		s.T.Fatalf("the rollout is not half-way: %v", s.revisionNames())
	}
}

// rollbacksThatAreRefused change nothing.
func (s *stage) rollbacksThatAreRefused(old string) {
	s.T.Helper()
	before := s.Get(fixture.Things, "a").GetResourceVersion()
	role := s.role("viewer", []string{"get", "patch"}, fixture.Things)
	joe := s.as("joe-"+s.Name, role)
	for name, tc := range map[string]struct {
		as   typedv1alpha1.MetacontrollerV1alpha1Interface
		spec v1alpha1.ControllerRollbackSpec
		is   func(error) bool
		says string
	}{
		"who may not update the parent": {joe, v1alpha1.ControllerRollbackSpec{Revision: old}, apierrors.IsForbidden, "may not update things." + fixture.Group},
		"another version of the parent": {s.admin(), v1alpha1.ControllerRollbackSpec{ResourceVersion: "1"}, apierrors.IsConflict, "it was changed meanwhile"},
		"no such revision":              {s.admin(), v1alpha1.ControllerRollbackSpec{Revision: "none"}, apierrors.IsNotFound, "it has no such revision as none"},
	} {
		if _, err := s.rollback(tc.as, tc.spec); !tc.is(err) || !strings.Contains(err.Error(), tc.says) {
			s.T.Errorf("%s: %v", name, err)
		}
	}
	if now := s.Get(fixture.Things, "a").GetResourceVersion(); now != before {
		s.T.Error("a rollback that was refused wrote the parent")
	}
}

// rolledBackBy checks what people see of a rollback afterwards.
func (s *stage) rolledBackBy(user, revision string) {
	s.T.Helper()
	s.AwaitEvent("a", "Normal", "RolledBack", user+" had it rolled back from")
	parent := s.Get(fixture.Things, "a")
	if fixture.Value(parent, "spec", "data") != "x" || fixture.Value(parent, "spec", "kept") != "1" {
		s.T.Errorf("the parent has %v", parent.Object["spec"])
	}
	if !slices.ContainsFunc(parent.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "metacontroller-rollback" && strings.Contains(m.FieldsV1.GetRawString(), `"f:data"`)
	}) {
		s.T.Errorf("the field manager of spec.data after the rollback to %s: %+v", revision, parent.GetManagedFields())
	}
}

// presentStays asks for a rollback of a parent to the revision that it has.
func (s *stage) presentStays(present string) {
	s.T.Helper()
	before := s.Get(fixture.Things, "a").GetResourceVersion()
	done, err := s.rollback(s.admin(), v1alpha1.ControllerRollbackSpec{Revision: present})
	if err != nil || len(done.Status.Changes) != 0 || done.Status.ResourceVersion != before || s.Get(fixture.Things, "a").GetResourceVersion() != before {
		s.T.Errorf("to the present revision: %+v, error %v", done, err)
	}
}

// withoutRevisions asks for a rollback of a parent none of whose children roll.
func withoutRevisions(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	if _, err := s.rollback(s.admin(), v1alpha1.ControllerRollbackSpec{}); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "rolling method") {
		s.T.Errorf("the rollback: %v", err)
	}
}

// isOn says that a child is on the revision with certain data.
func isOn(data string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return fixture.Value(o, "spec", "data") == data }
}

// updated is the status of the condition Updated of a parent.
func updated(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, each := range conditions {
		if condition, ok := each.(map[string]any); ok && condition["type"] == "Updated" {
			return fmt.Sprint(condition["status"])
		}
	}
	return ""
}

// uids are those of the children.
func (s *stage) uids() []types.UID {
	s.T.Helper()
	var list []types.UID
	for _, name := range parts {
		list = append(list, s.Get(fixture.Things, name).GetUID())
	}
	return list
}

// revisionNames are the names of the ControllerRevisions.
func (s *stage) revisionNames() []string {
	s.T.Helper()
	list, err := s.admin().ControllerRevisions(s.Name).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// revisionOf is the name of the revision with certain data.
func (s *stage) revisionOf(data string) string {
	s.T.Helper()
	list, err := s.admin().ControllerRevisions(s.Name).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	for i := range list.Items {
		if strings.Contains(string(list.Items[i].ParentPatch.Raw), fmt.Sprintf(`"data":%q`, data)) {
			return list.Items[i].Name
		}
	}
	s.T.Fatalf("no revision has the data %s: %+v", data, list.Items)
	return ""
}
