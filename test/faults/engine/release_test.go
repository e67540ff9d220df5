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

package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// frozen is the label of parents that keep their finalizers.
	frozen = fixture.Group + "/frozen"
	// denial is what the policy says.
	denial = "frozen things keep their finalizers"
)

// releaseBlocked has a policy deny that the finalizer of some parents is taken off.
func releaseBlocked(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.ReleaseBlocked)
	parents, watched := report.Pick(20, 100), report.Pick(10*time.Second, time.Minute)
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 1, Finalize: true})
	f.Create("before")
	f.Converge("creation")
	held, free := f.Names()[:parents/4], f.Names()[parents/4:parents/2]
	for _, name := range held {
		f.Patch(fixture.Things, name, `{"metadata":{"labels":{"`+frozen+`":"yes"}}}`)
	}
	thaw := freeze(t, f, held[0])

	f.Delete(held...)
	f.Delete(free...)
	f.Change("others", f.Names()[parents/2:]...)
	f.AwaitState("the others to go and to be changed", func(s *fleet.State) (bool, string) {
		wrong := f.Wrong(s)
		return len(wrong) == len(held) && len(s.Parents) == parents-len(free), fmt.Sprint(wrong)
	})
	f.Controller.AwaitStatus("what the policy says", func(s *v1alpha1.ControllerStatus) bool {
		for _, e := range s.LastErrors {
			if strings.Contains(e.Message, denial) {
				return true
			}
		}
		return false
	})
	f.Hook.Forget()
	pause(t, watched)
	most := 0
	for _, name := range held {
		most = max(most, f.Hook.Seen()[name])
	}
	// The delays between attempts double, and the first ones are over.
	if few := int(watched / time.Second); most > few {
		t.Errorf("one parent was tried %d times in %s, want %d at most", most, watched, few)
	}
	figures.Sayf("%d of %d parents held for %s: told in the status, %d attempts for one of them at most in that time, the others converged",
		len(held), parents, watched, most)
	thaw()
	figures.Sayf("released %s after the policy was gone", seconds(f.Converge("the policy was gone")))
}

// freeze makes the policy and waits until it denies what it must. The function that it returns deletes it.
func freeze(t *testing.T, f *fleet.Fleet, name string) (thaw func()) {
	t.Helper()
	client := f.Kube.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{frozen: "yes"}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{fixture.Things.Group}, APIVersions: []string{"*"}, Resources: []string{fixture.Things.Resource},
					},
				}}},
			},
			Validations: []admissionv1.Validation{{
				Expression: "has(object.metadata.finalizers) && object.metadata.finalizers.size() > 0", Message: denial,
			}},
		},
	}
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: f.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	without := []byte(`{"metadata":{"finalizers":null}}`)
	cluster.Eventually(t, f.Limit, "the policy to deny", func(ctx context.Context) (bool, string) {
		_, err := f.Resource(fixture.Things).Patch(ctx, name, types.MergePatchType, without, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), denial), fmt.Sprint(err)
	})
	return func() {
		t.Helper()
		if err := client.ValidatingAdmissionPolicyBindings().Delete(t.Context(), f.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.ValidatingAdmissionPolicies().Delete(t.Context(), f.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
