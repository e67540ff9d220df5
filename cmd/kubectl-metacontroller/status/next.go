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

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// next returns the commands to try next, the most useful one first; none where all is well.
func next(object controllerobject.Object, parents Parents) []string {
	status, errors := object.Status(), parents.Errors
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason == v1alpha1.ReasonPending {
		return []string{"kubectl describe apiservice v1alpha1.metacontroller.k8s.io"}
	}
	if ready.ObservedGeneration < object.Generation() {
		return []string{"kubectl wait --for=condition=Ready " + object.Resource()}
	}
	if ready.Reason == v1alpha1.ReasonPaused {
		return []string{"kubectl metacontroller resume " + object.Argument()}
	}
	var steps []string
	for _, c := range missingFirst(status.Conditions) {
		if step := cure(object, c, parents); step != "" && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	if len(errors) > 0 {
		steps = append(steps, eventsOf(&errors[0]))
	}
	switch {
	case len(steps) == 0 && ready.Status != metav1.ConditionTrue:
		steps = append(steps, eventsAbout(object))
	case len(steps) == 0 && parents.Known && parents.Total == 0:
		steps = append(steps, parentsToBe(object))
	case len(steps) == 0 && parents.States[v1alpha1.ParentWaiting] > 0:
		steps = append(steps, "kubectl metacontroller parents "+object.Argument()+" --all --state=Waiting   # for what they wait")
	}
	return steps
}

// parentsToBe is the command that prints what might be the parents of a controller that has none.
func parentsToBe(object controllerobject.Object) string {
	var resources []string
	for _, rule := range object.Parents() {
		resource, _ := rule.GroupVersionResource() // The server has checked it.
		resources = append(resources, resource.GroupResource().String())
	}
	return "kubectl get " + strings.Join(resources, ",") + " --all-namespaces   # the controller selects none of them"
}

// cure is the command that tells more of what a condition complains of, or ends it. Ready repeats the others.
func cure(object controllerobject.Object, c metav1.Condition, parents Parents) string {
	if c.Type == v1alpha1.ConditionDeletionsHeld && c.Status == metav1.ConditionTrue {
		return eventsAbout(object) + "   # its message has the command that confirms the deletions"
	}
	if c.Reason == v1alpha1.ReasonResponsesDiffer || c.Reason == v1alpha1.ReasonChangedBack {
		step := "kubectl metacontroller explain-loop " + object.Argument()
		if parents.Unsettled == "" {
			return step + " NAMESPACE/PARENT   # of the parent that the condition names"
		}
		return step + " " + parents.Unsettled
	}
	if c.Type == v1alpha1.ConditionReady || c.Status != metav1.ConditionFalse {
		return ""
	}
	switch c.Reason {
	case v1alpha1.ReasonHookFailing, v1alpha1.ReasonCredentialsMissing:
		// The events about it are those of the parents whose syncs fail.
		if len(parents.Errors) == 0 {
			return "kubectl metacontroller parents " + object.Argument() + " --all --state=Failing"
		}
	case v1alpha1.ReasonRightMissing:
		return "kubectl metacontroller rbac " + object.Argument() + " | kubectl apply -f -" +
			"   # with --server-account=NAMESPACE/NAME, unless the server's account is metacontroller/metacontroller-apiserver"
	case v1alpha1.ReasonServiceAccountNotFound:
		if account := object.Account(); account != nil {
			return fmt.Sprintf("kubectl -n %s create serviceaccount %s", account.Namespace, account.Name)
		}
	case v1alpha1.ReasonResourceNotFound:
		return "kubectl api-resources   # the plural names and groups of what is served"
	}
	return ""
}

// eventsAbout is the command that prints what happened to a controller.
func eventsAbout(object controllerobject.Object) string {
	return eventsIn("", object.Resource())
}

// eventsOf is the command that prints what happened to a parent.
func eventsOf(e *v1alpha1.ParentError) string {
	return eventsIn(e.Namespace, schema.GroupResource{Group: e.Group, Resource: e.Resource}.String()+"/"+e.Name)
}

// eventsIn is the command that prints the events about an object. Those about cluster-scoped objects are in the namespace default, and
// kubectl looks for them in that of the kubeconfig.
func eventsIn(namespace, object string) string {
	return fmt.Sprintf("kubectl -n %s events --for %s", cmp.Or(namespace, metav1.NamespaceDefault), object)
}
