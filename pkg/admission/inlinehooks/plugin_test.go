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

package inlinehooks_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/inlinehooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// things is a CustomResourceDefinition with a place for a status, what says that its names are another's.
const (
	things = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{
		"group":"example.com","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"schema":{"openAPIV3Schema":
		{"type":"object","properties":{"status":{"type":"object","properties":{"ready":{"type":"integer"}}},
		"spec":{"type":"object","properties":{"image":{"type":"string"}}}}}}}]},"status":{%s}}`
	refused = `"conditions":[{"type":"NamesAccepted","status":"False"}]`
)

// A cluster is what the plugin meets.
type cluster struct {
	down bool
	// definition is that of things: the response to who reads it.
	definition string
	// forbidden says that definitions may not be read, and failing that the cluster does not answer.
	forbidden, failing bool
	// served and published say whether discovery has things, and whether OpenAPI has their schema.
	served, published bool
	// read counts the requests by their paths.
	read map[string]int
}

// plugin returns a plugin for the cluster.
func (c *cluster) plugin(t *testing.T) *inlinehooks.Plugin {
	t.Helper()
	c.read = map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		c.read[r.URL.Path]++
		defined := r.URL.Path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
		switch {
		case c.down, defined && c.failing:
			w.WriteHeader(http.StatusInternalServerError)
		case defined && c.forbidden:
			w.WriteHeader(http.StatusForbidden)
		case defined && c.definition != "":
			fmt.Fprint(w, c.definition)
		case r.URL.Path == "/apis/example.com/v1" && c.served:
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"things","kind":"Thing"}]}`)
		case r.URL.Path == "/openapi/v3/apis/example.com/v1" && c.published:
			fmt.Fprint(w, `{"components":{"schemas":{"com.example.v1.Thing":{"type":"object",
				"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Thing"}],
				"properties":{"metadata":{"type":"object"},"status":{"type":"object","properties":{"ready":{"type":"integer"}}},
				"spec":{"type":"object","properties":{"image":{"type":"string"}}}}}}}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	p := inlinehooks.New()
	p.SetExternalKubeClientSet(client)
	return p
}

// reporting is a controller of things whose status is a template.
func reporting(status string, children ...string) *metacontroller.CompositeController {
	o := &metacontroller.CompositeController{}
	o.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "things"}
	for _, resource := range children {
		o.Spec.ChildResources = append(o.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: resource},
		})
	}
	o.Spec.Hooks = &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{
		Status: &runtime.RawExtension{Raw: []byte(status)},
	}}}
	return o
}

type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

func TestInlineHooksAreCompiled(t *testing.T) {
	wrong := reporting(`{"ready": "${parent.spec.image}"}`)
	labeled := wrong.DeepCopy()
	labeled.Labels = map[string]string{"a": "b"}
	served := cluster{served: true, published: true}
	defined := cluster{definition: fmt.Sprintf(things, "")}
	for name, tc := range map[string]struct {
		cluster     cluster
		object, old *metacontroller.CompositeController
		subresource string
		// refused and warned are parts of what the author is told.
		refused, warned string
	}{
		"Right":                      {cluster: served, object: reporting(`{"ready": "${parent.spec.image.size()}"}`)},
		"NoInlineHook":               {cluster: served, object: &metacontroller.CompositeController{}},
		"Wrong":                      {cluster: served, object: wrong, refused: "spec.hooks.sync.inline.status.ready: Invalid value: \"parent.spec.image\": yields string, Thing wants integer (line 1, column 1)"},
		"WrongAfterAChange":          {cluster: served, object: wrong, old: reporting(`{"ready": 1}`), refused: "yields string"},
		"WrongAsBefore":              {cluster: served, object: labeled, old: wrong},
		"TheStatusOfAWrongOne":       {cluster: served, object: wrong, subresource: "status"},
		"AKindThatIsNotServed":       {cluster: served, object: reporting(`{"ready": "${children.widgets.size()}"}`, "widgets"), warned: "widgets of example.com/v1 is not served"},
		"ASchemaThatIsNotPublished":  {cluster: cluster{served: true}, object: wrong, warned: "things of example.com/v1 has no schema"},
		"WhileTheClusterDoesNotSay":  {cluster: cluster{down: true}, object: wrong, warned: "inline hooks are not checked against all kinds"},
		"AWrongOneOfAKindNotServed":  {cluster: served, object: reporting(`{"ready": "${children.widgets.filter(w, 1)}"}`, "widgets"), refused: "status.ready", warned: "is not served"},
		"WhatIsWrongWithoutAnyKinds": {cluster: served, object: reporting(`{"ready": "${1 +}"}`), refused: "(line 1, column 4)"},

		"WrongOfAKindThatIsDefined": {cluster: defined, object: wrong, refused: "yields string, Thing wants integer"},
		"RightOfAKindThatIsDefined": {cluster: defined, object: reporting(`{"ready": "${children.things.size()}"}`, "things")},
		"ASchemaThatIsLate":         {cluster: cluster{served: true, definition: defined.definition}, object: wrong, refused: "yields string, Thing wants integer"},
		"ASchemaThatIsOlder": {
			cluster: cluster{served: true, published: true, definition: strings.Replace(defined.definition, "ready", "done", 1)},
			object:  reporting(`{"done": 1}`),
		},
		"NamesOfAnother": {cluster: cluster{definition: fmt.Sprintf(things, refused)}, object: wrong, warned: "things of example.com/v1 is not served"},
		"ADefinitionThatMayNotBeRead": {
			cluster: cluster{served: true, published: true, definition: defined.definition, forbidden: true}, object: wrong, refused: "yields string",
		},
		"ADefinitionThatCannotBeRead": {
			cluster: cluster{served: true, published: true, failing: true}, object: wrong, warned: "inline hooks are not checked against all kinds",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var old runtime.Object
			operation := admission.Create
			if tc.old != nil {
				old, operation = tc.old, admission.Update
			}
			a := admission.NewAttributesRecord(tc.object, old, metacontroller.SchemeGroupVersion.WithKind("CompositeController"), "", "c",
				metacontroller.SchemeGroupVersion.WithResource("compositecontrollers"), tc.subresource, operation, nil, false, nil)
			var told recorder
			err := tc.cluster.plugin(t).Validate(warning.WithWarningRecorder(t.Context(), &told), a, nil)
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("got %v, want %q", err, tc.refused)
			}
			warned := func(text string) bool { return strings.Contains(text, tc.warned) }
			if tc.warned == "" && len(told.texts) > 0 || tc.warned != "" && !slices.ContainsFunc(told.texts, warned) {
				t.Errorf("warnings are %q, want %q", told.texts, tc.warned)
			}
			for path, times := range tc.cluster.read {
				if times > 1 && !tc.cluster.down && !tc.cluster.failing { // The client repeats what fails.
					t.Errorf("%s was read %d times", path, times)
				}
			}
		})
	}
}
