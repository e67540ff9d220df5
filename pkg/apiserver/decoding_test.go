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
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// warned collects warnings.
type warned []string

func (w *warned) AddWarning(_, text string) { *w = append(*w, text) }

func TestReadersAreWarnedOfAnOldStatus(t *testing.T) {
	reading := request.RequestInfo{IsResourceRequest: true, APIGroup: "metacontroller.k8s.io", Resource: "compositecontrollers", Verb: "get"}
	edit := func(change func(*request.RequestInfo)) request.RequestInfo {
		info := reading
		change(&info)
		return info
	}
	for name, test := range map[string]struct {
		info     request.RequestInfo
		anywhere bool
		want     []string
	}{
		"a controller":         {reading, false, []string{"the status of controllers may be from before: it was switched off"}},
		"a list":               {edit(func(i *request.RequestInfo) { i.Verb, i.Resource = "list", "decoratorcontrollers" }), false, []string{"the status of controllers may be from before: it was switched off"}},
		"one runs elsewhere":   {reading, true, nil},
		"a watch":              {edit(func(i *request.RequestInfo) { i.Verb = "watch" }), false, nil},
		"a write":              {edit(func(i *request.RequestInfo) { i.Verb = "patch" }), false, nil},
		"a subresource":        {edit(func(i *request.RequestInfo) { i.Subresource = "parents" }), false, nil},
		"revisions":            {edit(func(i *request.RequestInfo) { i.Resource = "controllerrevisions" }), false, nil},
		"no object":            {edit(func(i *request.RequestInfo) { i.IsResourceRequest = false }), false, nil},
		"another API's object": {edit(func(i *request.RequestInfo) { i.APIGroup = "example.com" }), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			link, served := &inspection.Link{}, false
			link.Explain(func() (string, bool) { return "it was switched off", test.anywhere })
			handler := warnOfOldStatus(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), link)
			var got warned
			ctx := warning.WithWarningRecorder(request.WithRequestInfo(t.Context(), &test.info), &got)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			if !served || !slices.Equal(got, test.want) {
				t.Errorf("served: %t, warnings: %q", served, got)
			}
		})
	}
}

func TestDurationsAreNamedInControllersAlone(t *testing.T) {
	for name, test := range map[string]struct {
		manifest, want string
	}{
		"of a controller": {
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"a"},` +
				`"spec":{"hooks":{"sync":{"webhook":{"url":"http://a","timeout":"1d"}}}}}`,
			"spec.hooks.sync.webhook.timeout: Invalid value",
		},
		"a revision, which has another mistake": {
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"a","namespace":"b"},` +
				`"parentPatch":{"spec":{"webhook":{"timeout":30}}},"children":"none"}`,
			"children",
		},
	} {
		t.Run(name, func(t *testing.T) {
			decoder := durationNaming{Codecs.UniversalDecoder(v1alpha1.SchemeGroupVersion)}
			_, err := runtime.Decode(decoder, []byte(test.manifest))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "parentPatch") {
				t.Errorf("got %v, want an error about %s", err, test.want)
			}
		})
	}
}
