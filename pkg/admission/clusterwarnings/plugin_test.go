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
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// recorder keeps the warnings that a client would get.
type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

func composite(parent string, children ...string) *metacontroller.CompositeController {
	o := &metacontroller.CompositeController{}
	o.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: parent}
	for _, child := range children {
		o.Spec.ChildResources = append(o.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: child},
		})
	}
	return o
}

func TestWarnings(t *testing.T) {
	labeled := composite("foos")
	labeled.Labels = map[string]string{"a": "b"}
	unreadable := composite("foos")
	unreadable.Spec.ParentResource.APIVersion = "a/b/c"
	withoutStatus := []string{"spec.parentResource: configmaps have no status subresource; the status that hooks return is not written"}
	for name, test := range map[string]struct {
		object, old runtime.Object
		subresource string
		want        []string
	}{
		"a parent without status":     {object: composite("configmaps"), want: withoutStatus},
		"an API version that is none": {object: unreadable},
		"a decorator": {
			object: &metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{
				Resources: []v1alpha1.DecoratorControllerResourceRule{
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}},
				},
				Attachments: []v1alpha1.DecoratorControllerAttachmentRule{
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "service"}},
				},
			}},
			want: []string{"spec.attachments[0]: the cluster does not serve service in v1; the controller goes without it until it does"},
		},
		"a change elsewhere":       {object: labeled, old: composite("foos")},
		"a change of the resource": {object: composite("configmaps"), old: composite("pods"), want: withoutStatus},
		"a status":                 {object: composite("foos"), subresource: "status"},
		"another kind":             {object: &metacontroller.ControllerRevision{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, warningsIn(t, cluster(), test.object, test.old, test.subresource)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

// panics is the response with which the client's own code panics.
type panics struct{}

// fragile panics where the world says so.
type fragile struct {
	next  http.RoundTripper
	world world
}

// RoundTrip implements http.RoundTripper.
func (f *fragile) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.world[r.URL.Path] == (panics{}) {
		panic("boom")
	}
	return f.next.RoundTrip(r)
}

func TestALookupThatPanicsSaysNothing(t *testing.T) {
	object := by("bad", 80)
	object.Spec.ChildResources = append(object.Spec.ChildResources, object.Spec.ChildResources[0])
	const missing = "spec.hooks.sync.webhook.service: Service hooks/bad does not exist; calls of the hook fail until it does"
	for name, test := range map[string]struct {
		path string
		want []string
	}{
		"nothing":           {"", []string{missing}},
		"a Service":         {"/api/v1/namespaces/hooks/services/bad", nil},
		"parents":           {"/apis/apps/v1", []string{missing}},
		"several children":  {"/api/v1", []string{missing}},
		"other controllers": {"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers", []string{missing}},
	} {
		t.Run(name, func(t *testing.T) {
			w, before := cluster(), recovery.Count()
			if test.path != "" {
				w[test.path] = panics{}
			}
			if diff := cmp.Diff(test.want, warningsIn(t, w, object, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
			if panicked := recovery.Count() > before; panicked != (test.path != "") {
				t.Errorf("a panic was counted: %v", panicked)
			}
		})
	}
}

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

// some is a list with one object.
func some() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
}

// annotated is a page of a list, of objects of which one has an annotation.
func annotated(next string, annotations map[string]string) *metav1.PartialObjectMetadataList {
	page := some()
	page.Continue = next
	page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: annotations}})
	return page
}

// endless is a list of which each page says that there is another one.
func endless(path string) world {
	return world{path: annotated("more", nil), path + "&more": annotated("more", nil)}
}

func TestWarningsAboutADeletion(t *testing.T) {
	selected := deployments(func(s *v1alpha1.CompositeControllerSpec) {
		s.ParentResource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	})
	finalizing := deployments(func(s *v1alpha1.CompositeControllerSpec) {
		s.Hooks = &v1alpha1.CompositeControllerHooks{Finalize: &v1alpha1.Hook{}}
	})
	decorator := func(change ...func(*v1alpha1.DecoratorControllerSpec)) *metacontroller.DecoratorController {
		d := &metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{Resources: []v1alpha1.DecoratorControllerResourceRule{
			{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
			{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}},
		}}}
		for _, c := range change {
			c(&d.Spec)
		}
		return d
	}
	attaching := func(s *v1alpha1.DecoratorControllerSpec) {
		s.Attachments = []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "services"}}}
	}
	ending := func(s *v1alpha1.DecoratorControllerSpec) {
		s.Hooks = &v1alpha1.DecoratorControllerHooks{Finalize: &v1alpha1.Hook{}}
	}
	noted := func(s *v1alpha1.DecoratorControllerSpec) {
		s.Resources = s.Resources[:1]
		s.Resources[0].AnnotationSelector = &v1alpha1.AnnotationSelector{MatchAnnotations: map[string]string{"a": "b"}}
	}
	const attachments = "spec.resources[0]: there are pods: their attachments stay, and nobody updates them. To delete the attachments as well, have the hook return " +
		"none first"
	for name, test := range map[string]struct {
		world world
		old   runtime.Object
		want  []string
	}{
		"there are parents": {world{"/apis/apps/v1/deployments": some()}, deployments(), []string{
			"spec.parentResource: there are deployments.apps: their children stay, and nobody updates them. To delete the children as well, delete the " +
				"deployments.apps first",
		}},
		"there is a finalize hook": {world{"/apis/apps/v1/deployments": some()}, finalizing, []string{
			"spec.parentResource: there are deployments.apps: their children stay, and nobody updates them. Nobody finalizes the deployments.apps. " +
				"To delete the children as well, delete the deployments.apps first",
		}},
		"there are targets": {
			world{"/api/v1/pods": some(), "/apis/apps/v1/deployments": &metav1.PartialObjectMetadataList{}}, decorator(attaching), []string{attachments},
		},
		"there are targets that are finalized": {world{"/api/v1/pods": some()}, decorator(ending), []string{
			"spec.resources[0]: there are pods: nobody finalizes them until you create a controller for them again",
		}},
		"there are targets without attachments": {world{"/api/v1/pods": some()}, decorator(), nil},
		"there are parents without children": {world{"/apis/apps/v1/deployments": some()}, deployments(func(s *v1alpha1.CompositeControllerSpec) {
			s.ChildResources = nil
		}), nil},
		"no annotation is selected": {world{"/api/v1/pods": annotated("", map[string]string{"a": "c"})}, decorator(attaching, noted), nil},
		"an annotation is selected": {world{"/api/v1/pods": annotated("", map[string]string{"a": "b"})}, decorator(attaching, noted), []string{attachments}},
		"an annotation on another page is selected": {
			world{"/api/v1/pods": annotated("2", nil), "/api/v1/pods&2": annotated("", map[string]string{"a": "b"})},
			decorator(attaching, noted),
			[]string{attachments},
		},
		"there are too many to look at": {endless("/api/v1/pods"), decorator(attaching, noted), nil},
		"there are none":                {world{"/apis/apps/v1/deployments": &metav1.PartialObjectMetadataList{}}, deployments(), nil},
		"there are others only":         {world{"/apis/apps/v1/deployments": some(), "/apis/apps/v1/deployments?a=b": &metav1.PartialObjectMetadataList{}}, selected, nil},
		"the kind is not served":        {world{}, deployments(), nil},
		"the server may not look":       {world{"/apis/apps/v1/deployments": http.StatusForbidden}, deployments(), nil},
		"another object of the group":   {world{"/apis/apps/v1/deployments": some()}, &metacontroller.ControllerRevision{}, nil},
		"the API server does not tell":  {world{"/apis/apps/v1/deployments": hangs{}}, deployments(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, warningsIn(t, test.world, nil, test.old)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}
