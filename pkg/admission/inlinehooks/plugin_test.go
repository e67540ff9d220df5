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
	"sync/atomic"
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

// cluster serves things, and their schema unless it is down. It publishes the schema when it was looked for so often.
func cluster(t *testing.T, down bool, late int32) *inlinehooks.Plugin {
	t.Helper()
	var looked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case down:
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/apis/example.com/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"things","kind":"Thing"}]}`)
		case r.URL.Path == "/openapi/v3/apis/example.com/v1" && looked.Add(1) > late:
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
	for name, tc := range map[string]struct {
		object, old *metacontroller.CompositeController
		subresource string
		down        bool
		late        int32
		// refused and warned are parts of what the author is told.
		refused, warned string
	}{
		"Right":                      {object: reporting(`{"ready": "${parent.spec.image.size()}"}`)},
		"NoInlineHook":               {object: &metacontroller.CompositeController{}},
		"Wrong":                      {object: wrong, refused: "spec.hooks.sync.inline.status.ready: Invalid value: \"parent.spec.image\": yields string, Thing wants integer (line 1, column 1)"},
		"WrongAfterAChange":          {object: wrong, old: reporting(`{"ready": 1}`), refused: "yields string"},
		"WrongAsBefore":              {object: labeled, old: wrong},
		"TheStatusOfAWrongOne":       {object: wrong, subresource: "status"},
		"AKindThatIsNotServed":       {object: reporting(`{"ready": "${children.widgets.size()}"}`, "widgets"), warned: "widgets of example.com/v1 is not served"},
		"ASchemaThatIsLate":          {object: wrong, late: 2, refused: "yields string, Thing wants integer"},
		"ASchemaThatIsNotPublished":  {object: wrong, late: 1000, warned: "things of example.com/v1 has no schema"},
		"WhileTheClusterDoesNotSay":  {object: wrong, down: true, warned: "inline hooks are not checked against all kinds"},
		"AWrongOneOfAKindNotServed":  {object: reporting(`{"ready": "${children.widgets.filter(w, 1)}"}`, "widgets"), refused: "status.ready", warned: "is not served"},
		"WhatIsWrongWithoutAnyKinds": {object: reporting(`{"ready": "${1 +}"}`), refused: "(line 1, column 4)"},
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
			err := cluster(t, tc.down, tc.late).Validate(warning.WithWarningRecorder(t.Context(), &told), a, nil)
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("got %v, want %q", err, tc.refused)
			}
			warned := func(text string) bool { return strings.Contains(text, tc.warned) }
			if tc.warned == "" && len(told.texts) > 0 || tc.warned != "" && !slices.ContainsFunc(told.texts, warned) {
				t.Errorf("warnings are %q, want %q", told.texts, tc.warned)
			}
		})
	}
}
