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

package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

const (
	// freezeName is the name of the policy that refuses writes during a move, and of its binding.
	freezeName = "metacontroller-apiserver-migration"
	// probeName is the name of an object that is never created.
	probeName = "metacontroller-apiserver-migration-probe"
	// serverUser is this server where it writes to its own API. Whether its engine runs, the Lease says.
	serverUser = "system:apiserver"
)

// freezeMessage is what those read who would write during a move.
func freezeMessage(user, namespace string) string {
	return fmt.Sprintf("controllers are being moved between definitions and an API server by metacontroller-apiserver migrate, as %s: nothing of %s "+
		"can be written until that has ended. If nobody runs it any more, run it again; see ConfigMap %s/%s", user, v1alpha1.GroupName, namespace, ConfigMapName)
}

// freezePolicy refuses what writes objects of the group, except by users who pass and by the move itself.
func freezePolicy(user, namespace string, pass []string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	fail, forbidden := admissionregistrationv1.Fail, metav1.StatusReasonForbidden
	quoted := make([]string, 0, len(pass))
	for _, name := range pass {
		quoted = append(quoted, strconv.Quote(name))
	}
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: freezeName},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{
							admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
						},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"},
							Resources: []string{
								"compositecontrollers", "compositecontrollers/status", "decoratorcontrollers", "decoratorcontrollers/status", "controllerrevisions",
							},
						},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "others", Expression: "!(request.userInfo.username in [" + strings.Join(quoted, ", ") + "])"},
				{Name: "not-the-move", Expression: fmt.Sprintf("!(request.userInfo.username == %q && (request.operation == 'DELETE' || "+
					"(has(request.options.fieldManager) && request.options.fieldManager == %q)))", user, fieldManager)},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: freezeMessage(user, namespace), Reason: &forbidden}},
		},
	}
}

// freeze has the cluster refuse all writes of the group, and waits until it does. A policy that is left over is made this one.
func (m *move) freeze(ctx context.Context, pass ...string) error {
	policies := m.kube.AdmissionregistrationV1()
	policy := freezePolicy(m.user, m.Service.Namespace, append(pass, serverUser))
	_, err := policies.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// The cluster writes its status meanwhile.
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			existing, err := policies.ValidatingAdmissionPolicies().Get(ctx, freezeName, metav1.GetOptions{})
			if err == nil {
				existing.Spec = policy.Spec
				_, err = policies.ValidatingAdmissionPolicies().Update(ctx, existing, metav1.UpdateOptions{})
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("writing ValidatingAdmissionPolicy %s: %w", freezeName, err)
	}
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: freezeName},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: freezeName, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ValidatingAdmissionPolicyBinding %s: %w", freezeName, err)
	}
	return m.await(ctx, "the cluster to refuse writes of the group", m.frozen)
}

// frozen reports whether a write in a dry run is refused, and how it ends.
func (m *move) frozen(ctx context.Context) (bool, string) {
	_, err := m.dynamic.Resource(kinds()[1].served()).Create(ctx, probe(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: probeName})
	return err != nil && strings.Contains(err.Error(), "metacontroller-apiserver migrate"), fmt.Sprintf("a write in a dry run ends with: %v", err)
}

// unfreeze takes the policy away, and waits until who serves the group knows.
func (m *move) unfreeze(ctx context.Context) error {
	policies := m.kube.AdmissionregistrationV1()
	if err := policies.ValidatingAdmissionPolicyBindings().Delete(ctx, freezeName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ValidatingAdmissionPolicyBinding %s: %w", freezeName, err)
	}
	if err := policies.ValidatingAdmissionPolicies().Delete(ctx, freezeName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ValidatingAdmissionPolicy %s: %w", freezeName, err)
	}
	return m.await(ctx, "writes of the group to be possible", func(ctx context.Context) (bool, string) {
		frozen, how := m.frozen(ctx)
		return !frozen, how
	})
}

// probe is a controller that whoever serves the group would take.
func probe() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"parentResource": map[string]any{"apiVersion": "example.com/v1", "resource": "probes"},
			"hooks":          map[string]any{"sync": map[string]any{"webhook": map[string]any{"url": "http://localhost/"}}},
		},
	}}
	o.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	o.SetKind("CompositeController")
	o.SetName(probeName)
	return o
}

func decodeReport(text []byte, into *serverReport) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading what the server says of itself: %w", err)
	}
	return nil
}
