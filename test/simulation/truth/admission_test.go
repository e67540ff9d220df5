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
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

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
