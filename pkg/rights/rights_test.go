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

package rights_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

func rule(apiVersion, resource string) v1alpha1.ResourceRule {
	return v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}
}

func hook() *v1alpha1.Hook {
	return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{WebhookSecurity: v1alpha1.WebhookSecurity{
		ClientTLS: &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "pair"}},
		CABundle:  &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "ns", Name: "authority"}},
	}}}
}

// Its kinds are literal, so that no rights on all kinds are needed.
func TestNeedsOfAnInlineCustomizeHook(t *testing.T) {
	template := func(text string) v1alpha1.InlineTemplate {
		return v1alpha1.InlineTemplate{Template: runtime.RawExtension{Raw: []byte(text)}}
	}
	customize := &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{RelatedResources: []v1alpha1.InlineTemplate{
		template(`{"apiVersion":"v1","resource":"secrets","Resource":"pods","names":["${parent.spec.secret}"]}`),
		template(`{"apiVersion":"apps/v1","resource":"deployments","namespaceSelector":"${parent.spec.where}"}`),
		template(`["not", "a rule"]`),
	}}}
	composite := &v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Customize: customize}}
	composite.ParentResource.ResourceRule = rule("example.com/v1", "foos")
	decorator := &v1alpha1.DecoratorControllerSpec{
		Resources: []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("example.com/v1", "foos")}},
		Hooks:     &v1alpha1.DecoratorControllerHooks{Customize: customize},
	}
	want := []string{"get, list, watch secrets", "get, list, watch deployments.apps", "get, list, watch namespaces"}
	for name, needs := range map[string]rights.Needs{"composite": rights.OfComposite(composite), "decorator": rights.OfDecorator(decorator)} {
		lines := rights.Lines(needs.Kinds)
		if len(lines) != 5 || !slices.Equal(lines[2:], want) || needs.Related != nil {
			t.Errorf("a %s needs %q, and as related %v", name, lines, needs.Related)
		}
	}
}

// The order is that of the definition, and nothing is there twice.
func TestNeedsOfADefinition(t *testing.T) {
	composite := &v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Sync: hook(), Customize: hook()}}
	composite.ParentResource.ResourceRule = rule("example.com/v1", "foos")
	composite.ChildResources = []v1alpha1.CompositeControllerChildResourceRule{
		{
			ResourceRule:   rule("v1", "pods"),
			UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateRollingInPlace},
		},
		{ResourceRule: rule("v1", "pods")},
	}
	needs := rights.OfComposite(composite)
	for name, tc := range map[string]struct{ got, want []string }{
		"kinds": {rights.Lines(needs.Kinds), []string{
			"get, list, watch foos.example.com", "patch foos.example.com/status", "update foos.example.com/finalizers",
			"get, list, watch, create, patch, delete, update pods",
		}},
		"related":     {rights.Lines(needs.Related), []string{"get, list, watch all resources"}},
		"credentials": {rights.Lines(needs.Credentials), []string{"list, watch configmaps ns/authority", "list, watch secrets ns/pair"}},
		"reads": {rights.Lines(needs.Reads()), []string{
			"list, watch foos.example.com", "list, watch pods", "list, watch configmaps ns/authority", "list, watch secrets ns/pair",
		}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s differ (-want +got):\n%s", name, diff)
		}
	}
	decorator := &v1alpha1.DecoratorControllerSpec{
		Resources:   []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("v1", "pods")}},
		Attachments: []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: rule("v1", "services")}},
	}
	needs = rights.OfDecorator(decorator)
	if want := []string{"list, watch pods", "list, watch services"}; !slices.Equal(rights.Lines(needs.Reads()), want) || needs.Related != nil {
		t.Errorf("a decorator without hooks reads %q, and as related %v", rights.Lines(needs.Reads()), needs.Related)
	}
}

// What the cluster looks for at whoever wrote an object is asked of authors, and no role gives it to a service account.
func TestRightsThatObjectsGive(t *testing.T) {
	const certificates, admission = "certificates.k8s.io/v1", "admissionregistration.k8s.io/v1"
	for name, test := range map[string]struct {
		target, attachment v1alpha1.ResourceRule
		// kinds are those that beside the requests' own are asked for the kinds, and requester those for what the objects say.
		kinds, requester []string
	}{
		"nothing": {target: rule("v1", "pods"), attachment: rule("v1", "services")},
		"a request that the kube-controller-manager approves by itself": {
			target: rule("v1", "pods"), attachment: rule(certificates, "certificatesigningrequests"),
			requester: []string{
				"create certificatesigningrequests.certificates.k8s.io/nodeclient", "create certificatesigningrequests.certificates.k8s.io/selfnodeclient",
			},
		},
		"a trust bundle": {
			target: rule("v1", "pods"), attachment: rule(certificates, "clustertrustbundles"), kinds: []string{"attest signers.certificates.k8s.io"},
		},
		"a label of a role, by which it gives its rights to others": {
			target: rule("rbac.authorization.k8s.io/v1", "clusterroles"), attachment: rule("v1", "services"),
			kinds: []string{"escalate clusterroles.rbac.authorization.k8s.io"},
		},
		"a label of a revision": {
			target: rule("metacontroller.k8s.io/v1alpha1", "controllerrevisions"), attachment: rule("v1", "services"),
			kinds: []string{"escalate controllerrevisions.metacontroller.k8s.io"},
		},
		"a certificate in a status": {
			target: rule(certificates, "certificatesigningrequests"), attachment: rule("v1", "services"), kinds: []string{"sign signers.certificates.k8s.io"},
		},
		"a certificate of a Pod in a status": {
			target: rule(certificates, "podcertificaterequests"), attachment: rule("v1", "services"), kinds: []string{"sign signers.certificates.k8s.io"},
		},
		"a device in a status": {
			target: rule("resource.k8s.io/v1", "resourceclaims"), attachment: rule("v1", "services"),
			kinds: []string{"patch resourceclaims.resource.k8s.io/binding", "arbitrary-node:patch resourceclaims.resource.k8s.io/driver"},
		},
		"a policy with parameters":   {target: rule("v1", "pods"), attachment: rule(admission, "validatingadmissionpolicies"), requester: []string{"get all resources"}},
		"a mutation with parameters": {target: rule("v1", "pods"), attachment: rule(admission, "mutatingadmissionpolicies"), requester: []string{"get all resources"}},
		"a binding of a policy": {
			target: rule("v1", "pods"), attachment: rule(admission, "validatingadmissionpolicybindings"), requester: []string{"get, list all resources"},
		},
		"a binding of a mutation": {
			target: rule("v1", "pods"), attachment: rule(admission, "mutatingadmissionpolicybindings"), requester: []string{"get, list all resources"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			needs := rights.OfDecorator(&v1alpha1.DecoratorControllerSpec{
				Resources:   []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: test.target}},
				Attachments: []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: test.attachment}},
			})
			var guards []rights.Right
			for _, right := range needs.Kinds {
				if rights.Guards(right) {
					guards = append(guards, right)
				}
			}
			if got := rights.Lines(guards); !slices.Equal(got, test.kinds) {
				t.Errorf("beside the requests it takes %q, want %q", got, test.kinds)
			}
			if got := rights.Lines(needs.Requester); !slices.Equal(got, test.requester) {
				t.Errorf("of the requester is asked %q, want %q", got, test.requester)
			}
			composite := v1alpha1.CompositeControllerSpec{ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{ResourceRule: test.attachment}}}
			composite.ParentResource.ResourceRule = test.target
			if got := rights.Lines(rights.OfComposite(&composite).Requester); !slices.Equal(got, test.requester) {
				t.Errorf("of the requester of a composite's children is asked %q, want %q", got, test.requester)
			}
		})
	}
}

func TestRightsAsText(t *testing.T) {
	for want, right := range map[string]rights.Right{
		"all resources":                         {Group: "*", Resource: "*"},
		"deployments.apps/status":               {Group: "apps", Resource: "deployments", Subresource: "status"},
		"pods in namespace team":                {Resource: "pods", Namespace: "team"},
		"secrets team/token":                    {Resource: "secrets", Namespace: "team", Name: "token"},
		"clusterroles.rbac.example admin":       {Group: "rbac.example", Resource: "clusterroles", Name: "admin"},
		"foos.example.com/scale in namespace a": {Group: "example.com", Resource: "foos", Subresource: "scale", Namespace: "a"},
	} {
		if got := right.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAccounts(t *testing.T) {
	account := rights.AccountOf(&v1alpha1.ServiceAccountReference{Namespace: "team", Name: "web"})
	if account.User() != "system:serviceaccount:team:web" || account.String() != "team/web" {
		t.Errorf("got %v, user %s", account, account.User())
	}
	if want := []string{"system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"}; !slices.Equal(account.Groups(), want) {
		t.Errorf("its groups are %q", account.Groups())
	}
	if want := (rights.Right{Verb: "impersonate", Resource: "serviceaccounts", Namespace: "team", Name: "web"}); account.Impersonate() != want {
		t.Errorf("who acts as it needs %v", account.Impersonate())
	}
	if rights.AccountOf(nil) != nil {
		t.Error("there is an account where none is named")
	}
}
