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

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

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
