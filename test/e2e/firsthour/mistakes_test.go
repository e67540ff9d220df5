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
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
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
			s.says("Warning: spec.parentResource: ", "things.example.com", "their children stay", "delete the things.example.com first")
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

var (
	configMapsResource  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deploymentsResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	thingsResource      = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
)

// returning is a hook that returns what the function does, as JSON.
func returning(f func(*hook.CompositeRequest) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q hook.CompositeRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		hooktest.Body("application/json", f(&q)).ServeHTTP(w, r)
	})
}

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

// What differs from one time to the next.
var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	uid       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	event     = regexp.MustCompile(`^\S+(?: \(x\d+ over \S+\))?\s{2,}(Normal|Warning)\s+(\S+)\s+(\S+)\s+(.*)$`)
	combined  = regexp.MustCompile(`^\(combined from similar events\): `)
	// begun is the start of a line of kubectl describe that says something else.
	begun = regexp.MustCompile(`^\s*(Last Transition Time|Message|Observed Generation|Reason|Status|Type):\s*(.*)$`)
)

// normal returns a text without what differs each time. The addresses of hooks become numbered ones.
func normal(addresses []string, text string) string {
	for i, address := range addresses {
		text = strings.ReplaceAll(text, address, fmt.Sprintf("127.0.0.1:%d", 8080+i))
	}
	text = timestamp.ReplaceAllString(text, "2026-01-02T03:04:05Z")
	text = uid.ReplaceAllString(text, "00000000-0000-0000-0000-000000000000")
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

// table returns a table of kubectl get without the columns of counts and ages, of which no cell is empty.
func table(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	at, columns := strings.Index(lines[0], "SYNCED"), 3 // FAILING and AGE are next to it.
	if at < 0 {
		at, columns = strings.Index(lines[0], "AGE"), 1
	}
	if at < 0 || !strings.HasPrefix(lines[0], "NAME") {
		return text
	}
	var rows []string
	for _, line := range lines {
		before, after := line, ""
		if len(line) > at {
			before, after = line[:at], line[at:]
			for range columns {
				_, after, _ = strings.Cut(after, " ")
				after = strings.TrimSpace(after)
			}
		}
		rows = append(rows, strings.TrimRight(before+after, " "))
	}
	return strings.Join(rows, "\n")
}

// events returns the events of kubectl events, each once, without ages and counts, in an order of their own.
func events(text string) string {
	var list []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if match := event.FindStringSubmatch(line); match != nil {
			list = append(list, fmt.Sprintf("%s   %s   %s   %s", match[1], match[2], match[3], combined.ReplaceAllString(match[4], "")))
		} else if len(list) > 0 {
			list[len(list)-1] += "\n" + line
		}
	}
	slices.Sort(list)
	return strings.Join(append([]string{"TYPE      REASON      OBJECT      MESSAGE"}, slices.Compact(list)...), "\n")
}

// wrong reports whether a condition says that something is wrong, or lasts.
func wrong(condition map[string]string) bool {
	if condition["Type"] == "Progressing" {
		return condition["Status"] == "True" && condition["Reason"] != "FirstSync"
	}
	return condition["Status"] == "False"
}

// conditions returns the conditions of kubectl describe in which something is wrong.
func conditions(text string) string {
	_, text, _ = strings.Cut(text, "  Conditions:\n")
	var ready, shown []string
	now := map[string]string{}
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		match := begun.FindStringSubmatch(line)
		if match == nil {
			if !strings.HasPrefix(line, "      ") {
				break
			}
			now[last] += " " + strings.TrimSpace(line)
			continue
		}
		last = match[1]
		now[last] = match[2]
		if last != "Type" {
			continue
		}
		if wrong(now) {
			text := fmt.Sprintf("    Message:  %s\n    Reason:   %s\n    Status:   %s\n    Type:     %s",
				now["Message"], now["Reason"], now["Status"], now["Type"])
			if now["Type"] == "Ready" {
				ready = append(ready, text)
			} else {
				shown = append(shown, text)
			}
		}
		now = map[string]string{}
	}
	slices.Sort(shown)
	if shown = append(ready, shown...); len(shown) == 0 {
		return "  Conditions: nothing is wrong"
	}
	return "  Conditions:\n" + strings.Join(shown, "\n")
}

// fine is a hook that wants nothing.
func fine() http.Handler { return hooktest.JSON(map[string]any{"children": []any{}}) }

// reaching are mistakes by which a hook is not reached.
var reaching = []mistake{
	{
		name: "hook-not-running", title: "The hook does not run",
		text: "Nobody listens at the address of the hook.",
		play: func(s *session) {
			s.start(s.composite("http://"+s.nobody()+"/sync", "", configMaps))
			s.failed("refused")
			s.says("HookFailing", "connection refused", "start the hook")
		},
	},
	{
		name: "http-to-https", title: "http to an https port",
		text: "The hook speaks TLS, and the URL begins with http.",
		play: func(s *session) {
			h := s.hook(fine(), hooktest.WithTLS())
			s.start(s.composite("http://"+h.Host()+"/sync", "", configMaps))
			s.failed("https")
			s.says("HookFailing", "the port speaks TLS", "use https")
		},
	},
	{
		name: "https-to-http", title: "https to an http port",
		text: "The URL begins with https, and the hook does not speak TLS.",
		play: func(s *session) {
			h := s.hook(fine())
			s.start(s.composite("https://"+h.Host()+"/sync", "", configMaps))
			s.failed("TLS")
			s.says("HookFailing", "the hook does not speak TLS; use http, or give it a certificate")
		},
	},
	{
		name: "wrong-ca", title: "The wrong certificate authority",
		text: "`caBundle` has another authority than the one that signed the certificate of the hook.",
		play: func(s *session) {
			h, other := s.hook(fine(), hooktest.WithTLS()), hooktest.NewServer(s.t, hooktest.WithTLS())
			s.start(s.composite(h.URL("/sync"), authority(other.CABundle()), configMaps))
			s.failed("authority")
			s.says("HookFailing", "certificate signed by unknown authority; set caBundle to the certificate authority of the hook")
		},
	},
	{
		name: "wrong-name", title: "A certificate for another name",
		text: "The certificate of the hook is for `hooks.example.com`, and the URL has another host.",
		play: func(s *session) {
			h := s.hook(fine(), hooktest.WithCertificateFor("hooks.example.com"))
			s.start(s.composite(h.URL("/sync"), authority(h.CABundle()), configMaps))
			s.failed("certificate")
			s.says("HookFailing", "add the host name to the certificate of the hook, or use a name that is in it")
		},
	},
	{
		name: "garbage-ca", title: "A certificate authority that is none",
		text: "`caBundle.inline` holds no PEM.",
		play: func(s *session) {
			s.apply("controller.yaml", s.composite("https://hook.default/sync", `, caBundle: {inline: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"}`, configMaps))
			s.says("spec.hooks.sync.webhook.caBundle.inline", "PEM")
		},
	},
	{
		name: "service-from-outside", title: "A Service, and a server outside of the cluster",
		text: "The hook is given by its Service, whose name only Pods of the cluster can resolve.",
		play: func(s *session) {
			controller := strings.Replace(s.composite("", "", configMaps), `url: ""`, "service: {name: hook, namespace: default}, path: /sync", 1)
			s.awaitWarning("default/hook does not exist", controller, "apply", "-f", "-")
			s.start(controller)
			s.failed("outside")
			s.says("HookFailing", "hook.default", "outside of the cluster", "webhook.url")
		},
	},
	{
		name: "slow-hook", title: "A hook that is too slow",
		text: "The hook takes longer than its `timeout`, here three seconds.",
		play: func(s *session) {
			s.start(s.composite(s.hook(hooktest.Hang()).URL("/sync"), ", timeout: 3s", configMaps))
			s.failed("no response within 3s")
			s.says("HookFailing", "connected, but no response within 3s; make the hook faster, or raise its timeout")
		},
	},
}

// authority is a caBundle of a webhook in YAML.
func authority(pem string) string {
	return `, caBundle: {inline: "` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`
}

// rest is the heading of messages that no test of this package causes.
const rest = "\n## Other messages\n"

// quoted is the message of a row: the first cell, up to its backquote.
var quoted = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestThePageQuotesEachMessage holds the rows of docs/mistakes.md to what was printed: the rows above the other messages have the order of the
// mistakes, and each quotes what was printed after its mistake. An ellipsis stands for words that are left out.
func TestThePageQuotesEachMessage(t *testing.T) {
	printed, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "mistakes.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, _, found := strings.Cut(string(page), rest)
	if !found {
		t.Fatalf("docs/mistakes.md has no heading %q", rest)
	}
	sections := strings.Split(strings.TrimPrefix(string(printed), "## "), "\n\n## ")
	rows := quoted.FindAllStringSubmatch(table, -1)
	if len(rows) != len(sections) {
		t.Fatalf("docs/mistakes.md has %d rows for %d mistakes", len(rows), len(sections))
	}
	for i, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		after := section
		for part := range strings.SplitSeq(rows[i][1], " … ") {
			_, after, found = strings.Cut(after, part)
			if !found {
				t.Errorf("%s: row %d of docs/mistakes.md quotes %q, which is not printed", title, i+1, part)
			}
		}
	}
}
