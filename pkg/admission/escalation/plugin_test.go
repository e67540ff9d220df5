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

package escalation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/escalation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rule(apiVersion, resource string) v1alpha1.ResourceRule {
	return v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}
}

func hook(url string) *v1alpha1.Hook {
	return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: &url}}
}

// composite returns a controller of Foos with ConfigMaps as children, after changes.
func composite(changes ...func(*v1alpha1.CompositeControllerSpec)) *metacontroller.CompositeController {
	o := &metacontroller.CompositeController{}
	o.Spec.ParentResource.ResourceRule = rule("example.com/v1", "foos")
	o.Spec.ChildResources = []v1alpha1.CompositeControllerChildResourceRule{{ResourceRule: rule("v1", "configmaps")}}
	o.Spec.Hooks = &v1alpha1.CompositeControllerHooks{Sync: hook("http://hook/sync")}
	for _, change := range changes {
		change(&o.Spec)
	}
	return o
}

// decorator returns a controller of Pods with Services as attachments, after changes.
func decorator(changes ...func(*v1alpha1.DecoratorControllerSpec)) *metacontroller.DecoratorController {
	o := &metacontroller.DecoratorController{}
	o.Spec.Resources = []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("v1", "pods")}}
	o.Spec.Attachments = []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: rule("v1", "services")}}
	o.Spec.Hooks = &v1alpha1.DecoratorControllerHooks{Sync: hook("http://hook/sync")}
	for _, change := range changes {
		change(&o.Spec)
	}
	return o
}

func revision(changes ...func(*metacontroller.ControllerRevision)) *metacontroller.ControllerRevision {
	o := &metacontroller.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{
		"metacontroller.k8s.io/apiGroup": "example.com", "metacontroller.k8s.io/resource": "foos",
	}}}
	o.ParentPatch.Raw = []byte(`{"spec":{"a":1,"b":2}}`)
	for _, change := range changes {
		change(o)
	}
	return o
}

// write is a request of user eve; old is nil for a creation.
func write(object, old runtime.Object, dryRun bool, groups ...string) admission.Attributes {
	resource := "compositecontrollers"
	switch object.(type) {
	case *metacontroller.DecoratorController:
		resource = "decoratorcontrollers"
	case *metacontroller.ControllerRevision:
		resource = "controllerrevisions"
	}
	operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
	if old != nil {
		operation, options = admission.Update, &metav1.UpdateOptions{}
	}
	return admission.NewAttributesRecord(object, old, metacontroller.SchemeGroupVersion.WithKind("Any"), "", "x",
		metacontroller.SchemeGroupVersion.WithResource(resource), "", operation, options, dryRun,
		&user.DefaultInfo{Name: "eve", UID: "7", Groups: groups, Extra: map[string][]string{"scopes": {"a"}}})
}

// What the objects above need.
var (
	compositeRights = []string{
		"create configmaps", "delete configmaps", "get configmaps", "get foos.example.com", "list configmaps", "list foos.example.com",
		"patch configmaps", "patch foos.example.com/status", "update foos.example.com/finalizers", "watch configmaps", "watch foos.example.com",
	}
	decoratorRights = []string{
		"create services", "delete services", "get pods", "get services", "list pods", "list services", "patch pods",
		"patch pods/status", "patch services", "update pods/finalizers", "watch pods", "watch services",
	}
)

// childRights are those on a kind of children that stay as they are.
func childRights(resource string) []string {
	list := []string{"get", "list", "watch", "create", "patch", "delete"}
	for i := range list {
		list[i] += " " + resource
	}
	return list
}

func TestRightsThatAreNeeded(t *testing.T) {
	security := v1alpha1.WebhookSecurity{
		CABundle:  &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "ns", Name: "authority"}},
		ClientTLS: &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "pair"}},
		BasicAuth: &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "password"}},
	}
	everything := []string{"get *.*", "list *.*", "watch *.*"}
	for name, test := range map[string]struct {
		object runtime.Object
		also   []string
	}{
		"a composite": {object: composite()},
		"a decorator": {object: decorator()},
		"targets that hooks may delete": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) { s.Resources[0].AllowDelete = new(true) }),
			also:   []string{"delete pods"},
		},
		"targets that hooks may not delete": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) { s.Resources[0].AllowDelete = new(false) }),
		},
		"children that are updated": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) {
				s.ChildResources[0].UpdateStrategy = &v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace}
			}),
			also: []string{"update configmaps"},
		},
		"children that are left alone by name": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) {
				s.ChildResources[0].UpdateStrategy = &v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateOnDelete}
			}),
		},
		"attachments that are recreated": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) {
				s.Attachments[0].UpdateStrategy = &v1alpha1.DecoratorControllerAttachmentUpdateStrategy{Method: v1alpha1.ChildUpdateRecreate}
			}),
			also: []string{"update services"},
		},
		"a finalizer on parents": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) { s.Hooks.Finalize = hook("http://hook/finalize") }),
			also:   []string{"patch foos.example.com"},
		},
		"related objects of a composite": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) { s.Hooks.Customize = hook("http://hook/customize") }),
			also:   everything,
		},
		"related objects of a decorator": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) { s.Hooks.Customize = hook("http://hook/customize") }),
			also:   everything,
		},
		"credentials of a hook": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) { s.Hooks.Sync.Webhook.WebhookSecurity = security }),
			also:   []string{"get configmaps ns/authority", "get secrets ns/pair", "get secrets ns/password"},
		},
		"credentials of a host": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) {
				s.EndpointConfigs = []v1alpha1.EndpointConfig{{Host: "hook", WebhookSecurity: v1alpha1.WebhookSecurity{
					Authorization: &v1alpha1.WebhookAuthorization{SecretRef: v1alpha1.SecretKeyReference{Namespace: "ns", Name: "token"}},
					CABundle:      &v1alpha1.CABundle{SecretRef: &v1alpha1.CABundleReference{Namespace: "ns", Name: "authority"}},
				}}}
			}),
			also: []string{"get secrets ns/authority", "get secrets ns/token"},
		},
		"children that are rights": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) {
				for _, kind := range []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"} {
					s.ChildResources = append(s.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule("rbac.authorization.k8s.io/v1", kind)})
				}
			}),
			also: slices.Concat(
				childRights("roles.rbac.authorization.k8s.io"), childRights("clusterroles.rbac.authorization.k8s.io"),
				childRights("rolebindings.rbac.authorization.k8s.io"), childRights("clusterrolebindings.rbac.authorization.k8s.io"),
				[]string{
					"escalate roles.rbac.authorization.k8s.io", "escalate clusterroles.rbac.authorization.k8s.io",
					"bind roles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io",
				}),
		},
		"attachments that are controllers": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) {
				for _, kind := range []string{"compositecontrollers", "controllerrevisions"} {
					s.Attachments = append(s.Attachments, v1alpha1.DecoratorControllerAttachmentRule{ResourceRule: rule("metacontroller.k8s.io/v1alpha1", kind)})
				}
			}),
			also: slices.Concat(
				childRights("compositecontrollers.metacontroller.k8s.io"), childRights("controllerrevisions.metacontroller.k8s.io"),
				[]string{"escalate compositecontrollers.metacontroller.k8s.io", "escalate controllerrevisions.metacontroller.k8s.io"}),
		},
		"children for which others ask who wrote them": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) {
				s.ChildResources = append(s.ChildResources,
					v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule("certificates.k8s.io/v1", "certificatesigningrequests")},
					v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")})
			}),
			also: slices.Concat(
				childRights("certificatesigningrequests.certificates.k8s.io"), childRights("validatingadmissionpolicies.admissionregistration.k8s.io"),
				[]string{
					"create certificatesigningrequests.certificates.k8s.io/nodeclient", "create certificatesigningrequests.certificates.k8s.io/selfnodeclient",
					"get *.*",
				}),
		},
		"bindings of policies with a customize hook": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) {
				s.Hooks.Customize = hook("http://hook/customize")
				s.Attachments = append(s.Attachments, v1alpha1.DecoratorControllerAttachmentRule{
					ResourceRule: rule("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings"),
				})
			}),
			also: slices.Concat(childRights("mutatingadmissionpolicybindings.admissionregistration.k8s.io"), everything),
		},
		"targets whose status is a certificate": {
			object: decorator(func(s *v1alpha1.DecoratorControllerSpec) {
				s.Resources = append(s.Resources, v1alpha1.DecoratorControllerResourceRule{
					ResourceRule: rule("certificates.k8s.io/v1", "certificatesigningrequests"),
				})
			}),
			also: []string{
				"get certificatesigningrequests.certificates.k8s.io", "list certificatesigningrequests.certificates.k8s.io",
				"watch certificatesigningrequests.certificates.k8s.io", "patch certificatesigningrequests.certificates.k8s.io",
				"patch certificatesigningrequests.certificates.k8s.io/status", "update certificatesigningrequests.certificates.k8s.io/finalizers",
				"sign signers.certificates.k8s.io",
			},
		},
		"the same kind twice": {
			object: composite(func(s *v1alpha1.CompositeControllerSpec) {
				s.ChildResources = append(s.ChildResources, s.ChildResources[0])
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			rights, controllers := compositeRights, "compositecontrollers"
			if _, ok := test.object.(*metacontroller.DecoratorController); ok {
				rights, controllers = decoratorRights, "decoratorcontrollers"
			}
			rights = slices.Concat(rights, test.also)
			c := &cluster{may: all(rights...)}
			p := newPlugin(t, c)
			if err := p.Validate(t.Context(), write(test.object, nil, false), nil); err != nil {
				t.Errorf("who has the rights is refused: %v", err)
			}
			want := append(slices.Clone(rights), "escalate "+controllers+".metacontroller.k8s.io x")
			slices.Sort(want)
			if diff := cmp.Diff(want, c.questions()); diff != "" {
				t.Errorf("asked for other rights (-want +got):\n%s", diff)
			}
			for _, lacking := range rights {
				c.may = all(slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return right == lacking })...)
				err := p.Validate(t.Context(), write(test.object, nil, false), nil)
				if !apierrors.IsForbidden(err) {
					t.Errorf("without %q: got %v", lacking, err)
				}
			}
		})
	}
}

func TestALongRefusalIsCut(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		for i := range 30 {
			s.ChildResources = append(s.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule("v1", fmt.Sprintf("kind%d", i))})
		}
	})
	err := newPlugin(t, &cluster{may: all()}).Validate(t.Context(), write(object, nil, false), nil)
	if err == nil || strings.Count(err.Error(), "\n- ") != 21 || !strings.Contains(err.Error(), "- rights on 14 more resources\n") {
		t.Errorf("got %v", err)
	}
}

func TestWhoIsAsked(t *testing.T) {
	c := &cluster{may: all("escalate compositecontrollers.metacontroller.k8s.io x")}
	p := newPlugin(t, c)
	if err := p.Validate(t.Context(), write(composite(), nil, false, "a"), nil); err != nil {
		t.Fatalf("who may escalate is refused: %v", err)
	}
	if got := c.questions(); len(got) != 1 {
		t.Errorf("who may escalate costs %q", got)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "eve", UID: "7", Groups: []string{"a"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a"}},
	}
	if diff := cmp.Diff(want, c.user); diff != "" {
		t.Errorf("asked about another user (-want +got):\n%s", diff)
	}
	c = &cluster{}
	if err := newPlugin(t, c).Validate(t.Context(), write(composite(), nil, false, "system:masters"), nil); err != nil {
		t.Errorf("the server itself is refused: %v", err)
	}
	a := admission.NewAttributesRecord(composite(), nil, metacontroller.SchemeGroupVersion.WithKind("Any"), "", "x",
		metacontroller.SchemeGroupVersion.WithResource("compositecontrollers"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
	if err := p.Validate(t.Context(), a, nil); !apierrors.IsForbidden(err) {
		t.Errorf("nobody may write: %v", err)
	}
}

func TestChangesThatCount(t *testing.T) {
	type spec = v1alpha1.CompositeControllerSpec
	type decoratorSpec = v1alpha1.DecoratorControllerSpec
	strategy := func(s v1alpha1.CompositeControllerChildUpdateStrategy) func(*spec) {
		return func(o *spec) { o.ChildResources[0].UpdateStrategy = &s }
	}
	rolling := v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateRollingInPlace}
	slower := rolling
	slower.MaxUnavailable = new(intstr.FromInt32(1))
	slower.StatusChecks.Conditions = []v1alpha1.StatusConditionCheck{{Type: "Ready"}}
	labeled := composite()
	labeled.Labels = map[string]string{"a": "b"}
	for name, test := range map[string]struct {
		old, object runtime.Object
		counts      bool
	}{
		"metadata": {composite(), labeled, false},
		"workers and resync": {
			composite(),
			composite(func(s *spec) {
				s.Workers, s.ResyncPeriodSeconds, s.ParentResource.IgnoreStatusChanges = new(int32(3)), new(int32(9)), new(true)
			}), false,
		},
		"the pace of a rollout":  {composite(strategy(rolling)), composite(strategy(slower)), false},
		"the method of children": {composite(), composite(strategy(rolling)), true},
		"the kind of parents":    {composite(), composite(func(s *spec) { s.ParentResource.Resource = "bars" }), true},
		"the parents of a kind":  {composite(func(s *spec) { s.ParentResource.LabelSelector = &metav1.LabelSelector{} }), composite(), true},
		"another child":          {composite(), composite(func(s *spec) { s.ChildResources[0].Resource = "secrets" }), true},
		"one child less":         {composite(), composite(func(s *spec) { s.ChildResources = nil }), true},
		"the URL of a hook":      {composite(), composite(func(s *spec) { s.Hooks.Sync = hook("http://eve/sync") }), true},
		"the Service of a hook": {composite(), composite(func(s *spec) {
			s.Hooks.Sync.Webhook = &v1alpha1.Webhook{Service: &v1alpha1.ServiceReference{Name: "a"}}
		}), true},
		"a new hook":               {composite(), composite(func(s *spec) { s.Hooks.Finalize = hook("http://hook/finalize") }), true},
		"the credential of a host": {composite(), composite(func(s *spec) { s.EndpointConfigs = []v1alpha1.EndpointConfig{{Host: "hook"}} }), true},
		"the way of selection":     {composite(), composite(func(s *spec) { s.GenerateSelector = new(true) }), true},
		"nothing of a decorator":   {decorator(), decorator(func(s *decoratorSpec) { s.Workers, s.ResyncPeriodSeconds = new(int32(3)), new(int32(9)) }), false},
		"the brakes": {
			composite(), composite(func(s *spec) {
				s.Paused, s.DeletionGuard = new(true), &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(1))}
			}), false,
		},
		"the brakes of a decorator": {
			decorator(func(s *decoratorSpec) {
				s.Paused, s.DeletionGuard = new(true), &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromString("5%"))}
			}), decorator(), false,
		},
		"that hooks may delete targets": {
			decorator(), decorator(func(s *decoratorSpec) { s.Resources[0].AllowDelete = new(true) }), true,
		},
		"another service account": {composite(as("team", "a")), composite(as("team", "b")), true},
		"no service account":      {composite(as("team", "a")), composite(), true},
		"workers beside a service account": {
			composite(as("team", "a")), composite(as("team", "a"), func(s *spec) { s.Workers = new(int32(3)) }), false,
		},
		"the targets of a decorator": {
			decorator(), decorator(func(s *decoratorSpec) { s.Resources[0].AnnotationSelector = &v1alpha1.AnnotationSelector{} }), true,
		},
		"the URL of a decorator": {decorator(), decorator(func(s *decoratorSpec) { s.Hooks.Sync = hook("http://eve/sync") }), true},
		"a revision as it is":    {revision(), revision(), false},
		"a revision in another order": {
			revision(), revision(func(r *metacontroller.ControllerRevision) { r.ParentPatch.Raw = []byte(`{"spec": {"b": 2, "a": 1}}`) }), false,
		},
		"finalizers of a revision": {revision(), revision(func(r *metacontroller.ControllerRevision) { r.Finalizers = []string{"a/b"} }), false},
		"the patch of a revision":  {revision(), revision(func(r *metacontroller.ControllerRevision) { r.ParentPatch.Raw = []byte(`{}`) }), true},
		"no JSON in a revision":    {revision(), revision(func(r *metacontroller.ControllerRevision) { r.ParentPatch.Raw = []byte(`{`) }), true},
		"the children of a revision": {
			revision(), revision(func(r *metacontroller.ControllerRevision) {
				r.Children = []v1alpha1.ControllerRevisionChildren{{Kind: "Pod"}}
			}), true,
		},
		"the owner of a revision": {
			revision(), revision(func(r *metacontroller.ControllerRevision) {
				r.OwnerReferences = []metav1.OwnerReference{{UID: "other"}}
			}), true,
		},
		"a revision that becomes one":    {revision(func(r *metacontroller.ControllerRevision) { r.Labels = nil }), revision(), true},
		"a revision that is one no more": {revision(), revision(func(r *metacontroller.ControllerRevision) { r.Labels = nil }), true},
		"a revision that is none": {
			revision(func(r *metacontroller.ControllerRevision) { r.Labels = nil }),
			revision(func(r *metacontroller.ControllerRevision) { r.Labels, r.Children = nil, nil }), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{may: all()}
			err := newPlugin(t, c).Validate(t.Context(), write(test.object, test.old, false), nil)
			if apierrors.IsForbidden(err) != test.counts || err != nil && !test.counts {
				t.Errorf("got %v", err)
			}
			if asked := c.questions(); !test.counts && len(asked) > 0 {
				t.Errorf("asked for %q", asked)
			}
		})
	}
}

func TestRevisionsAreForThoseWhoMayUpdateParents(t *testing.T) {
	c := &cluster{may: all("update foos.example.com")}
	p := newPlugin(t, c)
	if err := p.Validate(t.Context(), write(revision(), nil, false), nil); err != nil {
		t.Errorf("who may update parents is refused: %v", err)
	}
	want := []string{"escalate controllerrevisions.metacontroller.k8s.io x", "update foos.example.com"}
	if diff := cmp.Diff(want, c.questions()); diff != "" {
		t.Errorf("asked for other rights (-want +got):\n%s", diff)
	}
	c.may = all("create controllerrevisions.metacontroller.k8s.io")
	err := p.Validate(t.Context(), write(revision(), nil, false), nil)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hooks would be shown parents that its author may not update") {
		t.Errorf("got %v", err)
	}
}

func TestAClusterThatDoesNotSay(t *testing.T) {
	t.Run("because it forbids the question", func(t *testing.T) {
		err := newPlugin(t, &cluster{}).Validate(t.Context(), write(composite(), nil, false), nil)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), `was not written, because the cluster did not say whether user "eve"`) ||
			!strings.Contains(err.Error(), "subjectaccessreviews") || !strings.Contains(err.Error(), "system:auth-delegator") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("in time", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// The second review ends the request of the author, with others waiting.
		c := &cluster{may: func(right string) bool {
			if strings.HasPrefix(right, "get ") {
				cancel()
			}
			return false
		}}
		if err := newPlugin(t, c).Validate(ctx, write(composite(), nil, false), nil); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("got %v", err)
		}
	})
}

// TestReviewsAreMadeInParallel holds reviews until several are there.
func TestReviewsAreMadeInParallel(t *testing.T) {
	const together = 5
	var mu sync.Mutex
	waiting, met := 0, make(chan struct{})
	c := &cluster{may: but("delete configmaps")}
	escalated := make(chan struct{})
	c.meet = func(ctx context.Context) {
		select {
		case <-escalated:
		default:
			close(escalated) // The first review is alone.
			return
		}
		mu.Lock()
		if waiting++; waiting == together {
			close(met)
		}
		mu.Unlock()
		select {
		case <-met:
		case <-ctx.Done(): // The plugin has no more patience, and says so.
		}
	}
	if err := newPlugin(t, c).Validate(t.Context(), write(composite(), nil, false), nil); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

func TestOtherKindsAreAdmitted(t *testing.T) {
	p := escalation.New()
	if err := p.Validate(t.Context(), write(&metav1.Status{}, nil, false), nil); err != nil {
		t.Error(err)
	}
}

// as lets a controller act as a service account.
func as(namespace, name string) func(*v1alpha1.CompositeControllerSpec) {
	return func(s *v1alpha1.CompositeControllerSpec) {
		s.ServiceAccountRef = &v1alpha1.ServiceAccountReference{Namespace: namespace, Name: name}
	}
}

// What the account may do is the account's, whatever the definition says.
func TestWhoLetsAControllerActAsAServiceAccount(t *testing.T) {
	everything := func(s *v1alpha1.CompositeControllerSpec) {
		s.Hooks.Customize = hook("http://hook/customize")
		s.Hooks.Sync.Webhook.ClientTLS = &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "pair"}}
	}
	const impersonate = "impersonate serviceaccounts team/web"
	account := &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "web"}
	for name, test := range map[string]struct{ object, old runtime.Object }{
		"a creation":               {composite(as("team", "web"), everything), nil},
		"a decorator":              {decorator(func(s *v1alpha1.DecoratorControllerSpec) { s.ServiceAccountRef = account }), nil},
		"a change of the account":  {composite(as("team", "web")), composite(as("team", "other"))},
		"the first account":        {composite(as("team", "web")), composite()},
		"another child":            {composite(as("team", "web")), composite(as("team", "web"), everything)},
		"the account of a dry run": {composite(as("team", "web")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			dryRun := strings.HasSuffix(name, "dry run")
			c := &cluster{may: all(impersonate)}
			if err := newPlugin(t, c).Validate(t.Context(), write(test.object, test.old, dryRun), nil); err != nil {
				t.Errorf("who may impersonate the account is refused: %v", err)
			}
			if got := c.questions(); len(got) != 2 || got[1] != impersonate {
				t.Errorf("asked for %q", got)
			}
			err := newPlugin(t, &cluster{may: but(impersonate)}).Validate(t.Context(), write(test.object, test.old, dryRun), nil)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "this controller would act as a service account that its author "+
				"may not impersonate; user \"eve\" lacks, in all namespaces unless one is named:\n- "+impersonate+"\nGrant these rights, or the verb escalate") {
				t.Errorf("who may do all else got %v", err)
			}
		})
	}
	t.Run("and takes it off again", func(t *testing.T) {
		err := newPlugin(t, &cluster{may: all(impersonate)}).Validate(t.Context(), write(composite(), composite(as("team", "web")), false), nil)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the server's rights") {
			t.Errorf("the controller would act as the server, and its author got %v", err)
		}
	})
}

// TestAControllerThatWouldUseTooManyRights is refused for good, without asking the cluster for them. Its author learns what to do.
func TestAControllerThatWouldUseTooManyRights(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		for i := range 1000 {
			s.ChildResources = append(s.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule("v1", fmt.Sprintf("kind%d", i))})
		}
	})
	c := &cluster{may: all()}
	err := newPlugin(t, c).Validate(t.Context(), write(object, nil, false), nil)
	const want = "this controller would use 6011 rights of the server, and the cluster is asked for 2048 at most; name fewer kinds, Secrets and ConfigMaps, or " +
		"have the controller act as a service account with spec.serviceAccountRef. Who has the verb escalate on compositecontrollers.metacontroller.k8s.io " +
		"may write it as it is"
	if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if asked := c.questions(); len(asked) != 1 {
		t.Errorf("asked for %d rights", len(asked))
	}
}

func TestRefusal(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		s.Hooks.Customize = hook("http://hook/customize")
		s.Hooks.Sync.Webhook.ClientTLS = &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "pair"}}
	})
	p := newPlugin(t, &cluster{may: but("create configmaps", "delete configmaps", "patch foos.example.com/status", "list *.*", "get secrets ns/pair")})
	const want = `compositecontrollers.metacontroller.k8s.io "x" is forbidden: this controller would use the server's rights for what ` +
		`its author may not do; user "eve" (groups ["a" "b"]) lacks, in all namespaces unless one is named:
- patch foos.example.com/status
- create, delete configmaps
- list all resources, because a customize hook may read any kind
- get secrets ns/pair
Grant these rights, or the verb escalate on compositecontrollers.metacontroller.k8s.io`
	for _, dryRun := range []bool{false, true} {
		err := p.Validate(t.Context(), write(object, nil, dryRun, "a", "b"), nil)
		if err == nil || err.Error() != want {
			t.Errorf("dry run %v: got %v", dryRun, err)
		}
	}
}

func TestARefusalSaysWhyPoliciesTakeAllKinds(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		s.ChildResources[0].ResourceRule = rule("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")
	})
	err := newPlugin(t, &cluster{may: but("get *.*", "list *.*")}).Validate(t.Context(), write(object, nil, false), nil)
	if want := "\n- get, list all resources, because an admission policy may refer to any kind\n"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// A cluster responds to SubjectAccessReviews.
type cluster struct {
	// may says what the user may do, as in "get pods" or "get secrets ns/name"; nil stands for a cluster that forbids the question.
	may func(right string) bool
	// meet, if set, is called in each review before the response.
	meet func(ctx context.Context)

	mu    sync.Mutex
	asked []string
	user  authorizationv1.SubjectAccessReviewSpec
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || c.may == nil {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(apierrors.NewForbidden(authorizationv1.Resource("subjectaccessreviews"), "", errors.New("not you")).Status())
		return
	}
	if c.meet != nil {
		c.meet(r.Context())
	}
	right := text(*review.Spec.ResourceAttributes)
	review.Status.Allowed = c.may(right)
	// As RBAC says of a binding to a role that is gone, whatever the decision is.
	review.Status.EvaluationError = `clusterrole "gone" not found`
	w.WriteHeader(http.StatusCreated)
	// A client that went away is not interested.
	_ = json.NewEncoder(w).Encode(review)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, right)
	review.Spec.ResourceAttributes = nil
	c.user = review.Spec
}

// questions returns the rights that were asked for, sorted.
func (c *cluster) questions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.asked)
	return c.asked
}

// text writes a right in one line.
func text(a authorizationv1.ResourceAttributes) string {
	line := a.Verb + " " + a.Resource
	if a.Group != "" {
		line += "." + a.Group
	}
	if a.Subresource != "" {
		line += "/" + a.Subresource
	}
	if a.Name != "" {
		line += " " + strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")
	}
	return line
}

// all lets the user do what is in the list.
func all(rights ...string) func(string) bool {
	return func(right string) bool { return slices.Contains(rights, right) }
}

// but lets the user do everything but escalate and what is in the list.
func but(rights ...string) func(string) bool {
	return func(right string) bool {
		return !strings.HasPrefix(right, "escalate ") && !slices.Contains(rights, right)
	}
}

// newPlugin returns the plugin with a client of the cluster.
func newPlugin(t *testing.T, c *cluster) *escalation.Plugin {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := escalation.New()
	if err := p.ValidateInitialization(); err == nil {
		t.Error("it does not miss its client")
	}
	escalation.Initializer{Reviews: client.AuthorizationV1().SubjectAccessReviews()}.Initialize(p)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}
