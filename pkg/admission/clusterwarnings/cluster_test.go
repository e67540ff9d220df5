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
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/clusterwarnings"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world responds to requests by their path.
type world map[string]any

// hangs is the response to requests that get none until the client gives up.
type hangs struct{}

// ServeHTTP implements http.Handler.
func (w world) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	response.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	if selector := r.URL.Query().Get("labelSelector"); selector != "" {
		path += "?" + selector
	}
	if next := r.URL.Query().Get("continue"); next != "" {
		path += "&" + next
	}
	switch found := w[path].(type) {
	case nil:
		response.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(response).Encode(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	case int:
		response.WriteHeader(found)
	case hangs:
		<-r.Context().Done()
	default:
		// A client that went away is not interested.
		_ = json.NewEncoder(response).Encode(found)
	}
}

func resources(version string, list ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: list,
	}
}

func group(name string, versions ...string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for _, version := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func composites(list ...v1alpha1.CompositeController) *v1alpha1.CompositeControllerList {
	return &v1alpha1.CompositeControllerList{Items: list}
}

func service(ports ...int32) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
	for _, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: port})
	}
	return s
}

func endpoints(ready ...bool) *discoveryv1.EndpointSliceList {
	list := &discoveryv1.EndpointSliceList{Items: make([]discoveryv1.EndpointSlice, 1)}
	for _, r := range ready {
		list.Items[0].Endpoints = append(list.Items[0].Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: new(r)}})
	}
	return list
}

// other is a stored CompositeController.
func other(name, parent, selector string, children ...string) v1alpha1.CompositeController {
	o := v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: parent}
	if selector != "" {
		var err error
		if o.Spec.ParentResource.LabelSelector, err = metav1.ParseToLabelSelector(selector); err != nil {
			panic(err)
		}
	}
	for _, child := range children {
		o.Spec.ChildResources = append(o.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: child},
		})
	}
	return o
}

// cluster is one in which all is well.
func cluster() world {
	return world{
		"/api":  &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group("apps", "v1", "v1beta1"), group("example.com", "v1")}},
		"/api/v1": resources("v1",
			metav1.APIResource{Name: "pods", Kind: "Pod", SingularName: "pod", Namespaced: true}, metav1.APIResource{Name: "pods/status"},
			metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true},
			metav1.APIResource{Name: "namespaces", Kind: "Namespace"}, metav1.APIResource{Name: "namespaces/status"},
			metav1.APIResource{Name: "nodes", Kind: "Node"}, metav1.APIResource{Name: "nodes/status"}),
		"/apis/apps/v1": resources("apps/v1",
			metav1.APIResource{Name: "deployments", Kind: "Deployment", Namespaced: true}, metav1.APIResource{Name: "deployments/status"},
			metav1.APIResource{Name: "statefulsets", Kind: "StatefulSet", Namespaced: true}, metav1.APIResource{Name: "statefulsets/status"}),
		"/apis/apps/v1beta1":   resources("apps/v1beta1", metav1.APIResource{Name: "scales", Kind: "Scale", Namespaced: true}),
		"/apis/example.com/v1": http.StatusServiceUnavailable,

		"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers": composites(),
		"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers": &v1alpha1.DecoratorControllerList{},

		"/api/v1/namespaces/hooks":                                                                      &corev1.Namespace{},
		"/api/v1/namespaces/hooks/services/good":                                                        service(80, 443),
		"/api/v1/namespaces/hooks/services/external":                                                    &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}},
		"/api/v1/namespaces/hooks/services/headless":                                                    &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		"/api/v1/namespaces/hooks/services/starting":                                                    service(80),
		"/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices?kubernetes.io/service-name=good":     endpoints(false, true),
		"/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices?kubernetes.io/service-name=headless": endpoints(true),
		"/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices?kubernetes.io/service-name=starting": endpoints(false),
		"/api/v1/namespaces/hooks/secrets/good":                                                         &corev1.Secret{Data: map[string][]byte{"tls.crt": {}, "tls.key": {}, "ca.crt": {}, "token": {}}},
		"/api/v1/namespaces/hooks/configmaps/good":                                                      &corev1.ConfigMap{Data: map[string]string{"ca.crt": ""}},
		"/api/v1/namespaces/hooks/configmaps/binary":                                                    &corev1.ConfigMap{BinaryData: map[string][]byte{"ca.crt": {}}},
		"/api/v1/namespaces/hooks/secrets/forbidden":                                                    http.StatusForbidden,
		"/api/v1/namespaces/hooks/services/forbidden":                                                   http.StatusForbidden,
	}
}

// warningsIn returns what the author of an object is told; of an object that is deleted if there is only an old one.
func warningsIn(t *testing.T, w world, object, old runtime.Object, subresource ...string) []string {
	t.Helper()
	operation := admission.Create
	switch {
	case object == nil:
		operation = admission.Delete
	case old != nil:
		operation = admission.Update
	}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &fragile{next: next, world: w} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	own, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p := clusterwarnings.New()
	if err := p.ValidateInitialization(); err == nil {
		t.Error("it does not miss its client")
	}
	p.SetExternalKubeClientSet(client)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	service := types.NamespacedName{Namespace: "platform", Name: "hooks-apiserver"} // As of a chart with another name in another namespace.
	clusterwarnings.Initializer{Own: own, Port: 8443, Service: service}.Initialize(p)
	var got recorder
	a := admission.NewAttributesRecord(object, old, metacontroller.SchemeGroupVersion.WithKind("Any"), "", "mine",
		metacontroller.SchemeGroupVersion.WithResource("any"), strings.Join(subresource, "/"), operation, &metav1.CreateOptions{}, false, nil)
	if err := p.Validate(warning.WithWarningRecorder(t.Context(), &got), a, nil); err != nil {
		t.Fatalf("a warning became an error: %v", err)
	}
	return got.texts
}

// deployments is a controller of Deployments with Pods, after changes.
func deployments(changes ...func(*v1alpha1.CompositeControllerSpec)) *metacontroller.CompositeController {
	o := composite("deployments", "pods")
	o.Spec.ParentResource.APIVersion = "apps/v1"
	for _, change := range changes {
		change(&o.Spec)
	}
	return o
}

// calling is a controller with a sync hook.
func calling(change func(*v1alpha1.Webhook)) *metacontroller.CompositeController {
	return deployments(func(s *v1alpha1.CompositeControllerSpec) {
		webhook := &v1alpha1.Webhook{}
		change(webhook)
		s.Hooks = &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: webhook}}
	})
}

func at(url string) *metacontroller.CompositeController {
	return calling(func(w *v1alpha1.Webhook) { w.URL = &url })
}

func by(service string, port int32) *metacontroller.CompositeController {
	return calling(func(w *v1alpha1.Webhook) {
		w.Service = &v1alpha1.ServiceReference{Namespace: "hooks", Name: service, Port: new(port)}
	})
}

func TestWarningsAboutKinds(t *testing.T) {
	parent := func(apiVersion, resource string) *metacontroller.CompositeController {
		return deployments(func(s *v1alpha1.CompositeControllerSpec) {
			s.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}
		})
	}
	const starts = "; the controller starts when it does"
	for name, test := range map[string]struct {
		object runtime.Object
		want   []string
	}{
		"all is well":          {object: deployments()},
		"a singular":           {parent("v1", "pod"), []string{"spec.parentResource: the cluster does not serve pod in v1" + starts + "; did you mean pods?"}},
		"a kind":               {parent("apps/v1", "Deployment"), []string{"spec.parentResource: the cluster does not serve Deployment in apps/v1" + starts + "; did you mean deployments?"}},
		"a short name":         {parent("v1", "cm"), []string{"spec.parentResource: the cluster does not serve cm in v1" + starts + "; did you mean configmaps?"}},
		"a misspelling":        {parent("apps/v1", "deplyoments"), []string{"spec.parentResource: the cluster does not serve deplyoments in apps/v1" + starts + "; did you mean deployments?"}},
		"another group":        {parent("v1", "deployments"), []string{"spec.parentResource: the cluster does not serve deployments in v1" + starts + "; did you mean deployments in apps/v1?"}},
		"a group that is none": {parent("app/v1", "deployments"), []string{"spec.parentResource: the cluster does not serve deployments in app/v1" + starts + "; did you mean deployments in apps/v1?"}},
		"another version":      {parent("apps/v1", "scales"), []string{"spec.parentResource: the cluster does not serve scales in apps/v1" + starts + "; did you mean scales in apps/v1beta1?"}},
		"what nobody knows":    {parent("example.org/v1", "bananas"), []string{"spec.parentResource: the cluster does not serve bananas in example.org/v1" + starts}},
		"a group that is down": {object: parent("example.com/v1", "things")},
		"a child out of reach": {deployments(func(s *v1alpha1.CompositeControllerSpec) { s.ChildResources[0].Resource = "nodes" }), []string{"spec.childResources[0]: nodes are cluster-scoped and deployments are namespaced, whose children must be in their namespace: responses with such children are rejected"}},
		"a child within reach": {object: composite("nodes", "pods", "nodes")},
		"children that stay": {object: deployments(func(s *v1alpha1.CompositeControllerSpec) {
			s.ChildResources[0].OnParentDeletion = v1alpha1.ParentDeletionRetain
		})},
		"children that stay without their namespace": {
			&metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{
				Resources: []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "namespaces"}}},
				Attachments: []v1alpha1.DecoratorControllerAttachmentRule{
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}, OnParentDeletion: v1alpha1.ParentDeletionRetain},
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}},
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "nodes"}, OnParentDeletion: v1alpha1.ParentDeletionRetain},
				},
			}},
			[]string{"spec.attachments[0]: pods in a namespace go with it when it is deleted, although onParentDeletion is Retain: only those of a namespace that are in another one stay"},
		},
		"one failure of several": {deployments(func(s *v1alpha1.CompositeControllerSpec) {
			s.ParentResource.APIVersion, s.ChildResources[0].Resource = "example.com/v1", "podz"
		}), []string{"spec.childResources[0]: the cluster does not serve podz in v1; the controller goes without it until it does; did you mean pods?"}},
		"targets": {
			&metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{
				Resources: []v1alpha1.DecoratorControllerResourceRule{
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "nodes"}},
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmap"}},
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
				},
				Attachments: []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "nodes"}}},
			}},
			[]string{
				"spec.resources[1]: the cluster does not serve configmap in v1; the controller goes without it until it does; did you mean configmaps?",
				"spec.attachments[0]: nodes are cluster-scoped and pods are namespaced, whose children must be in their namespace: responses with such children are rejected",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, warningsIn(t, cluster(), test.object, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWarningsBeforeAKindIsServed are about controllers that are applied together with the CustomResourceDefinitions of their kinds.
func TestWarningsBeforeAKindIsServed(t *testing.T) {
	const notServed = "spec.parentResource: the cluster does not serve bananas in example.org/v1; the controller starts when it does"
	definition := func(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
		d := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "bananas", Kind: "Banana"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		}}
		change(d)
		return d
	}
	for name, test := range map[string]struct {
		definition any
		want       []string
	}{
		"it is about to be served": {definition: definition(func(*apiextensionsv1.CustomResourceDefinition) {})},
		"without status": {
			definition(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Subresources = nil }),
			[]string{"spec.parentResource: bananas have no status subresource; the status that hooks return is not written"},
		},
		"in another version": {definition(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Name = "v2" }), []string{notServed}},
		"in a version that is not served": {
			definition(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Served = false }), []string{notServed},
		},
		"its names are taken": {
			definition(func(d *apiextensionsv1.CustomResourceDefinition) {
				d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
					Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse,
				}}
			}), []string{notServed},
		},
		"it is being deleted": {
			definition(func(d *apiextensionsv1.CustomResourceDefinition) { d.DeletionTimestamp = new(metav1.Now()) }), []string{notServed},
		},
		"it may not be read":           {http.StatusForbidden, []string{notServed}},
		"nobody knows":                 {definition: http.StatusInternalServerError},
		"there is no such definition":  {nil, []string{notServed}},
		"the response is not readable": {definition: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			w := cluster()
			w["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bananas.example.org"] = test.definition
			object := deployments(func(s *v1alpha1.CompositeControllerSpec) {
				s.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "example.org/v1", Resource: "bananas"}
			})
			if diff := cmp.Diff(test.want, warningsIn(t, w, object, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWarningsAboutTheConditionSynced are about kinds that have no place for it.
func TestWarningsAboutTheConditionSynced(t *testing.T) {
	object := func(properties ...string) apiextensionsv1.JSONSchemaProps {
		o := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, name := range properties {
			o.Properties[name] = apiextensionsv1.JSONSchemaProps{}
		}
		return o
	}
	conditions := func(of apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		status := object()
		status.Properties["conditions"] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}}
		return status
	}
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	const at = "spec.parentResource: "
	for name, test := range map[string]struct {
		// status is its schema; nil if there is no status subresource.
		status *apiextensionsv1.JSONSchemaProps
		want   []string
	}{
		"no subresource": {nil, []string{
			at + "bananas have no status subresource; the condition Synced is not kept",
			at + "bananas have no status subresource; the status that hooks return is not written",
		}},
		"no conditions": {new(object("phase")), []string{
			at + "the schema of bananas does not declare status.conditions, which the API server drops from the condition Synced",
		}},
		"no generation": {new(conditions(object("type", "status", "reason", "message", "lastTransitionTime"))), []string{
			at + "the schema of bananas does not declare observedGeneration in status.conditions, which the API server drops from the condition Synced",
		}},
		"all of it":            {status: new(conditions(object("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")))},
		"any status":           {status: &open},
		"conditions of a kind": {status: new(conditions(open))},
	} {
		t.Run(name, func(t *testing.T) {
			version := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true}
			if test.status != nil {
				schema := object()
				schema.Properties["status"] = *test.status
				version.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}
				version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
			}
			w := cluster()
			w["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bananas.example.org"] = &apiextensionsv1.CustomResourceDefinition{
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
					Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "bananas", Kind: "Banana"},
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
				},
			}
			o := deployments(func(s *v1alpha1.CompositeControllerSpec) {
				s.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "example.org/v1", Resource: "bananas"}
				s.ParentResource.Conditions = []v1alpha1.ParentCondition{v1alpha1.ParentConditionSynced}
			})
			got := warningsIn(t, w, o, nil)
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsAboutHooks(t *testing.T) {
	const service, url = "spec.hooks.sync.webhook.service: ", "spec.hooks.sync.webhook.url: "
	const own = "this is the address of this server, which serves no hooks"
	secret := func(name, key string) *metacontroller.CompositeController {
		return calling(func(w *v1alpha1.Webhook) {
			w.Authorization = &v1alpha1.WebhookAuthorization{SecretRef: v1alpha1.SecretKeyReference{Namespace: "hooks", Name: name, Key: key}}
		})
	}
	for name, test := range map[string]struct {
		object runtime.Object
		want   []string
	}{
		"a Service":                              {object: by("good", 80)},
		"a Service in upper case":                {object: by("Good", 80)},
		"a Service that is missing":              {by("bad", 80), []string{service + "Service hooks/bad does not exist; calls of the hook fail until it does"}},
		"a Service without that port":            {by("good", 8080), []string{service + "Service hooks/good has no port 8080; calls of the hook fail"}},
		"a Service without ready Pods":           {by("starting", 80), []string{service + "Service hooks/starting has no ready endpoints; calls of the hook fail until a Pod of it is ready"}},
		"a Service that names a host":            {object: by("external", 80)},
		"a headless Service with another port":   {object: by("headless", 8080)},
		"a Service that nobody may read":         {object: by("forbidden", 80)},
		"a URL of a Service":                     {object: at("https://good.hooks.svc/sync")},
		"a URL of a Service in a domain":         {at("http://good.hooks.svc.cluster.local:81/"), []string{url + "Service hooks/good has no port 81; calls of the hook fail"}},
		"a URL of a missing Service":             {at("http://bad.hooks/"), []string{url + "Service hooks/bad does not exist; calls of the hook fail until it does"}},
		"a URL in a domain of two names":         {object: at("http://example.org/")},
		"a URL of a missing Service and its svc": {at("http://bad.nowhere.svc/"), []string{url + "Service nowhere/bad does not exist; calls of the hook fail until it does"}},
		"a URL elsewhere":                        {object: at("http://hooks.example.org/")},
		"a URL with an address":                  {object: at("http://10.0.0.1/")},
		"a URL that is none":                     {object: at("http://[/")},
		"a URL of this server":                   {at("https://hooks-apiserver.platform.svc/"), []string{url + own}},
		"a URL of this server in a domain":       {at("https://Hooks-Apiserver.platform.svc.cluster.local/"), []string{url + own}},
		"a URL of this process":                  {at("https://127.0.0.1:8443/"), []string{url + own}},
		"a URL of this process by name":          {at("https://localhost:8443/"), []string{url + own}},
		"a URL beside this process":              {object: at("https://localhost:8444/")},
		"the Service of this server": {calling(func(w *v1alpha1.Webhook) {
			w.Service = &v1alpha1.ServiceReference{Namespace: "platform", Name: "hooks-apiserver"}
		}), []string{service + own}},
		"a key of a Secret":             {object: secret("good", "token")},
		"a Secret that is missing":      {secret("bad", "token"), []string{"spec.hooks.sync.webhook.authorization.secretRef: Secret hooks/bad does not exist; calls of the hook fail until it does"}},
		"a key that is missing":         {secret("good", "tokn"), []string{`spec.hooks.sync.webhook.authorization.secretRef: Secret hooks/good has no key "tokn"; calls of the hook fail until it does`}},
		"a Secret that nobody may read": {object: secret("forbidden", "token")},
		"a name of a user": {calling(func(w *v1alpha1.Webhook) {
			w.BasicAuth = &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: "hooks", Name: "good"}, PasswordKey: new("token")}
		}), []string{`spec.hooks.sync.webhook.basicAuth.secretRef: Secret hooks/good has no key "username"; calls of the hook fail until it does`}},
		"certificates": {object: calling(func(w *v1alpha1.Webhook) {
			w.ClientTLS = &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "hooks", Name: "good"}}
			w.CABundle = &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "hooks", Name: "binary"}}
		})},
		"certificates of a host": {deployments(func(s *v1alpha1.CompositeControllerSpec) {
			s.EndpointConfigs = []v1alpha1.EndpointConfig{{Host: "a"}, {Host: "b", WebhookSecurity: v1alpha1.WebhookSecurity{
				CABundle: &v1alpha1.CABundle{
					ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "hooks", Name: "good", Key: new("ca.pem")},
					SecretRef:    &v1alpha1.CABundleReference{Namespace: "hooks", Name: "good"},
				},
			}}}
		}), []string{`spec.endpointConfigs[1].caBundle.configMapRef: ConfigMap hooks/good has no key "ca.pem"; calls of the hook fail until it does`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, warningsIn(t, cluster(), test.object, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsAboutChildrenThatKubernetesMakes(t *testing.T) {
	for name, test := range map[string]struct {
		parents string
		want    []string
	}{
		"of StatefulSets": {"statefulsets", []string{
			"spec.childResources[0]: Kubernetes' own controller of statefulsets makes pods of them: those that the hook does not return are deleted, or released, " +
				"and made again. To be shown pods that it does not manage, have a customize hook select them",
		}},
		"of Deployments, which makes ReplicaSets": {"deployments", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := deployments(func(s *v1alpha1.CompositeControllerSpec) { s.ParentResource.Resource = test.parents })
			if diff := cmp.Diff(test.want, warningsIn(t, cluster(), o, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsAboutNeighbors(t *testing.T) {
	selecting := func(selector string) *metacontroller.CompositeController {
		return deployments(func(s *v1alpha1.CompositeControllerSpec) {
			var err error
			if s.ParentResource.LabelSelector, err = metav1.ParseToLabelSelector(selector); err != nil {
				t.Fatal(err)
			}
		})
	}
	const shares = "spec.parentResource: CompositeController other handles deployments.apps too, and the selectors of both may match the " +
		"same ones: both would write their status, and the ControllerRevisions of rolling updates"
	pods := other("back", "deployments", "", "nodes")
	pods.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}
	nodes := other("further", "deployments", "")
	nodes.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "nodes"}
	nodes.Spec.ChildResources = []v1alpha1.CompositeControllerChildResourceRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}}}
	decorator := v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	decorator.Spec.Resources = []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}}}
	decorator.Spec.Attachments = []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1beta1", Resource: "deployments"}}}
	synced := []v1alpha1.ParentCondition{v1alpha1.ParentConditionSynced}
	keeping := func(selector string, conditions ...v1alpha1.ParentCondition) v1alpha1.DecoratorController {
		d := v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}}
		d.Spec.Resources = []v1alpha1.DecoratorControllerResourceRule{{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}, LabelSelector: selecting(selector).Spec.ParentResource.LabelSelector,
			Conditions: conditions,
		}}
		return d
	}
	const replaced = " handles deployments.apps too, and the selectors of both may match the same ones: the CompositeController replaces their status, and the " +
		"condition Synced that the DecoratorController keeps there. Have the CompositeController alone keep it"
	for name, test := range map[string]struct {
		object     runtime.Object
		others     []v1alpha1.CompositeController
		decorators []v1alpha1.DecoratorController
		want       []string
	}{
		"itself": {object: deployments(), others: []v1alpha1.CompositeController{other("mine", "deployments", "")}},
		"the same parents and children": {deployments(), []v1alpha1.CompositeController{other("other", "deployments", "", "nodes", "pods")}, nil, []string{
			"spec.parentResource: CompositeController other handles deployments.apps too, and the selectors of both may match the same ones: each would delete, or " +
				"release, the pods that only the other one's hook returns, and both would write their status, and the ControllerRevisions of rolling updates. Have " +
				"one hook return all of them, or keep the parents apart by labelSelectors",
		}},
		"other parents":                  {object: deployments(), others: []v1alpha1.CompositeController{other("other", "scales", "")}},
		"the same parents":               {deployments(), []v1alpha1.CompositeController{other("other", "deployments", "")}, nil, []string{shares}},
		"some of all parents":            {deployments(), []v1alpha1.CompositeController{other("other", "deployments", "a=1")}, nil, []string{shares}},
		"parents by another key":         {selecting("a=1"), []v1alpha1.CompositeController{other("other", "deployments", "b=1")}, nil, []string{shares}},
		"one value of several":           {selecting("a in (1,2)"), []v1alpha1.CompositeController{other("other", "deployments", "a in (2,3)")}, nil, []string{shares}},
		"other values":                   {selecting("a in (1,2)"), []v1alpha1.CompositeController{other("other", "deployments", "a=3,b=1")}, nil, nil},
		"values that are excluded":       {selecting("a notin (1,2)"), []v1alpha1.CompositeController{other("other", "deployments", "a=2")}, nil, nil},
		"some values that are not":       {selecting("a notin (1)"), []v1alpha1.CompositeController{other("other", "deployments", "a in (1,2)")}, nil, []string{shares}},
		"with and without a key":         {selecting("a"), []v1alpha1.CompositeController{other("other", "deployments", "!a")}, nil, nil},
		"with a value and without a key": {selecting("!a"), []v1alpha1.CompositeController{other("other", "deployments", "a=1")}, nil, nil},
		"a key and a value of it":        {selecting("a"), []v1alpha1.CompositeController{other("other", "deployments", "a=1")}, nil, []string{shares}},
		"a selector that cannot be read": {selecting("a"), []v1alpha1.CompositeController{broken()}, nil, nil},
		"a way back over two controllers": {deployments(), []v1alpha1.CompositeController{pods, nodes}, nil, []string{
			"spec.childResources[0]: CompositeController back makes nodes of pods, CompositeController further makes deployments.apps of nodes, " +
				"which this controller handles: unless selectors keep them apart, objects are created without end",
		}},
		"half of the way back": {object: deployments(), others: []v1alpha1.CompositeController{pods}},
		"a way back over a decorator": {deployments(), nil, []v1alpha1.DecoratorController{decorator}, []string{
			"spec.childResources[0]: DecoratorController mine makes deployments.apps of pods, which this controller handles: " +
				"unless selectors keep them apart, objects are created without end",
		}},
		"a decorator that keeps Synced in the same parents": {deployments(), nil, []v1alpha1.DecoratorController{keeping("", synced...)}, []string{
			"spec.parentResource: DecoratorController keeper" + replaced,
		}},
		"one that keeps it in other ones": {selecting("a=1"), nil, []v1alpha1.DecoratorController{keeping("a=2", synced...)}, nil},
		"one that keeps it nowhere":       {deployments(), nil, []v1alpha1.DecoratorController{keeping("")}, nil},
		"Synced in parents of a composite": {decorates(keeping("", synced...)), []v1alpha1.CompositeController{other("other", "deployments", "")}, nil, []string{
			"spec.resources[0]: CompositeController other" + replaced,
		}},
		"Synced in targets of another decorator": {decorates(keeping("", synced...)), nil, []v1alpha1.DecoratorController{decorator}, nil},
		"a decorator of what another controller handles": {
			object: &metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{
				Resources: []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}}},
			}},
			others: []v1alpha1.CompositeController{other("other", "deployments", "")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := cluster()
			w["/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"] = composites(test.others...)
			w["/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers"] = &v1alpha1.DecoratorControllerList{Items: test.decorators}
			if diff := cmp.Diff(test.want, warningsIn(t, w, test.object, nil)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func decorates(d v1alpha1.DecoratorController) *metacontroller.DecoratorController {
	return (*metacontroller.DecoratorController)(&d)
}

func broken() v1alpha1.CompositeController {
	o := other("other", "deployments", "")
	o.Spec.ParentResource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
	return o
}

// What is slow or fails keeps nothing else from being told.
func TestOneFailureEndsNoOtherLookup(t *testing.T) {
	w := cluster()
	w["/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"] = http.StatusInternalServerError
	w["/apis/apps/v1"] = hangs{}
	w["/api/v1/namespaces/hooks/services/forbidden"] = hangs{}
	object := by("forbidden", 80)
	object.Spec.ChildResources[0].Resource = "pod"
	object.Spec.Hooks.Finalize = by("bad", 80).Spec.Hooks.Sync
	got := warningsIn(t, w, object, nil)
	if len(got) != 2 || !strings.HasPrefix(got[0], "spec.childResources[0]: the cluster does not serve pod in v1;") ||
		!strings.HasPrefix(got[1], "spec.hooks.finalize.webhook.service: Service hooks/bad does not exist;") {
		t.Errorf("got %q", got)
	}
}

func TestWarningsAreLimited(t *testing.T) {
	object := deployments(func(s *v1alpha1.CompositeControllerSpec) {
		for range 30 {
			s.ChildResources = append(s.ChildResources, s.ChildResources[0])
		}
		for i := range s.ChildResources {
			s.ChildResources[i].Resource = "banana"
		}
	})
	got := warningsIn(t, cluster(), object, nil)
	if len(got) != 21 || got[20] != "and 11 more warnings" {
		t.Errorf("got %q", got)
	}
	if got := warningsIn(t, cluster(), object, object.DeepCopy()); len(got) > 0 {
		t.Errorf("an update that changes nothing: got %q", got)
	}
}
