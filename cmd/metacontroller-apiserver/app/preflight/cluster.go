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
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

const (
	// The ConfigMap in which the kube-apiserver publishes how its aggregation layer authenticates users.
	authenticationNamespace, authenticationName = "kube-system", "extension-apiserver-authentication"
	proxyAuthorityKey, clientAuthorityKey       = "requestheader-client-ca-file", "client-ca-file"
	allowedNamesKey                             = "requestheader-allowed-names"
)

// clusterChecks are the checks that ask a cluster which answers.
type clusterChecks struct {
	options *options
	// client and config act as the user of the kubeconfig, and subject as the server.
	client  kubernetes.Interface
	config  *rest.Config
	subject kubernetes.Interface
	// user is the name of the server's user.
	user string
	// existing is what the cluster has for the group. Nil until it was read.
	existing *registration.Existing
}

// newClusterChecks finds out whether the cluster answers, and as whom. The checks are nil when there is nobody to ask.
func newClusterChecks(ctx context.Context, config *rest.Config, o *options) (*clusterChecks, []Finding) {
	unreachable := func(err error) []Finding {
		return problemf("cluster", "Look at the address and the credentials with kubectl version, and at firewalls on the way. What follows was not asked of the cluster.",
			"The kube-apiserver at %s does not answer: %v.", config.Host, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, unreachable(err)
	}
	found, err := client.Discovery().ServerVersionWithContext(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	c := &clusterChecks{options: o, client: client, config: config, subject: client}
	if o.account != nil {
		acting := rest.CopyConfig(config)
		acting.Impersonate = rest.ImpersonationConfig{UserName: o.account.User(), Groups: o.account.Groups()}
		if c.subject, err = kubernetes.NewForConfig(acting); err != nil {
			return nil, unreachable(err)
		}
		c.user = o.account.User()
	}
	return c, []Finding{{
		Check: "cluster", Result: OK, Message: fmt.Sprintf("The kube-apiserver at %s answers.", config.Host),
	}, judgeVersion(found.GitVersion)}
}

// judgeVersion says whether a version of Kubernetes is supported. The manifests have kinds that are served from oldest on; from streams on,
// lists of parents and children come from the memory of the kube-apiserver; the client libraries are of newest.
func judgeVersion(text string) Finding {
	oldest, streams, newest := version.MajorMinor(1, 29), version.MajorMinor(1, 31), version.MajorMinor(1, 37)
	f := Finding{Check: "version", Result: OK, Message: fmt.Sprintf("Kubernetes %s is supported.", text)}
	v, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		f.Result, f.Message = Warning, fmt.Sprintf("The version %q of Kubernetes cannot be read.", text)
	case v.LessThan(oldest):
		f.Result = Failed
		f.Message = fmt.Sprintf("Kubernetes %s is too old: %s and later have all that the manifests name.", text, oldest)
		f.Next = "Upgrade the cluster."
	case v.LessThan(streams):
		f.Result = Warning
		f.Message = fmt.Sprintf("Kubernetes %s works harder when the server starts than %s and later, which list parents and children from memory.", text, streams)
	case newest.LessThan(version.MajorMinor(v.Major(), v.Minor())):
		f.Result = Warning
		f.Message = fmt.Sprintf("Kubernetes %s is newer than this server, whose libraries are those of %s.", text, newest)
		f.Next = "Look whether there is a newer version of the server."
	}
	return f
}

// aggregationLayer looks whether the kube-apiserver proxies requests with the users' names, and the server may know.
func (c *clusterChecks) aggregationLayer(ctx context.Context) []Finding {
	const check = "aggregation"
	if _, err := c.client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, "apiregistration.k8s.io/v1"); err != nil {
		return problemf(check, "Ask who runs the control plane for one: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/",
			"The cluster has no aggregation layer: apiregistration.k8s.io/v1: %v.", err)
	}
	settings, err := c.subject.CoreV1().ConfigMaps(authenticationNamespace).Get(ctx, authenticationName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		// Which right is missing, and how to give it, is said with the others.
		return []Finding{{
			Check: check, Result: Skipped,
			Message: fmt.Sprintf("ConfigMap %s/%s cannot be read with the server's rights.", authenticationNamespace, authenticationName),
		}}
	case err != nil:
		return problemf(check, "The kube-apiserver publishes it by itself; ask who runs the control plane.",
			"Reading ConfigMap %s/%s: %v.", authenticationNamespace, authenticationName, err)
	}
	return judgeAggregation(settings)
}

// judgeAggregation looks at what the kube-apiserver has published of its aggregation layer.
func judgeAggregation(settings *corev1.ConfigMap) []Finding {
	const check = "aggregation"
	authority := settings.Data[proxyAuthorityKey]
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(authority)) {
		return problemf(check, "Start the kube-apiserver with --requestheader-client-ca-file and --proxy-client-cert-file: "+
			"https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/",
			"The aggregation layer is not set up: ConfigMap %s/%s has no certificate in %s, so that every user would be anonymous.",
			authenticationNamespace, authenticationName, proxyAuthorityKey)
	}
	findings := []Finding{{Check: check, Result: OK, Message: "The aggregation layer is set up, and the server may know its authority."}}
	if strings.TrimSpace(settings.Data[clientAuthorityKey]) == strings.TrimSpace(authority) && emptyList(settings.Data[allowedNamesKey]) {
		findings = append(findings, Finding{
			Check: check, Result: Warning,
			Message: "Users and the aggregation layer have the same certificate authority, and every name is allowed: who has a client certificate can be anybody.",
			Next:    "Give the kube-apiserver a --requestheader-client-ca-file of its own, or --requestheader-allowed-names.",
		})
	}
	return findings
}

func emptyList(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || text == "[]" || text == "null"
}

// migrate is the way from Metacontroller's CustomResourceDefinitions.
const migrate = `Install this server beside them, which registers itself nowhere meanwhile, and move their objects to it; parents and children stay:
metacontroller-apiserver migrate
docs/operations/migrate.md has all steps, and the way back.`

// metacontrollerImage matches the image of Metacontroller, in any registry.
var metacontrollerImage = regexp.MustCompile(`(^|/)metacontroller(:|@|$)`)

// group looks at what serves the group already.
func (c *clusterChecks) group(ctx context.Context) []Finding {
	existing, err := registration.Inspect(ctx, c.config)
	if err != nil {
		return problemf("group", "Run this as a user who may read CustomResourceDefinitions and APIServices.",
			"What serves metacontroller.k8s.io in the cluster cannot be found out: %v.", err)
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
	sets, setsErr := c.client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	deployments, deploymentsErr := c.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err := cmp.Or(setsErr, deploymentsErr); err != nil {
		return []Finding{{Check: check, Result: Skipped, Message: fmt.Sprintf("Whether a Metacontroller runs cannot be found out: %v.", err)}}
	}
	var found []string
	for i := range sets.Items {
		if one := &sets.Items[i]; runsMetacontroller(one.Spec.Replicas, one.Spec.Template.Spec.Containers) {
			found = append(found, "StatefulSet "+one.Namespace+"/"+one.Name)
		}
	}
	for i := range deployments.Items {
		if one := &deployments.Items[i]; runsMetacontroller(one.Spec.Replicas, one.Spec.Template.Spec.Containers) {
			found = append(found, "Deployment "+one.Namespace+"/"+one.Name)
		}
	}
	if len(found) > 0 {
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
