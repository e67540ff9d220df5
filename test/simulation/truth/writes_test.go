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

package truth_test

import (
	"context"
	"regexp"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// patchRows are about merge, JSON and strategic merge patches.
var patchRows = []row{
	{"a merge patch sets, removes and replaces lists", func(c *client) {
		c.post(201, things, thing("a", `{"free":{"a":{"b":1,"c":2}},"order":[1,2]}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"free":{"a":{"b":null,"d":{"e":null,"f":1}}},"order":[3]}}`)
	}},
	{"a merge patch that changes nothing", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":2}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`)
		c.patch(200, mergeType, things+"/a", `{}`)
		c.post(201, configMaps, configMap("a", `{"k":"v"}`))
		c.patch(200, mergeType, configMaps+"/a", `{"data":{"k":"v"}}`)
	}},
	{"a merge patch under another manager that changes nothing", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":2}`))
		c.patch(200, mergeType, things+"/a?fieldManager=other", `{"spec":{"replicas":2}}`)
	}},
	{"a merge patch that removes a default", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":2}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":null}}`)
	}},
	{"a merge patch with a resourceVersion", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		old := r.metadata("resourceVersion")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"resourceVersion":"`+old+`","labels":{"l":"1"}}}`)
		c.patch(409, mergeType, things+"/a", `{"metadata":{"resourceVersion":"`+old+`","labels":{"l":"2"}}}`)
		c.post(201, configMaps, configMap("a", `{}`))
		c.patch(409, mergeType, configMaps+"/a", `{"metadata":{"resourceVersion":"1","labels":{"l":"2"}}}`)
		c.patch(200, mergeType, configMaps+"/a", `{"metadata":{"resourceVersion":"","labels":{"l":"2"}}}`)
	}},
	{"a merge patch with a UID", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"metadata":{"uid":"`+r.metadata("uid")+`","labels":{"l":"1"}}}`)
		c.patch(422, mergeType, things+"/a", `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000","labels":{"l":"2"}}}`)
		c.post(201, configMaps, configMap("a", `{}`))
		c.patch(422, mergeType, configMaps+"/a", `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000","labels":{"l":"2"}}}`)
	}},
	{"a patch cannot rename", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(400, mergeType, things+"/a", `{"metadata":{"name":"b"}}`)
		c.patch(400, mergeType, things+"/a", `{"metadata":{"namespace":"b"}}`)
	}},
	{"a patch that makes the object invalid", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(422, mergeType, things+"/a", `{"spec":{"replicas":-1}}`)
		c.patch(422, mergeType, things+"/a", `{"spec":{"replicas":"many"}}`)
		c.patch(422, mergeType, things+"/a", `{"metadata":{"labels":{"a b":"c"}}}`)
	}},
	{"a patch of another kind", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(422, mergeType, things+"/a", `{"kind":"Other"}`)
	}},
	{"a patch of what does not exist", func(c *client) {
		c.patch(404, mergeType, things+"/a", `{}`)
		c.patch(404, jsonPatchType, configMaps+"/a", `[]`)
		c.patch(404, strategicType, configMaps+"/a", `{}`)
	}},
	{"a patch as a dry run", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a?dryRun=All", `{"spec":{"replicas":3}}`)
		c.get(200, things+"/a")
	}},
	{"broken patches", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.want(400, c.send("PATCH", things+"/a", mergeType, `[]`))
		c.want(415, c.send("PATCH", things+"/a", "application/json", `{}`))
		c.want(415, c.send("PATCH", things+"/a", strategicType, `{}`))
		c.post(201, configMaps, configMap("a", `{}`))
		c.want(415, c.send("PATCH", configMaps+"/a", "application/json", `{}`))
	}},
	{"a JSON patch", func(c *client) {
		c.post(201, things, thing("a", `{"order":[1,2,3],"free":{"a":1}}`))
		c.patch(200, jsonPatchType, things+"/a", `[
			{"op":"test","path":"/spec/replicas","value":1},
			{"op":"replace","path":"/spec/replicas","value":3},
			{"op":"add","path":"/spec/order/1","value":9},
			{"op":"remove","path":"/spec/order/0"},
			{"op":"add","path":"/metadata/finalizers","value":["truth.example.com/f"]},
			{"op":"move","from":"/spec/free/a","path":"/spec/free/b"}]`)
		c.patch(200, jsonPatchType, things+"/a", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	}},
	{"a JSON patch whose test fails", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(422, jsonPatchType, things+"/a", `[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":3}]`)
		c.patch(422, jsonPatchType, things+"/a", `[{"op":"remove","path":"/spec/nothing"}]`)
		c.patch(400, jsonPatchType, things+"/a", `{"op":"remove"}`)
	}},
	{"a JSON patch that tests metadata", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.patch(200, jsonPatchType, things+"/a", `[{"op":"test","path":"/metadata/uid","value":"`+r.metadata("uid")+`"},
			{"op":"test","path":"/metadata/resourceVersion","value":"`+r.metadata("resourceVersion")+`"},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)
		c.patch(422, jsonPatchType, things+"/a", `[{"op":"test","path":"/metadata/uid","value":"other"},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)
	}},
	{"a patch of the status changes nothing else", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a/status", `{"metadata":{"labels":{"l":"1"}},"spec":{"replicas":7},"status":{"observed":1}}`)
		c.patch(200, jsonPatchType, things+"/a/status", `[{"op":"replace","path":"/status/observed","value":2}]`)
		c.patch(200, mergeType, things+"/a/status", `{"status":{"observed":2}}`)
	}},
	{"unknown fields in patches", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"odd":1}}`)
		c.patch(422, mergeType, things+"/a?fieldValidation=Strict", `{"spec":{"odd":1}}`)
	}},
	{"managedFields are shared by managers, versions and endpoints", func(c *client) {
		c.post(201, things+"?fieldManager=one", thing("a", `{"replicas":2,"items":[{"name":"x","value":"1"}],"tags":["s"]}`))
		c.patch(200, mergeType, things+"/a?fieldManager=two", `{"spec":{"replicas":3,"tags":["s","t"]},"metadata":{"labels":{"l":"1"}}}`)
		c.patch(200, mergeType, things+"/a/status?fieldManager=two", `{"status":{"phase":"Ready"}}`)
		c.patch(200, mergeType, oldThings+"/a?fieldManager=two", `{"spec":{"replicas":4}}`)
		c.patch(200, mergeType, things+"/a?fieldManager=three", `{"spec":{"items":null}}`)
	}},
	{"managedFields can be taken away", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"metadata":{"managedFields":[{}]}}`)
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`)
	}},
	{"the eleventh manager that updates", func(c *client) {
		c.post(201, configMaps+"?fieldManager=m0", configMap("a", `{"k0":"v"}`))
		for _, m := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
			c.patch(200, mergeType, configMaps+"/a?fieldManager=m"+m, `{"data":{"k`+m+`":"v"}}`)
		}
	}},
}

// applyRows are about server-side apply.
var applyRows = []row{
	{"apply creates", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"replicas":2}`))
		c.apply(200, "one", things+"/a", thing("a", `{"replicas":2}`))
		c.apply(201, "one", configMaps+"/a", configMap("a", `{"k":"v"}`))
		c.apply(200, "one", configMaps+"/a", configMap("a", `{"k":"v"}`))
	}},
	{"apply needs a manager", func(c *client) { c.want(422, c.send("PATCH", things+"/a", applyType, thing("a", `{}`))) }},
	{"force is for apply alone", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(422, mergeType, things+"/a?force=true", `{}`)
	}},
	{"apply removes what it does not want any more", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"replicas":2,"name":"abc","items":[{"name":"x","value":"1"},{"name":"y"}],"tags":["s","t"]}`))
		c.apply(200, "one", things+"/a", thing("a", `{"name":"abc","items":[{"name":"y"}],"tags":["t"]}`))
		c.apply(200, "one", things+"/a", thing("a", `{}`))
	}},
	{"apply conflicts with other managers", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":2,"name":"abc"}`))
		c.apply(409, "one", things+"/a", thing("a", `{"replicas":3}`))
		c.apply(409, "one", things+"/a", thing("a", `{"replicas":3,"name":"d"}`))
		c.apply(200, "one", things+"/a", thing("a", `{"replicas":2}`))
		c.apply(200, "two", things+"/a?force=true", thing("a", `{"replicas":5}`))
		c.apply(409, "one", things+"/a", thing("a", `{"replicas":3}`))
		c.apply(200, "three", things+"/a", thing("a", `{"replicas":5}`))
		c.apply(409, "three", things+"/a", thing("a", `{"replicas":6}`))
		c.apply(200, "three", things+"/a", thing("a", `{}`))
	}},
	{"apply shares a field until both give it up", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"name":"abc"}`))
		c.apply(200, "two", things+"/a", thing("a", `{"name":"abc"}`))
		c.apply(200, "one", things+"/a", thing("a", `{}`))
		c.apply(200, "two", things+"/a", thing("a", `{}`))
	}},
	{"apply keeps what others added to lists and maps", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"items":[{"name":"x"}],"tags":["s"],"limits":{"a":"1"},"order":[1,2]}`))
		c.patch(200, jsonPatchType, things+"/a", `[{"op":"add","path":"/spec/items/-","value":{"name":"y"}},{"op":"add","path":"/spec/tags/-","value":"t"},{"op":"add","path":"/spec/limits/b","value":"2"}]`)
		c.apply(200, "one", things+"/a", thing("a", `{"items":[{"name":"x","value":"v"}],"tags":["s"],"limits":{"a":"1"},"order":[1,2]}`))
		c.apply(200, "one", things+"/a", thing("a", `{}`))
	}},
	{"apply owns atomic lists as a whole", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"order":[1,2],"plain":[{"a":"1"}]}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"order":[1,2,3]}}`)
		c.apply(409, "one", things+"/a", thing("a", `{"order":[1,2],"plain":[{"a":"1"}]}`))
		c.apply(200, "one", things+"/a?force=true", thing("a", `{"order":[1,2],"plain":[{"a":"1"}]}`))
	}},
	{"apply removes what it leaves out of atomic maps and lists", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"whole":{"a":"1","b":"2"},"plain":[{"a":"1"},{"a":"2"}],"order":[1,2]}`))
		c.apply(200, "one", things+"/a", thing("a", `{"whole":{"a":"1"},"plain":[{"a":"2"}],"order":[2,1]}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"whole":{"c":"3"}}}`)
		c.apply(409, "one", things+"/a", thing("a", `{"whole":{"a":"1"}}`))
		c.apply(200, "one", things+"/a?force=true", thing("a", `{"whole":{"a":"1"}}`))
	}},
	{"apply with a UID", func(c *client) {
		body := func(uid string) string {
			return `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"` + uid + `"},"spec":{"replicas":2}}`
		}
		c.apply(409, "one", things+"/a", body("00000000-0000-0000-0000-000000000000"))
		r := c.apply(201, "one", things+"/a", thing("a", `{"replicas":1}`))
		c.apply(200, "one", things+"/a", body(r.metadata("uid")))
		c.apply(422, "one", things+"/a", body("00000000-0000-0000-0000-000000000000"))
	}},
	{"apply with a resourceVersion", func(c *client) {
		r := c.apply(201, "one", things+"/a", thing("a", `{"replicas":1}`))
		body := func(revision, replicas string) string {
			return `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","resourceVersion":"` + revision + `"},"spec":{"replicas":` + replicas + `}}`
		}
		c.apply(200, "one", things+"/a", body(r.metadata("resourceVersion"), "2"))
		c.apply(409, "one", things+"/a", body(r.metadata("resourceVersion"), "3"))
	}},
	{"apply of the status", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		status := func(s string) string {
			return `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"l":"1"}},"spec":{"replicas":7},"status":` + s + `}`
		}
		c.apply(200, "one", things+"/a/status", status(`{"phase":"Ready","conditions":[{"type":"A","status":"True"}]}`))
		c.apply(200, "one", things+"/a/status", status(`{"phase":"Ready","conditions":[{"type":"A","status":"True"}]}`))
		c.apply(200, "two", things+"/a/status", status(`{"conditions":[{"type":"B","status":"True"}]}`))
		c.apply(200, "one", things+"/a/status", status(`{"conditions":[{"type":"A","status":"True"}]}`))
		c.apply(404, "one", things+"/b/status", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"b"},"status":{}}`)
	}},
	{"apply in another version", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"replicas":3,"free":{"a":1}}`))
		c.apply(200, "one", oldThings+"/a", `{"apiVersion":"truth.example.com/v1beta1","kind":"Thing","metadata":{"name":"a"},"spec":{"replicas":4}}`)
		c.apply(400, "one", things+"/a", `{"apiVersion":"truth.example.com/v1beta1","kind":"Thing","metadata":{"name":"a"},"spec":{"replicas":4}}`)
	}},
	{"apply as a dry run", func(c *client) {
		c.apply(201, "one", things+"/a?dryRun=All", thing("a", `{"replicas":3}`))
		c.get(404, things+"/a")
		c.apply(201, "one", things+"/a", thing("a", `{"replicas":3}`))
		c.apply(200, "one", things+"/a?dryRun=All", thing("a", `{"replicas":4}`))
		c.get(200, things+"/a")
	}},
	{"apply of an invalid object", func(c *client) {
		c.apply(422, "one", things+"/a", thing("a", `{"replicas":-1}`))
		c.apply(500, "one", things+"/a", thing("a", `{"odd":1}`))
		c.apply(500, "one", things+"/a", thing("a", `{"tags":["s","s"]}`))
		c.apply(400, "one", things+"/a", thing("b", `{}`))
		c.apply(500, "one", things+"/a", thing("a", `{"items":[{"value":"without key"}]}`))
	}},
	{"apply with managedFields", func(c *client) {
		c.apply(400, "one", things+"/a", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","managedFields":[{"manager":"x"}]},"spec":{}}`)
	}},
	{"apply in a namespace that does not exist", func(c *client) {
		c.apply(404, "one", "/apis/truth.example.com/v1/namespaces/nowhere/things/a", thing("a", `{}`))
	}},
	{"update after apply takes fields", func(c *client) {
		c.apply(201, "one", things+"/a", thing("a", `{"replicas":2,"name":"abc"}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":3}}`)
		c.patch(200, mergeType, things+"/a", `{"spec":{"name":null}}`)
		c.apply(409, "one", things+"/a", thing("a", `{"replicas":2,"name":"abc"}`))
	}},
	{"apply of an object that was created without managedFields", func(c *client) {
		c.post(201, things, thing("a", `{"name":"abc"}`))
		c.patch(200, mergeType, things+"/a", `{"metadata":{"managedFields":[{}]}}`)
		c.apply(409, "one", things+"/a", thing("a", `{"name":"d"}`))
		c.apply(200, "one", things+"/a", thing("a", `{"name":"abc"}`))
	}},
	{"apply of finalizers and owners", func(c *client) {
		c.apply(201, "one", things+"/a", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","finalizers":["truth.example.com/f"],
			"ownerReferences":[{"apiVersion":"nobody.example.com/v1","kind":"Nobody","name":"x","uid":"u"}]}}`)
		c.apply(200, "two", things+"/a", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","finalizers":["truth.example.com/g"]}}`)
		c.apply(200, "one", things+"/a", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
	}},
	{"apply of an open schema", func(c *client) {
		c.apply(201, "one", plains+"/a", plain("a", `,"spec":{"list":[{"name":"x"}],"map":{"a":{"b":1}}}`))
		c.apply(200, "two", plains+"/a", plain("a", `,"spec":{"map":{"c":1}}`))
		c.apply(409, "two", plains+"/a", plain("a", `,"spec":{"list":[{"name":"y"}]}`))
		c.apply(200, "one", plains+"/a", plain("a", `,"spec":{"map":{}}`))
	}},
}

// Annotations that ask for what [admissionPolicies] do.
const (
	// denied has no creation and no update of the object admitted, kept no deletion, and injected puts a label into it.
	denied   = "truth.example.com/denied"
	kept     = "truth.example.com/kept"
	injected = "truth.example.com/injected"
)

// admissionPolicies are those of the cluster. [admit] is the same for the simulation.
const admissionPolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: truth}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: ["", truth.example.com], apiVersions: ["*"], operations: [CREATE, UPDATE, DELETE], resources: [things, configmaps]}
  variables:
  - {name: deletes, expression: "request.operation == 'DELETE'"}
  - {name: meta, expression: "variables.deletes ? oldObject.metadata : object.metadata"}
  - {name: asked, expression: "variables.deletes ? 'truth.example.com/kept' : 'truth.example.com/denied'"}
  validations:
  - {expression: "!has(variables.meta.annotations) || !(variables.asked in variables.meta.annotations)", reason: Forbidden, message: "no"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: truth}
spec: {policyName: truth, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: truth}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["", truth.example.com], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [things, configmaps]}
  matchConditions:
  - {name: asked, expression: "has(object.metadata.annotations) && 'truth.example.com/injected' in object.metadata.annotations"}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels/injected', value: 'yes'}]"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: truth}
spec: {policyName: truth}
`

// admit does what admissionPolicies do.
func admit(a apiserver.Admission) (result apiserver.AdmissionResult) {
	if !slices.Contains([]string{"things", "configmaps"}, a.Resource) || a.Subresource != "" {
		return result
	}
	object, asked := a.Object, denied
	if a.Operation == "DELETE" {
		object, asked = a.Old, kept
	}
	annotations := value.Map(object, "metadata", "annotations")
	if annotations[asked] != nil {
		result.Denied = "ValidatingAdmissionPolicy 'truth' with binding 'truth' denied request: no"
		return result
	}
	if annotations[injected] != nil && a.Operation != "DELETE" {
		o := value.Shallow(object)
		meta, labels := value.Shallow(value.Map(o, "metadata")), value.Shallow(value.Map(o, "metadata", "labels"))
		labels["injected"] = "yes"
		meta["labels"], o["metadata"] = labels, meta
		result.Object = value.Encode(o)
	}
	return result
}

// awaitPolicies makes the policies, and waits until the cluster heeds them.
func awaitPolicies(t *testing.T, server connection) {
	t.Helper()
	cluster.Shared(t).Apply(t, admissionPolicies)
	c := newClient(t, "kube-apiserver", server.host, server.http, "default")
	for annotation, heeded := range map[string]func(response) bool{
		denied:   func(r response) bool { return r.code == 403 },
		injected: func(r response) bool { return value.Map(r.body, "metadata", "labels")["injected"] == "yes" },
	} {
		for path, kind := range map[string]string{configMaps: `"kind":"ConfigMap","apiVersion":"v1",`, things: `"kind":"Thing","apiVersion":"truth.example.com/v1",`} {
			cluster.Eventually(t, limit, "the policy about "+annotation+" of "+path, func(context.Context) (bool, string) {
				r := c.send("POST", path+"?dryRun=All", jsonType, "{"+kind+asking(annotation)[1:])
				return heeded(r), string(r.raw)
			})
		}
	}
}

// asking is a ConfigMap with a label and an annotation.
func asking(annotation string) string {
	return `{"metadata":{"name":"a","labels":{"l":"1"},"annotations":{"` + annotation + `":""}}}`
}

// admissionRows are about what others say of a write, and add to it.
var admissionRows = []row{
	{"a creation is denied", func(c *client) {
		c.post(403, configMaps, asking(denied))
		c.post(403, configMaps+"?dryRun=All", asking(denied))
		c.get(404, configMaps+"/a")
		c.apply(403, "one", configMaps+"/a", `{"apiVersion":"v1","kind":"ConfigMap",`+asking(denied)[1:])
		c.get(404, configMaps+"/a")
	}},
	{"an update is denied", func(c *client) {
		r := c.post(201, things, thing("a", `{"replicas":1}`))
		c.patch(403, mergeType, things+"/a", `{"metadata":{"annotations":{"`+denied+`":""}},"spec":{"replicas":2}}`)
		c.put(403, things+"/a", r.with(func(o object) { meta(o)["annotations"] = object{denied: ""} }))
		c.apply(403, "one", things+"/a", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","annotations":{"`+denied+`":""}}}`)
		c.get(200, things+"/a")
	}},
	{"a deletion is denied", func(c *client) {
		c.post(201, configMaps, asking(kept))
		c.delete(403, configMaps+"/a", "")
		c.patch(200, mergeType, configMaps+"/a", `{"metadata":{"annotations":null}}`)
		c.delete(200, configMaps+"/a", "")
	}},
	{"a status is not what is denied of an object", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a/status", `{"metadata":{"annotations":{"`+denied+`":""}},"status":{"phase":"Failed"}}`)
	}},
	{"a label is injected when an object is created", func(c *client) {
		c.post(201, configMaps, asking(injected))
		c.get(200, configMaps+"/a")
		c.patch(200, mergeType, configMaps+"/a", `{"data":{"k":"2"}}`)
	}},
	{"a label is injected again when it is taken away", func(c *client) {
		c.post(201, configMaps, asking(injected))
		c.patch(200, mergeType, configMaps+"/a", `{"metadata":{"labels":{"injected":null}}}`)
		c.patch(200, jsonPatchType, configMaps+"/a", `[{"op":"replace","path":"/metadata/labels","value":{"l":"2"}}]`)
	}},
	{"a label is injected into what is applied", func(c *client) {
		body := func(replicas string) string {
			return `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"l":"1"},"annotations":{"` + injected + `":""}},"spec":{"replicas":` + replicas + `}}`
		}
		c.apply(201, "one", things+"/a", body("1"))
		c.apply(200, "one", things+"/a", body("1"))
		c.apply(200, "one", things+"/a", body("2"))
		c.apply(200, "two", things+"/a", `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"injected":"yes"}}}`)
	}},
	{"a label is injected by a dry run, and not stored", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a?dryRun=All", `{"metadata":{"labels":{"l":"1"},"annotations":{"`+injected+`":""}}}`)
		c.get(200, things+"/a")
	}},
}

var (
	events     = in("v1", "events")
	namespaces = "/api/v1/namespaces"
)

// builtinRows are about kinds of Kubernetes' own.
var builtinRows = []row{
	{"an immutable config map", func(c *client) {
		c.post(201, configMaps, `{"metadata":{"name":"a"},"data":{"k":"v"},"immutable":true}`)
		c.patch(422, mergeType, configMaps+"/a", `{"data":{"k":"w"}}`)
		c.patch(200, mergeType, configMaps+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		c.patch(422, mergeType, configMaps+"/a", `{"immutable":null}`)
	}},
	{"keys of config maps", func(c *client) { c.post(422, configMaps, configMap("a", `{"a b":"v"}`)) }},
	{"binary data", func(c *client) { c.post(201, configMaps, `{"metadata":{"name":"a"},"binaryData":{"k":"AAE="}}`) }},
	{"an event", func(c *client) {
		c.post(201, events, `{"metadata":{"name":"a.1"},"involvedObject":{"kind":"Thing","namespace":"$ns","name":"a","uid":"u","apiVersion":"truth.example.com/v1"},
			"reason":"Because","message":"text","type":"Warning","source":{"component":"truth"},"reportingComponent":"truth",
			"firstTimestamp":"2020-01-01T00:00:00Z","lastTimestamp":"2020-01-01T00:00:00Z","count":1}`)
		c.patch(200, strategicType, events+"/a.1", `{"count":2,"lastTimestamp":"2020-01-02T00:00:00Z"}`)
		c.patch(404, strategicType, events+"/b", `{"count":2}`)
		c.post(404, "/api/v1/namespaces/nowhere/events", `{"metadata":{"name":"a.1","namespace":"nowhere"},"involvedObject":{"namespace":"nowhere"}}`)
	}},
	{"a namespace", func(c *client) {
		c.post(201, namespaces, `{"metadata":{"name":"$ns-a","labels":{"l":"1"}},"status":{"phase":"Odd"}}`)
		c.patch(200, mergeType, namespaces+"/$ns-a", `{"metadata":{"labels":{"l":"2"}},"spec":{"finalizers":[]}}`)
		c.post(422, namespaces, `{"metadata":{"name":"A.b"}}`)
	}},
	{"webhook configurations are empty", func(c *client) {
		for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			c.list("/apis/admissionregistration.k8s.io/v1/" + resource + "?labelSelector=none%3Dtrue")
		}
	}},
}

var deployments = in("apps/v1", "deployments")

// deployment returns a Deployment without Pods.
func deployment(containers string) string {
	return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"replicas":0,"paused":true,"selector":{"matchLabels":{"app":"a"}},
		"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[` + containers + `]}}}}`
}

// deploymentOf adds a Deployment to the transcript without what its controller writes.
func (c *client) deploymentOf(path string) {
	c.t.Helper()
	r := c.silentGet(path)
	c.note("deployment", response{body: object{"generation": meta(r.body)["generation"], "spec": r.body["spec"]}})
}

// workloadRows are about kinds with defaults of their own.
var workloadRows = []row{
	{"a deployment has defaults", func(c *client) {
		c.post(201, deployments, deployment(`{"name":"main","image":"x"},{"name":"other","image":"y:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}`))
	}},
	{"a deployment is applied by names", func(c *client) {
		c.apply(201, "one", deployments+"/a", deployment(`{"name":"main","image":"x:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}`))
		c.silently(func() {
			c.apply(200, "two", deployments+"/a", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"B","value":"2"}]}]}}}}`)
		})
		c.deploymentOf(deployments + "/a")
		c.silently(func() {
			c.apply(200, "one", deployments+"/a", deployment(`{"name":"main","image":"x:2","ports":[{"containerPort":81}]}`))
		})
		c.deploymentOf(deployments + "/a")
		c.apply(409, "two", deployments+"/a", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"main","image":"y"}]}}}}`)
	}},
	{"deployments that are invalid", func(c *client) {
		c.post(422, deployments, deployment(``))
		c.post(422, deployments, deployment(`{"name":"main"}`))
		c.post(400, deployments, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"replicas":"x"}}`)
	}},
	{"the selector of a deployment is fixed", func(c *client) {
		c.silently(func() { c.post(201, deployments, deployment(`{"name":"main","image":"x:1"}`)) })
		c.patch(422, mergeType, deployments+"/a", `{"spec":{"selector":{"matchLabels":{"app":"b"}},"template":{"metadata":{"labels":{"app":"b"}}}}}`)
	}},
	{"the schemas of Kubernetes' kinds say how lists are merged", func(c *client) {
		for _, at := range []struct{ path, kind string }{{"api/v1", "ConfigMap"}, {"apis/apps/v1", "Deployment"}} {
			r := c.silentGet("/openapi/v3/" + at.path)
			c.note(at.kind, response{body: listsOf(r.body["components"].(object)["schemas"].(object), at.kind)})
		}
	}},
}

// usual are lists that histories use. Of the others some are new in the libraries of the simulation.
var usual = regexp.MustCompile(`(\.finalizers|\.ownerReferences|\.containers|\.ports|\.env|\.envFrom|\.args|\.command|\.tolerations|\.volumes|\.imagePullSecrets|\.conditions)$`)

// listsOf returns how the usual lists in a kind's fields are merged, by their paths.
func listsOf(schemas object, kind string) object {
	found := object{}
	for _, s := range schemas {
		node := s.(object)
		kinds, _ := node["x-kubernetes-group-version-kind"].([]any)
		properties, _ := node["properties"].(object)
		if len(kinds) == 1 && kinds[0].(object)["kind"] == kind && properties["metadata"] != nil {
			addLists(schemas, node, "", 0, found)
		}
	}
	return found
}

func addLists(schemas, node object, path string, depth int, found object) {
	if all, ok := node["allOf"].([]any); ok && len(all) == 1 {
		node = all[0].(object)
	}
	if ref, ok := node["$ref"].(string); ok {
		node, _ = schemas[ref[len("#/components/schemas/"):]].(object)
	}
	const deep = 8
	if depth > deep {
		return
	}
	if items, ok := node["items"].(object); ok {
		if usual.MatchString(path) {
			found[path] = object{"type": node["x-kubernetes-list-type"], "keys": node["x-kubernetes-list-map-keys"]}
		}
		addLists(schemas, items, path+"[]", depth+1, found)
	}
	properties, _ := node["properties"].(object)
	for name, inner := range properties {
		addLists(schemas, inner.(object), path+"."+name, depth+1, found)
	}
}
