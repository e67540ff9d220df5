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

package manager

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// asking reports whether the cluster has not responded for the first time.
func asking(p *reconciler.Permission) bool { return p.Account != "" && !p.Known && p.Problem == nil }

// untilThen ends a message about a controller that is held.
const untilThen = " No parent is synced until then."

// permitted returns the condition about the rights of the controller's service account.
func (s state) permitted() metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionPermitted, status, reason, message)
	}
	switch p := &s.Permission; {
	case p.Account == "":
		return is(metav1.ConditionTrue, v1alpha1.ReasonServerRights,
			"The controller acts with the rights of the server, since it has no spec.serviceAccountRef.")
	case asking(p):
		return is(metav1.ConditionUnknown, v1alpha1.ReasonStarting, fmt.Sprintf("Asking the cluster what the service account %s may do.", p.Account))
	case !p.Known:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonRightsUnknown, fmt.Sprintf("The cluster does not say what the service account %s may "+
			"do: %v. The server needs the ClusterRole system:auth-delegator and get on serviceaccounts; it asks again every few seconds."+untilThen,
			p.Account, p.Problem))
	case p.NotFound:
		return is(metav1.ConditionFalse, v1alpha1.ReasonServiceAccountNotFound, fmt.Sprintf("The service account %s does not exist. Create it, "+
			"or change spec.serviceAccountRef."+untilThen, p.Account))
	case p.NotImpersonated:
		return is(metav1.ConditionFalse, v1alpha1.ReasonRightMissing, fmt.Sprintf("The server lacks: impersonate serviceaccounts %s. Grant it to the "+
			"server; \"metacontroller-apiserver rbac %s\" prints how."+untilThen, p.Account, p.Controller))
	case p.Lacks != "":
		until := ""
		if p.Held {
			until = " No parent is synced before the account may list and watch what hooks are shown."
		}
		return is(metav1.ConditionFalse, v1alpha1.ReasonRightMissing, fmt.Sprintf("The service account %s lacks, in all namespaces unless one is "+
			"named: %s. Grant that to it; \"metacontroller-apiserver rbac %s\" prints all that the controller needs. The server looks again "+
			"every 30 seconds."+until, p.Account, p.Lacks, p.Controller))
	}
	return is(metav1.ConditionTrue, v1alpha1.ReasonPermitted, fmt.Sprintf("The service account %s has the rights that the controller is known to need.",
		s.Permission.Account))
}
