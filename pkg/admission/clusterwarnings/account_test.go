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

package clusterwarnings_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// The author of a controller with a service account is asked whether he may act as it, and not whether he may read the Secrets that he names.
func TestAuthorsOfControllersWithAccountsAreNotToldOfSecrets(t *testing.T) {
	ref := &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "web"}
	missing := v1alpha1.WebhookSecurity{
		Authorization: &v1alpha1.WebhookAuthorization{SecretRef: v1alpha1.SecretKeyReference{Namespace: "hooks", Name: "good", Key: "tokn"}},
		CABundle:      &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "hooks", Name: "bad"}},
	}
	composite := calling(func(w *v1alpha1.Webhook) {
		w.WebhookSecurity = missing
		w.Service = &v1alpha1.ServiceReference{Namespace: "hooks", Name: "bad", Port: new(int32(80))}
	})
	composite.Spec.EndpointConfigs = []v1alpha1.EndpointConfig{{Host: "a", WebhookSecurity: missing}}
	decorator := &metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{
		Resources:       []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: composite.Spec.ParentResource.ResourceRule}},
		Hooks:           &v1alpha1.DecoratorControllerHooks{Sync: composite.Spec.Hooks.Sync},
		EndpointConfigs: composite.Spec.EndpointConfigs,
	}}
	service := []string{"spec.hooks.sync.webhook.service: Service hooks/bad does not exist; calls of the hook fail until it does"}
	for name, object := range map[string]struct {
		runtime.Object

		name func(*v1alpha1.ServiceAccountReference)
	}{
		"a composite": {composite, func(ref *v1alpha1.ServiceAccountReference) { composite.Spec.ServiceAccountRef = ref }},
		"a decorator": {decorator, func(ref *v1alpha1.ServiceAccountReference) { decorator.Spec.ServiceAccountRef = ref }},
	} {
		t.Run(name, func(t *testing.T) {
			if got := warningsIn(t, cluster(), object.Object, nil); len(got) != 5 {
				t.Errorf("without an account the author is told %q, want two things of the hook, two of the host, and one of the Service", got)
			}
			object.name(ref)
			if diff := cmp.Diff(service, warningsIn(t, cluster(), object.Object, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Who changes what the check of rights is not about is not asked whether he may read the Secrets that the controller names.
func TestAuthorsOfUpdatesThatAreNotCheckedAreNotToldOfSecrets(t *testing.T) {
	before := calling(func(w *v1alpha1.Webhook) {
		w.CABundle = &v1alpha1.CABundle{SecretRef: &v1alpha1.CABundleReference{Namespace: "hooks", Name: "bad"}}
		w.Service = &v1alpha1.ServiceReference{Namespace: "hooks", Name: "bad", Port: new(int32(80))}
	})
	before.Spec.EndpointConfigs = []v1alpha1.EndpointConfig{{Host: "a", WebhookSecurity: before.Spec.Hooks.Sync.Webhook.WebhookSecurity}}
	const service = "spec.hooks.sync.webhook.service: Service hooks/bad does not exist; calls of the hook fail until it does"
	secrets := []string{
		"spec.hooks.sync.webhook.caBundle.secretRef: Secret hooks/bad does not exist; calls of the hook fail until it does",
		"spec.endpointConfigs[0].caBundle.secretRef: Secret hooks/bad does not exist; calls of the hook fail until it does",
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.CompositeControllerSpec)
		want   []string
	}{
		"paused":  {func(s *v1alpha1.CompositeControllerSpec) { s.Paused = new(true) }, []string{service}},
		"workers": {func(s *v1alpha1.CompositeControllerSpec) { s.Workers = new(int32(3)) }, []string{service}},
		"what the hook is for": {func(s *v1alpha1.CompositeControllerSpec) {
			s.GenerateSelector = new(true)
		}, append([]string{service}, secrets...)},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			tc.change(&after.Spec)
			if diff := cmp.Diff(tc.want, warningsIn(t, cluster(), after, before)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}
