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

package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// PriorityAndFairness is the name of the Part that queues requests by the cluster's FlowSchemas.
const PriorityAndFairness = "APIPriorityAndFairness"

// Part is something in the server that keeps informers on resources of the cluster. While such an informer cannot fill,
// because the cluster does not serve the resource or forbids it, every write is refused and the server is not ready.
type Part struct {
	// Name is the name of the admission plugin, or PriorityAndFairness.
	Name string
	// Needs are the resources that the part lists and watches.
	Needs []schema.GroupVersionResource
}

// Parts returns the parts that a server has by default. The order is that of the admission chain.
func Parts() []Part {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	flow := schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}
	return []Part{
		{lifecycle.PluginName, []schema.GroupVersionResource{namespaces}},
		{mutatingpolicy.PluginName, []schema.GroupVersionResource{
			namespaces, admission.WithResource("mutatingadmissionpolicies"), admission.WithResource("mutatingadmissionpolicybindings"),
		}},
		{mutatingwebhook.PluginName, []schema.GroupVersionResource{namespaces, admission.WithResource("mutatingwebhookconfigurations")}},
		{validatingpolicy.PluginName, []schema.GroupVersionResource{
			namespaces, admission.WithResource("validatingadmissionpolicies"), admission.WithResource("validatingadmissionpolicybindings"),
		}},
		{validatingwebhook.PluginName, []schema.GroupVersionResource{namespaces, admission.WithResource("validatingwebhookconfigurations")}},
		{PriorityAndFairness, []schema.GroupVersionResource{
			flow.WithResource("flowschemas"), flow.WithResource("prioritylevelconfigurations"),
		}},
	}
}

// Probe finds out which of parts cannot work with the cluster, and returns for each of these a sentence that says why. The error
// says that the cluster did not respond. A right of which the cluster cannot say whether the server has it, such as while an authorizer is
// down, is asked for again for 20 seconds; then the server is taken to have it.
func Probe(ctx context.Context, client kubernetes.Interface, parts []Part) (map[string]string, error) {
	p := prober{client: client, obstacles: map[schema.GroupVersionResource]string{}, served: map[schema.GroupVersion]map[string]bool{}}
	unusable := map[string]string{}
	for _, part := range parts {
		var reasons []string
		for _, resource := range part.Needs {
			obstacle, err := p.obstacle(ctx, resource)
			if err != nil {
				return nil, err
			}
			if obstacle != "" {
				reasons = append(reasons, obstacle)
			}
		}
		if len(reasons) > 0 {
			unusable[part.Name] = strings.Join(reasons, "; ")
		}
	}
	return unusable, nil
}

// prober remembers answers.
type prober struct {
	client    kubernetes.Interface
	obstacles map[schema.GroupVersionResource]string
	served    map[schema.GroupVersion]map[string]bool
	// deadline is when unanswered questions for rights are not repeated any more; zero if there was none yet.
	deadline time.Time
}

// obstacle says why resource cannot be watched; it is empty when it can.
func (p *prober) obstacle(ctx context.Context, resource schema.GroupVersionResource) (string, error) {
	if known, ok := p.obstacles[resource]; ok {
		return known, nil
	}
	served, err := p.serves(ctx, resource)
	if err != nil {
		return "", err
	}
	answer := ""
	if !served {
		answer = fmt.Sprintf("the cluster does not serve %s in %s", resource.Resource, resource.GroupVersion())
	} else if verb := p.forbidden(ctx, resource); verb != "" {
		answer = fmt.Sprintf("this server may not %s %s", verb, resource.GroupResource())
	}
	p.obstacles[resource] = answer
	return answer, nil
}

func (p *prober) serves(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	if _, ok := p.served[gv]; !ok {
		list, err := p.client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("discovering %s at the cluster: %w", gv, err)
		}
		p.served[gv] = map[string]bool{}
		if err == nil {
			for i := range list.APIResources {
				p.served[gv][list.APIResources[i].Name] = true
			}
		}
	}
	return p.served[gv][resource.Resource], nil
}

// forbidden returns the first verb that the server lacks. A cluster that does not tell is taken to allow: what is really
// forbidden shows in the log of the informer.
func (p *prober) forbidden(ctx context.Context, resource schema.GroupVersionResource) string {
	for _, verb := range []string{"list", "watch"} {
		allowed, err := p.allowed(ctx, resource, verb)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot ask the cluster for this server's own rights", "resource", resource, "verb", verb)
			return ""
		}
		if !allowed {
			return verb
		}
	}
	return ""
}

const (
	// probeInterval is the pause between two questions for a right that the cluster did not answer, and probePatience how long such questions
	// are repeated, all together: the process is not ready meanwhile.
	probeInterval, probePatience = time.Second, 20 * time.Second
)

// allowed asks whether the server has a right, and again for a while if the cluster does not say: what is switched off stays so until the next start.
func (p *prober) allowed(ctx context.Context, resource schema.GroupVersionResource, verb string) (bool, error) {
	for {
		allowed, err := p.review(ctx, resource, verb)
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return allowed, err
		}
		if p.deadline.IsZero() {
			p.deadline = time.Now().Add(probePatience)
			klog.FromContext(ctx).Info("The cluster does not say what this server may do; asking again", "for", probePatience, "err", err)
		}
		if time.Until(p.deadline) < probeInterval {
			return false, err
		}
		if !pass(ctx, probeInterval) {
			return false, err
		}
	}
}

// review asks once. A right that is not allowed although an authorizer failed is not known: another one would have allowed it, perhaps.
func (p *prober) review(ctx context.Context, resource schema.GroupVersionResource, verb string) (bool, error) {
	review, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Verb: verb,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("creating a SelfSubjectAccessReview: %w", err)
	}
	if failed := review.Status.EvaluationError; failed != "" && !review.Status.Allowed {
		return false, fmt.Errorf("the cluster could not decide: %s", failed)
	}
	return review.Status.Allowed, nil
}
