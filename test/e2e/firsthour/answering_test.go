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
	"net/http"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

const traceback = `Traceback (most recent call last):
  File "/hooks/sync.py", line 12, in do_POST
    size = observed["parent"]["spec"]["sise"]
KeyError: 'sise'`

// answering are mistakes in what a hook returns.
var answering = []mistake{
	{
		name: "bad-json", title: "A response that is not JSON",
		text: "The hook prints a Python value instead of encoding it.",
		play: func(s *session) {
			const response = `{'children': []}`
			s.show("", response)
			s.start(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps))
			s.failed("not valid JSON")
			s.says("HookFailing", "the response is not valid JSON", "correct the response of the hook")
		},
	},
	{
		name: "traceback", title: "An exception in the hook",
		text: "The hook returns status 500 and a traceback.",
		play: func(s *session) {
			s.start(s.composite(s.hook(hooktest.Status(http.StatusInternalServerError, traceback)).URL("/sync"), "", configMaps))
			s.failed("KeyError: 'sise'")
			s.says("HookFailing", "500", "KeyError: 'sise'", "see the log of the hook")
		},
	},
	{
		name: "children-as-map", title: "Children as a map",
		text: "The hook returns its children by name, and not as a list.",
		play: func(s *session) {
			const response = `{"children": {"settings": {"apiVersion": "v1", "kind": "ConfigMap"}}}`
			s.show("json", response)
			s.start(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps))
			s.failed("children: must be a list")
			s.says("children: must be a list, is an object", "correct the response of the hook")
		},
	},
	{
		name: "no-api-version", title: "A child without apiVersion",
		text: "Each child says what it is by `apiVersion`, `kind` and `metadata.name`.",
		play: func(s *session) {
			const response = `{"children": [{"kind": "ConfigMap", "metadata": {"name": "settings"}}]}`
			s.show("json", response)
			s.start(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps))
			s.failed("children[0]")
			s.says("children[0]", "has no apiVersion", "correct the response of the hook")
		},
	},
	{
		name: "undeclared-kind", title: "A child of a kind that is not declared",
		text: "The hook returns a Secret, and `spec.childResources` has ConfigMaps only.",
		play: func(s *session) {
			const response = `{"children": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "settings"}}]}`
			s.show("json", response)
			s.start(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps))
			s.failed("children[0]")
			s.says("children[0]: Secret settings is of kind Secret in v1, which is not declared; add it to spec.childResources")
		},
	},
	{
		name: "other-namespace", title: "A child in another namespace",
		text: "The parent is in the namespace `default`.",
		play: func(s *session) {
			const response = `{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}}]}`
			s.show("json", response)
			s.start(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps))
			s.failed("children[0]")
			s.says("children[0]: ConfigMap shop/settings is not in its parent's namespace default; a namespaced parent can only have children in its namespace")
		},
	},
	{
		name: "label-mismatch", title: "Labels that the parent does not select",
		text: "`generateSelector` is not set, so children must have the labels of the parent's `spec.selector`.",
		play: func(s *session) {
			const response = `{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "labels": {"app": "other"}}}]}`
			s.show("json", response)
			s.apply("controller.yaml", withoutSelector(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps)))
			s.ready()
			s.apply("thing.yaml", s.parent(s.name, "{selector: {matchLabels: {app: web}}}"))
			s.failed("children[0]")
			s.says("labels on desired child ConfigMap default/settings don't match parent selector app=web", "generateSelector")
		},
	},
}

// failed waits until the controller and the parent say that a response cannot be used, and prints both.
func (s *session) failed(text string) {
	s.t.Helper()
	s.condition("HooksHealthy", "False", text)
	s.condition("Ready", "False", text)
	s.event(s.name, "SyncError", text)
	s.get()
	s.describe("compositecontroller")
	s.events("thing/" + s.name)
}
