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
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

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
