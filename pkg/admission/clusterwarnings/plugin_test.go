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
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/clusterwarnings"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// discovery answers for a cluster that serves Pods, with a status, and ConfigMaps, without.
func discovery(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/api/v1":
		// A client that went away is not interested.
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			APIResources: []metav1.APIResource{{Name: "pods"}, {Name: "pods/status"}, {Name: "configmaps"}},
		})
	case "/apis/broken.example.com/v1":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func newPlugin(t *testing.T) *clusterwarnings.Plugin {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(discovery))
	t.Cleanup(s.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
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
	return p
}

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
	p := newPlugin(t)
	labeled := composite("foos")
	labeled.Labels = map[string]string{"a": "b"}
	elsewhere := func(apiVersion string) *metacontroller.CompositeController {
		o := composite("foos")
		o.Spec.ParentResource.APIVersion = apiVersion
		return o
	}
	for name, test := range map[string]struct {
		object, old runtime.Object
		subresource string
		want        []string
	}{
		"everything is served": {object: composite("pods", "configmaps")},
		"a parent without status": {
			object: composite("configmaps"),
			want:   []string{"spec.parentResource: configmaps have no status subresource; the status that hooks return is not written"},
		},
		"resources that are not served": {
			object: composite("pod", "pods", "configmap"),
			want: []string{
				"spec.parentResource: the cluster does not serve pod in v1; the controller starts when it does; did you mean pods?",
				"spec.childResources[1]: the cluster does not serve configmap in v1; the controller goes without it until it does; did you mean configmaps?",
			},
		},
		"a group that is not served": {
			object: elsewhere("example.com/v1"),
			want:   []string{"spec.parentResource: the cluster does not serve foos in example.com/v1; the controller starts when it does"},
		},
		"a group of which nothing is known": {object: elsewhere("broken.example.com/v1")},
		"an API version that is none":       {object: elsewhere("a/b/c")},
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
		"a change of the resource": {object: composite("configmaps"), old: composite("pods"), want: []string{"spec.parentResource: configmaps have no status subresource; the status that hooks return is not written"}},
		"a status":                 {object: composite("foos"), subresource: "status"},
		"another kind":             {object: &metacontroller.ControllerRevision{}},
	} {
		t.Run(name, func(t *testing.T) {
			operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
			if test.old != nil {
				operation, options = admission.Update, &metav1.UpdateOptions{}
			}
			a := admission.NewAttributesRecord(test.object, test.old, metacontroller.SchemeGroupVersion.WithKind("Any"), "", "x",
				metacontroller.SchemeGroupVersion.WithResource("any"), test.subresource, operation, options, false, nil)
			var got recorder
			if err := p.Validate(warning.WithWarningRecorder(t.Context(), &got), a, nil); err != nil {
				t.Fatalf("a warning became an error: %v", err)
			}
			if diff := cmp.Diff(test.want, got.texts); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}
