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

import "regexp"

var (
	events     = in("v1", "events")
	namespaces = "/api/v1/namespaces"
)

// builtinRows are about kinds of Kubernetes' own.
var builtinRows = []row{
	{"a secret", func(c *client) {
		c.post(201, secrets, `{"metadata":{"name":"a"},"stringData":{"k":"v"},"data":{"l":"dw=="}}`)
		c.patch(200, mergeType, secrets+"/a", `{"stringData":{"l":"x"}}`)
		c.patch(422, mergeType, secrets+"/a", `{"type":"other"}`)
		c.post(422, secrets, `{"metadata":{"name":"b"},"data":{"a b":"dw=="}}`)
	}},
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
	{"an event is found by its object", func(c *client) {
		for _, name := range []string{"a", "b"} {
			c.post(201, events, `{"metadata":{"name":"`+name+`"},"involvedObject":{"kind":"Thing","namespace":"$ns","name":"`+name+`"},"reason":"R","message":"m","type":"Normal"}`)
		}
		c.list(events + "?fieldSelector=involvedObject.name%3Da%2Creason%3DR%2Ctype%3DNormal")
	}},
	{"a namespace", func(c *client) {
		c.post(201, namespaces, `{"metadata":{"name":"$ns-a","labels":{"l":"1"}},"status":{"phase":"Odd"}}`)
		c.patch(200, mergeType, namespaces+"/$ns-a", `{"metadata":{"labels":{"l":"2"}},"spec":{"finalizers":[]}}`)
		c.post(422, namespaces, `{"metadata":{"name":"A.b"}}`)
		c.silentDelete(namespaces + "/$ns-a")
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
	{"a deployment is merged by names", func(c *client) {
		c.silently(func() {
			c.post(201, deployments, deployment(`{"name":"main","image":"x:1","env":[{"name":"A","value":"1"}]}`))
		})
		c.silently(func() {
			c.patch(200, strategicType, deployments+"/a", `{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"B","value":"2"}]},{"name":"side","image":"z:1"}]}}}}`)
		})
		c.deploymentOf(deployments + "/a")
		c.silently(func() {
			c.patch(200, strategicType, deployments+"/a", `{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}`)
		})
		c.deploymentOf(deployments + "/a")
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
		for _, at := range []struct{ path, kind string }{{"api/v1", "ConfigMap"}, {"api/v1", "Pod"}, {"apis/apps/v1", "Deployment"}} {
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
