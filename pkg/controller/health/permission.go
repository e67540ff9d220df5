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

package health

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Permission is what the service account of a controller may do, as far as the controller needs it.
type Permission struct {
	// Account is the service account, as namespace/name. Empty: the controller acts as the server, and the rest says nothing.
	Account string
	// Controller names the controller to the subcommand rbac, as in compositecontroller/name.
	Controller string
	// Known says that the cluster was asked what the account may do.
	Known bool
	// Problem says why it could not be asked lately, nil if it could.
	Problem error
	// Held says that no parent is synced, because it is not known that the account may read what hooks would be shown.
	Held bool
	// NotFound says that the account does not exist, NotImpersonated that the server may not act as it.
	NotFound, NotImpersonated bool
	// Lacks are the rights that the account lacks, for people; empty if there are none.
	Lacks string
}

// asking reports whether the cluster has not responded for the first time.
func (p *Permission) asking() bool { return p.Account != "" && !p.Known && p.Problem == nil }

// held ends a message about a controller that is held.
const held = " No parent is synced until then."

// permitted returns the condition about the rights of the controller's service account.
func (s *State) permitted() metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionPermitted, status, reason, message)
	}
	switch p := &s.Permission; {
	case p.Account == "":
		return is(metav1.ConditionTrue, v1alpha1.ReasonServerRights,
			"The controller acts with the rights of the server, since it has no spec.serviceAccountRef.")
	case p.asking():
		return is(metav1.ConditionUnknown, v1alpha1.ReasonStarting, fmt.Sprintf("Asking the cluster what the service account %s may do.", p.Account))
	case !p.Known:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonRightsUnknown, fmt.Sprintf("The cluster does not say what the service account %s may "+
			"do: %v. The server needs the ClusterRole system:auth-delegator and get on serviceaccounts; it asks again every few seconds."+held,
			p.Account, p.Problem))
	case p.NotFound:
		return is(metav1.ConditionFalse, v1alpha1.ReasonServiceAccountNotFound, fmt.Sprintf("The service account %s does not exist. Create it, "+
			"or change spec.serviceAccountRef."+held, p.Account))
	case p.NotImpersonated:
		return is(metav1.ConditionFalse, v1alpha1.ReasonRightMissing, fmt.Sprintf("The server lacks: impersonate serviceaccounts %s. Grant it to the "+
			"server; \"metacontroller-apiserver rbac %s\" prints how."+held, p.Account, p.Controller))
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
