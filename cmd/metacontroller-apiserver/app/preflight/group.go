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

package preflight

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// migrate is the way from Metacontroller's CustomResourceDefinitions.
const migrate = `Stop the Metacontroller that uses them, save their objects, and delete the definitions, and with them the objects; children stay:
metacontroller-apiserver export > controllers.yaml
kubectl delete crd compositecontrollers.metacontroller.k8s.io decoratorcontrollers.metacontroller.k8s.io controllerrevisions.metacontroller.k8s.io
Then install, and create the objects again: metacontroller-apiserver import -f controllers.yaml
docs/operations/migrate.md has all steps.`

// metacontrollerImage matches the image of Metacontroller, in any registry.
var metacontrollerImage = regexp.MustCompile(`(^|/)metacontroller(:|@|$)`)

// group looks at what serves the group already.
func (c *clusterChecks) group(ctx context.Context) []Finding {
	existing, err := registration.Inspect(ctx, c.config)
	if err != nil {
		return []Finding{{
			Check: "group", Result: Failed, Message: fmt.Sprintf("What serves metacontroller.k8s.io in the cluster cannot be found out: %v.", err),
			Next: "Run this as a user who may read CustomResourceDefinitions and APIServices.",
		}}
	}
	c.existing = existing
	return append([]Finding{judgeExisting(existing, c.options.namespace, c.options.service)}, c.metacontrollers(ctx)...)
}

// judgeExisting says whether what is there is in the way of a server behind a Service.
func judgeExisting(existing *registration.Existing, namespace, service string) Finding {
	f := Finding{Check: "group", Result: OK}
	switch {
	case len(existing.Definitions) > 0:
		f.Result, f.Details, f.Next = Failed, existing.Definitions, migrate
		f.Message = "CustomResourceDefinitions serve metacontroller.k8s.io in this cluster, and would come back, with old objects, whenever the APIService goes:"
	case existing.ByDefinitions:
		f.Result, f.Next = Failed, "Wait until the cluster has deleted it, which it does after the definitions."
		f.Message = fmt.Sprintf("The kube-apiserver keeps APIService %s for CustomResourceDefinitions that are being deleted.", registration.APIServiceName)
	case !existing.Registered:
		f.Message = "Nothing serves metacontroller.k8s.io in this cluster yet."
	case existing.ServiceNamespace != namespace || existing.ServiceName != service:
		f.Result = Failed
		f.Message = fmt.Sprintf("APIService %s belongs to another server: Service %s in namespace %s.",
			registration.APIServiceName, existing.ServiceName, existing.ServiceNamespace)
		f.Next = "If that server is not wanted any more, delete its registration:\nkubectl delete apiservice " + registration.APIServiceName +
			"\nIf it is this one, name its Service with --namespace and --service."
	case !existing.Available:
		f.Result = Warning
		f.Message = fmt.Sprintf("APIService %s is registered, and its server is not available: %s: %s.",
			registration.APIServiceName, existing.Reason, strings.TrimRight(existing.Message, "."))
		f.Next = "Until it is, no namespace of the cluster can be deleted. Start the server, or delete the registration:\nkubectl delete apiservice " +
			registration.APIServiceName
	default:
		f.Message = fmt.Sprintf("The server is registered already, and available: Service %s in namespace %s.", service, namespace)
	}
	return f
}

// metacontrollers looks for a Metacontroller that runs.
func (c *clusterChecks) metacontrollers(ctx context.Context) []Finding {
	const check = "metacontroller"
	var found []string
	sets, err := c.client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range sets.Items {
			one := &sets.Items[i]
			if runsMetacontroller(one.Spec.Replicas, one.Spec.Template.Spec.Containers) {
				found = append(found, "StatefulSet "+one.Namespace+"/"+one.Name)
			}
		}
		deployments, listErr := c.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		if err = listErr; err == nil {
			for i := range deployments.Items {
				one := &deployments.Items[i]
				if runsMetacontroller(one.Spec.Replicas, one.Spec.Template.Spec.Containers) {
					found = append(found, "Deployment "+one.Namespace+"/"+one.Name)
				}
			}
		}
	}
	switch {
	case err != nil:
		return []Finding{{Check: check, Result: Skipped, Message: fmt.Sprintf("Whether a Metacontroller runs cannot be found out: %v.", err)}}
	case len(found) > 0:
		return []Finding{{
			Check: check, Result: Failed, Message: "A Metacontroller runs, and would work on the same children with the same objects:", Details: found,
			Next: "Stop it before the server is started, for example:\nkubectl scale --replicas=0 --namespace NAMESPACE KIND/NAME",
		}}
	}
	return []Finding{{Check: check, Result: OK, Message: "No Metacontroller runs."}}
}

func runsMetacontroller(replicas *int32, containers []corev1.Container) bool {
	if replicas != nil && *replicas == 0 {
		return false
	}
	return slices.ContainsFunc(containers, func(c corev1.Container) bool { return metacontrollerImage.MatchString(c.Image) })
}
