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

package kubectl

import (
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// wrongManifestsAreRefused shows what a person reads who made a mistake: the path of the field and what is allowed.
// Nothing is stored.
func wrongManifestsAreRefused(t *testing.T, c *cluster.Cluster) {
	for name, test := range map[string]struct {
		reason string
		spec   string
		want   []string
	}{
		"UnknownField": {
			"A misspelt field would be ignored in silence otherwise.",
			`{"parentResource":{"apiVersion":"v1","resource":"pods"},"generateSelektor":true}`,
			[]string{`unknown field "spec.generateSelektor"`},
		},
		"WrongEnum": {
			"The values allowed are part of the message.",
			`{"parentResource":{"apiVersion":"v1","resource":"pods"},
			  "childResources":[{"apiVersion":"v1","resource":"pods","updateStrategy":{"method":"Replace"}}]}`,
			[]string{"spec.childResources[0].updateStrategy.method", `"Replace"`, `"InPlace"`, `"RollingRecreate"`},
		},
		"MissingRequired": {
			"A parent without a resource names nothing.",
			`{"parentResource":{"apiVersion":"v1"}}`,
			[]string{"spec.parentResource.resource", "Required"},
		},
		"TwoMistakes": {
			"All mistakes are told at once.",
			`{"parentResource":{},"childResources":[{"apiVersion":"v1"}]}`,
			[]string{"spec.parentResource.apiVersion", "spec.parentResource.resource", "spec.childResources[0].resource"},
		},
		"Subresource": {
			"A subresource has no objects of its own that could be watched.",
			`{"parentResource":{"apiVersion":"v1","resource":"pods/exec"}}`,
			[]string{"spec.parentResource.resource", `"pods/exec"`, "without a subresource"},
		},
		"ParentAsChild": {
			"A parent that is its own child has grandchildren without end.",
			`{"parentResource":{"apiVersion":"v1","resource":"configmaps"},"childResources":[{"apiVersion":"v1","resource":"configmaps"}]}`,
			[]string{"spec.childResources[0].resource", "spec.parentResource.labelSelector"},
		},
		"ServiceThatIsAnotherHost": {
			"The parts of a service are joined to a URL; none of them may hold another host.",
			`{"parentResource":{"apiVersion":"v1","resource":"pods"},
			  "hooks":{"sync":{"webhook":{"service":{"name":"169.254.169.254/latest#","namespace":"a"},"path":"/"}}}}`,
			[]string{"spec.hooks.sync.webhook.service.name", "must be the name of a Service"},
		},
		"WrongType": {
			"A number where a text belongs is not turned into one.",
			`{"parentResource":{"apiVersion":"v1","resource":5}}`,
			[]string{"resource"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"wrong"},"spec":` + test.spec + `}`
			for _, how := range [][]string{{"create"}, {"apply", "--server-side"}} {
				output, err := c.TryKubectl(t.Context(), manifest, append(how, "-f", "-")...)
				if err == nil {
					t.Errorf("%s\nkubectl %s was accepted:\n%s", test.reason, strings.Join(how, " "), output)
				}
				if how[0] == "create" {
					expect(t, output, test.want...)
				}
			}
			if output := c.Kubectl(t, "get", "cc", "-o", "name"); strings.Contains(output, "wrong") {
				t.Errorf("the refused object is stored:\n%s", output)
			}
		})
	}
}
