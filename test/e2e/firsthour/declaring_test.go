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

package firsthour

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

// withoutSelector returns the manifest of a CompositeController that generates no selectors.
func withoutSelector(manifest string) string {
	return strings.Replace(manifest, "  generateSelector: true\n", "", 1)
}

// slow are mistakes of which it takes a minute to learn.
var slow = []mistake{
	{
		name: "finalize-without-end", title: "A finalize hook that never ends",
		text: "The finalize hook never returns `\"finalized\": true`, and somebody deletes the parent.",
		play: func(s *session) {
			h := s.hook(fine())
			controller := s.composite(h.URL("/sync"), "", configMaps)
			s.start(strings.Replace(controller, "hooks: {", fmt.Sprintf("hooks: {finalize: {webhook: {url: %q}}, ", h.URL("/sync")), 1))
			s.exists(thingsResource, s.name, "metacontroller.io/compositecontroller-"+s.name)
			s.run("delete", "thing", s.name, "--wait=false")
			s.event(s.name, "FinalizeWaits", "finalized")
			s.condition("Progressing", "True", "finalized")
			s.get()
			s.describe("compositecontroller")
			s.events("thing/" + s.name)
			s.says(`has not returned "finalized": true for more than a minute`, "metadata.finalizers")
		},
	},
}

// declaring are mistakes in the definition of a controller, and about its end.
var declaring = []mistake{
	{
		name: "typo-in-resource", title: "A misspelled resource",
		text: "Resources are named by their plural in lower case, as `kubectl api-resources` prints them.",
		play: func(s *session) {
			controller := strings.Replace(s.composite(s.hook(fine()).URL("/sync"), "", configMaps), "resource: things", "resource: thing", 1)
			s.warned("controller.yaml", controller, "did you mean things?")
			s.condition("Ready", "False", "thing")
			s.get()
			s.describe("compositecontroller")
			s.says("spec.parentResource: the cluster does not serve thing in example.com/v1", "did you mean things", "ResourceNotFound")
		},
	},
	{
		name: "deleted-early", title: "A controller that is deleted while it has parents",
		text: "The controller is deleted first. Its children stay, and nobody looks after them any more.",
		play: func(s *session) {
			h := s.hook(hooktest.Body("application/json", `{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan"}}]}`))
			s.start(s.composite(h.URL("/sync"), "", configMaps))
			s.exists(configMapsResource, "orphan", s.name)
			s.awaitWarning("their children stay", "", "delete", "compositecontroller", s.name)
			s.run("delete", "compositecontroller", s.name)
			s.run("get", "configmap", "orphan", "-o", "jsonpath={.metadata.ownerReferences[0].name}")
			s.says("Warning: spec.parentResource: ", "things.example.com", "their children stay", "create")
		},
	},
	{
		name: "deleted-while-finalizing", title: "A controller that is deleted while it finalizes",
		text: "The parent is deleted, its finalize hook is not done, and then the controller is deleted.",
		play: func(s *session) {
			h := s.hook(fine())
			controller := s.composite(h.URL("/sync"), "", configMaps)
			s.start(strings.Replace(controller, "hooks: {", fmt.Sprintf("hooks: {finalize: {webhook: {url: %q}}, ", h.URL("/sync")), 1))
			s.exists(thingsResource, s.name, "metacontroller.io/compositecontroller-"+s.name)
			s.run("delete", "thing", s.name, "--wait=false")
			s.exists(thingsResource, s.name, "deletionTimestamp")
			s.awaitWarning("their children stay", "", "delete", "compositecontroller", s.name)
			s.run("delete", "compositecontroller", s.name)
			s.event(s.name, "FinalizeSkipped", s.name)
			s.events("thing/" + s.name)
			s.says("was not finalized", "was deleted", "delete them before their controller")
		},
	},
	{
		name: "decorator-labels", title: "Labels that nobody takes off",
		text: "The hook of a DecoratorController sets a label, and there is no finalize hook.",
		play: func(s *session) {
			h := s.hook(hooktest.JSON(map[string]any{"labels": map[string]string{"team": "shop"}}))
			s.apply("controller.yaml", fmt.Sprintf(`apiVersion: metacontroller.k8s.io/v1alpha1
kind: DecoratorController
metadata: {name: %[1]s}
spec:
  resources: [{apiVersion: example.com/v1, resource: things, labelSelector: {matchLabels: {app: %[1]s}}}]
  hooks: {sync: {webhook: {url: %[2]q}}}
`, s.name, h.URL("/sync")))
			s.conditionOf(schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "decoratorcontrollers"},
				"Ready", "True", "")
			s.apply("thing.yaml", s.parent(s.name, "{size: 1}"))
			s.event(s.name, "LabelsStay", "finalize")
			s.run("get", "thing", s.name, "--show-labels")
			s.events("decoratorcontroller/" + s.name)
			s.says("team", "spec.hooks.finalize")
		},
	},
}
