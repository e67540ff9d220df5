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
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

var (
	configMapsResource  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deploymentsResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	thingsResource      = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
)

// returning is a hook that returns what the function does, as JSON.
func returning(f func(*hook.CompositeRequest) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
			hooktest.Body("application/json", f(q)).ServeHTTP(w, r)
			return nil, nil
		}).ServeHTTP(discarding{}, r)
	})
}

// discarding takes what was written otherwise.
type discarding struct{}

func (discarding) Header() http.Header         { return http.Header{} }
func (discarding) Write(b []byte) (int, error) { return len(b), nil }
func (discarding) WriteHeader(int)             {}

// size is spec.size of a parent.
func size(q *hook.CompositeRequest) string {
	return fmt.Sprint(nested(q.Parent.Object, "spec", "size"))
}

// deployment is a child, with a label of its Pods and a further field.
func deployment(name, label, field string) string {
	return fmt.Sprintf(`{"children": [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": %[1]q}, "spec": {%[3]s
  "selector": {"matchLabels": {"app": %[2]q}},
  "template": {"metadata": {"labels": {"app": %[2]q}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}}]}`, name, label, field)
}

// owning are mistakes about children, once the API server has them.
var owning = []mistake{
	{
		name: "missing-right", title: "A right that the server lacks",
		text: "Children are PodDisruptionBudgets, which the server's ClusterRole does not allow.",
		play: func(s *session) {
			s.apply("controller.yaml", s.composite(s.hook(fine()).URL("/sync"), "", "{apiVersion: policy/v1, resource: poddisruptionbudgets}"))
			s.condition("Ready", "False", "forbidden")
			s.get()
			s.describe("compositecontroller")
			s.says("poddisruptionbudgets.policy is forbidden", "cannot list resource", "ClusterRole")
		},
	},
	{
		name: "two-on-one-child", title: "Two controllers of one child",
		text: "Two controllers, each with parents of its own, return a child of the same name.",
		play: func(s *session) {
			const response = `{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}}]}`
			s.show("json", response)
			controller := s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", configMaps)
			s.start(controller)
			s.exists(configMapsResource, "shared", s.name)
			s.apply("second-controller.yaml", strings.ReplaceAll(controller, s.name, "second-on-child"))
			s.apply("second.yaml", strings.ReplaceAll(s.parent("second", "{size: 1}"), s.name, "second-on-child"))
			s.event("second", "SyncError", "exists")
			s.get()
			s.events("thing/second")
			s.says("ConfigMap default/shared exists and is not controlled by Thing default/second, but by Thing default/"+s.name, "rename")
		},
	},
	{
		name: "on-delete", title: "A child that is not updated",
		text: "The controller does not set `updateStrategy`, so its method is `OnDelete`.",
		play: func(s *session) {
			h := s.hook(returning(func(q *hook.CompositeRequest) string {
				return fmt.Sprintf(`{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"size": %q}}]}`, size(q))
			}))
			s.start(s.composite(h.URL("/sync"), "", configMaps))
			// Its own, and not one of the controller of another mistake, whose hook had the port before.
			s.exists(configMapsResource, "kept", `"name":"`+s.name+`"`)
			s.exists(configMapsResource, "kept", `"size":"1"`)
			s.apply("thing.yaml", s.parent(s.name, "{size: 2}"))
			s.event(s.name, "ChildNotUpdated", "data.size")
			s.run("get", "configmap", "kept", "-o", "jsonpath={.data}")
			s.events("thing/" + s.name)
			s.says("ConfigMap default/kept (data.size)", "updateStrategy.method")
		},
	},
	{
		name: "child-typo", title: "A misspelled field of a child",
		text: "The hook sets `spec.replica`, and Deployments have `spec.replicas`.",
		play: func(s *session) {
			response := deployment("misspelled", "web", ` "replica": 3,`)
			s.show("json", response)
			s.start(s.composite(s.hook(hooktest.Body("application/json", response)).URL("/sync"), "", "{apiVersion: apps/v1, resource: deployments}"))
			s.event(s.name, "ChildWarning", "spec.replica")
			s.run("get", "deployment", "misspelled", "-o", "jsonpath={.spec.replicas}")
			s.events("thing/" + s.name)
			s.says(`unknown field "spec.replica"`, "correct it in the response of the hook")
		},
	},
	{
		name: "immutable-field", title: "A field that cannot be changed",
		text: "The hook makes the selector of a Deployment of `spec.size`, which changes. The method is `InPlace`.",
		play: func(s *session) {
			h := s.hook(returning(func(q *hook.CompositeRequest) string { return deployment("immutable", "size-"+size(q), "") }))
			s.start(s.composite(h.URL("/sync"), "", "{apiVersion: apps/v1, resource: deployments, updateStrategy: {method: InPlace}}"))
			s.exists(deploymentsResource, "immutable", "size-1")
			s.apply("thing.yaml", s.parent(s.name, "{size: 2}"))
			s.event(s.name, "SyncError", "immutable")
			s.condition("Ready", "False", "immutable")
			s.get()
			s.describe("compositecontroller")
			s.events("thing/" + s.name)
			s.says("Deployment default/immutable: spec.selector: field is immutable", "updateStrategy.method", "Recreate")
			if strings.Contains(s.text.String(), "v1.LabelSelector") {
				s.t.Errorf("kubectl printed a struct:\n%s", s.text.String())
			}
		},
	},
	{
		name: "no-status", title: "A parent without a status",
		text: "The kind of the parents has no status subresource, and the hook returns a status.",
		play: func(s *session) {
			h := s.hook(hooktest.JSON(map[string]any{"status": map[string]any{"phase": "done"}, "children": []any{}}))
			controller := strings.Replace(s.composite(h.URL("/sync"), "", configMaps), "resource: things", "resource: rings", 1)
			s.warned("controller.yaml", controller, "rings have no status subresource")
			s.ready()
			s.apply("ring.yaml", strings.Replace(s.parent(s.name, "{size: 1}"), "kind: Thing", "kind: Ring", 1))
			s.event(s.name, "StatusIgnored", "subresource")
			s.run("get", "ring", s.name, "-o", "jsonpath={.status}")
			s.events("compositecontroller/" + s.name)
			s.says("rings.example.com", "status subresource", "subresources")
		},
	},
	{
		name: "status-field", title: "A field of the status that the schema lacks",
		text: "The hook returns two fields of the status. The parents' CustomResourceDefinition declares one of them.",
		play: func(s *session) {
			h := s.hook(hooktest.JSON(map[string]any{"status": map[string]any{"ready": 2, "phase": "done"}, "children": []any{}}))
			s.apply("controller.yaml", strings.Replace(s.composite(h.URL("/sync"), "", configMaps), "resource: things", "resource: pumps", 1))
			s.ready()
			s.apply("pump.yaml", strings.Replace(s.parent(s.name, "{size: 1}"), "kind: Thing", "kind: Pump", 1))
			s.event(s.name, "StatusIncomplete", "status.phase")
			s.run("get", "pump", s.name, "-o", "jsonpath={.status}")
			s.says(`{"ready":2}`)
			s.events("compositecontroller/" + s.name)
			s.says("left status.phase out", "CustomResourceDefinition of pumps.example.com")
		},
	},
}

// settling are mistakes by which nothing comes to rest.
var settling = []mistake{
	{
		name: "time-in-child", title: "A time in a child",
		text: "The hook puts the present time into a ConfigMap, so that each response is another one.",
		play: func(s *session) {
			h := s.hook(returning(func(*hook.CompositeRequest) string {
				return fmt.Sprintf(`{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stamped"}, "data": {"time": %q}}]}`,
					time.Now().Format(time.RFC3339Nano))
			}))
			s.start(s.composite(h.URL("/sync"), "", inPlace))
			s.event(s.name, "ResponseDiffers", "data.time")
			s.condition("HooksHealthy", "False", "data.time")
			s.get()
			s.describe("compositecontroller")
			s.events("thing/" + s.name)
			s.says("ConfigMap default/stamped", "data.time", "a time", "slowed down", "Leave times out")
			if n := len(h.Requests("/sync")); n > 50 {
				s.t.Errorf("the hook was called %d times", n)
			}
		},
	},
	{
		name: "time-in-status", title: "A time in the status",
		text: "The hook puts the present time into the status, so that each response is another one.",
		play: func(s *session) {
			h := s.hook(returning(func(*hook.CompositeRequest) string {
				return fmt.Sprintf(`{"children": [], "status": {"phase": "done", "lastSync": %q}}`, time.Now().Format(time.RFC3339Nano))
			}))
			s.start(s.composite(h.URL("/sync"), "", configMaps))
			s.event(s.name, "ResponseDiffers", "status.lastSync")
			s.condition("HooksHealthy", "False", "status.lastSync")
			s.get()
			s.describe("compositecontroller")
			s.events("thing/" + s.name)
			s.says("status.lastSync", "a time", "slowed down", "Leave times out")
		},
	},
	{
		name: "two-on-one-status", title: "Two controllers of one status",
		text: "Two CompositeControllers select the same parents, and their hooks return different statuses.",
		play: func(s *session) {
			h := s.hook(returning(func(*hook.CompositeRequest) string { return `{"children": [], "status": {"phase": "first"}}` }))
			h.Handle("/second", returning(func(*hook.CompositeRequest) string { return `{"children": [], "status": {"phase": "second"}}` }))
			s.start(s.composite(h.URL("/sync"), "", configMaps))
			s.exists(thingsResource, s.name, `"phase":"first"`)
			second := strings.Replace(s.composite(h.URL("/second"), "", configMaps), "name: "+s.name, "name: second-on-status", 1)
			s.warned("second.yaml", second, "handles things.example.com too")
			s.event(s.name, "ParentFlapping", "second-on-status")
			s.event(s.name, "ParentFlapping", "CompositeController "+s.name)
			s.condition("Progressing", "True", "status.phase")
			s.get()
			s.describe("compositecontroller")
			s.events("thing/" + s.name)
			s.says("handles things.example.com too", "status.phase", "keeps changing back", "second-on-status", "labelSelector")
		},
	},
}
