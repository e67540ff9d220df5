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
	"fmt"
	"strings"
)

// objectRows are about creating and replacing objects.
var objectRows = []row{
	{"create sets the metadata", func(c *client) {
		c.post(201, configMaps, configMap("a", `{"k":"v"}`))
		c.get(200, configMaps+"/a")
	}},
	{"create of a custom resource sets defaults, generation and no status", func(c *client) {
		c.post(201, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"l":"1"},"annotations":{"n":"2"}},"spec":{"nested":{}},"status":{"phase":"Ready"}}`)
		c.get(200, things+"/a")
	}},
	{"create of what exists", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.post(409, configMaps, configMap("a", `{"k":"v"}`))
	}},
	{"create without name", func(c *client) { c.post(422, configMaps, `{"data":{"k":"v"}}`) }},
	{"create of a custom resource without name", func(c *client) {
		c.post(422, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","spec":{}}`)
	}},
	{"create with a bad name", func(c *client) {
		c.post(422, configMaps, configMap("A_b", `{}`))
		c.post(422, things, thing("A_b", `{}`))
	}},
	{"create drops what the client may not set", func(c *client) {
		c.post(201, configMaps, `{"metadata":{"name":"a","uid":"x","creationTimestamp":"2020-01-01T00:00:00Z","deletionTimestamp":"2020-01-01T00:00:00Z","generation":7,"selfLink":"/x"}}`)
		c.post(201, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"x","generation":7,"deletionGracePeriodSeconds":3},"spec":{}}`)
	}},
	{"create with a resourceVersion", func(c *client) { c.post(500, configMaps, `{"metadata":{"name":"a","resourceVersion":"1"}}`) }},
	{"create in another namespace than the path's", func(c *client) {
		c.post(400, configMaps, `{"metadata":{"name":"a","namespace":"other"}}`)
		c.post(400, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"other"},"spec":{}}`)
	}},
	{"create in a namespace that does not exist", func(c *client) {
		c.post(404, "/api/v1/namespaces/nowhere/configmaps", configMap("a", `{}`))
		c.post(404, "/apis/truth.example.com/v1/namespaces/nowhere/things", thing("a", `{}`))
	}},
	{"create of another custom kind than the path's", func(c *client) {
		c.post(422, things, `{"apiVersion":"truth.example.com/v1","kind":"Other","metadata":{"name":"a"},"spec":{}}`)
	}},
	{"create of broken JSON", func(c *client) { c.want(400, silent(c, "POST", configMaps, `{"metadata":`)) }},
	{"create of a wrong type", func(c *client) { c.want(400, silent(c, "POST", configMaps, `{"metadata":{"name":"a"},"data":3}`)) }},
	{"create as a dry run", func(c *client) {
		c.post(201, configMaps+"?dryRun=All", configMap("a", `{}`))
		c.post(201, things+"?dryRun=All", thing("a", `{}`))
		c.get(404, configMaps+"/a")
		c.get(404, things+"/a")
	}},
	{"dryRun has one value", func(c *client) { c.post(422, configMaps+"?dryRun=Some", configMap("a", `{}`)) }},
	{"two controllers are too many", func(c *client) {
		c.post(422, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","ownerReferences":[
			{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u","controller":true},
			{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"v","controller":true}]},"spec":{}}`)
	}},
	{"bad labels", func(c *client) {
		c.post(422, configMaps, `{"metadata":{"name":"a","labels":{"a b":"c"}}}`)
		c.post(422, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"a":"b c"}},"spec":{}}`)
	}},
	{"finalizers without domain are warned of", func(c *client) {
		c.post(201, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","finalizers":["simple"]},"spec":{}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
	}},
	{"empty metadata is dropped", func(c *client) {
		c.post(201, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{},"annotations":{},"finalizers":[],"ownerReferences":[],"unknown":1},"spec":{}}`)
		c.post(201, configMaps, `{"metadata":{"name":"a","labels":{},"annotations":{},"finalizers":[],"unknown":1},"data":{}}`)
	}},
	{"get of what does not exist", func(c *client) {
		c.get(404, configMaps+"/a")
		c.get(404, things+"/a")
	}},
	{"get of a kind that does not exist", func(c *client) {
		c.get(404, in("v1", "nothings"))
		c.get(404, in(group+"/v1", "nothings"))
		c.get(404, in(group+"/v2", "things"))
		c.get(404, in("nobody.example.com/v1", "things"))
	}},
	{"put replaces", func(c *client) {
		r := c.post(201, configMaps, configMap("a", `{"k":"v"}`))
		c.put(200, configMaps+"/a", r.with(func(o object) { o["data"] = object{"l": "w"} }))
	}},
	{"put that changes nothing keeps the resourceVersion", func(c *client) {
		r := c.post(201, things, thing("a", `{"replicas":3}`))
		c.put(200, things+"/a", string(r.raw))
		c.put(200, configMaps+"/b", c.post(201, configMaps, configMap("b", `{"k":"v"}`)).with(func(object) {}))
	}},
	{"put on an old resourceVersion", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":4}}`)
		c.put(409, things+"/a", string(r.raw))
		b := c.post(201, configMaps, configMap("b", `{}`))
		c.patch(200, mergeType, configMaps+"/b", `{"data":{"k":"v"}}`)
		c.put(409, configMaps+"/b", string(b.raw))
	}},
	{"put without resourceVersion is for some kinds", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.put(200, configMaps+"/a", configMap("a", `{"k":"v"}`))
		c.post(201, things, thing("a", `{}`))
		c.put(422, things+"/a", thing("a", `{"replicas":2}`))
	}},
	{"put of what does not exist", func(c *client) {
		c.put(404, configMaps+"/a", configMap("a", `{}`))
		c.put(404, things+"/a", thing("a", `{}`))
	}},
	{"put with another name or namespace than the path's", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.put(400, configMaps+"/a", configMap("b", `{}`))
		c.put(400, configMaps+"/a", `{"metadata":{"name":"a","namespace":"other"}}`)
		c.put(400, configMaps+"/a", `{"metadata":{}}`)
	}},
	{"put with another UID", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.put(409, configMaps+"/a", `{"metadata":{"name":"a","uid":"00000000-0000-0000-0000-000000000000"}}`)
		r := c.post(201, things, thing("a", `{}`))
		c.put(409, things+"/a", r.with(func(o object) { meta(o)["uid"] = "00000000-0000-0000-0000-000000000000" }))
	}},
	{"put cannot change system metadata", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.put(200, things+"/a", r.with(func(o object) {
			meta(o)["creationTimestamp"] = "2020-01-01T00:00:00Z"
			meta(o)["generation"] = 77
			meta(o)["labels"] = object{"l": "1"}
		}))
		c.put(409, things+"/a", r.with(func(o object) { meta(o)["deletionTimestamp"] = "2020-01-01T00:00:00Z" }))
		c.patch(422, mergeType, things+"/a", `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}`)
		c.patch(422, mergeType, things+"/a", `{"metadata":{"deletionGracePeriodSeconds":7}}`)
	}},
	{"put as a dry run", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.put(200, things+"/a?dryRun=All", r.with(func(o object) { o["spec"].(object)["replicas"] = 9 }))
		c.get(200, things+"/a")
	}},
	{"generation counts what is not metadata", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`)
		c.patch(200, mergeType, things+"/a/status", `{"status":{"phase":"Ready"}}`)
		c.post(201, plains, plain("a", `,"spec":{},"status":{"x":1}`))
		c.patch(200, mergeType, plains+"/a", `{"metadata":{"annotations":{"l":"1"}}}`)
		c.patch(200, mergeType, plains+"/a", `{"status":{"x":2}}`)
		c.patch(200, mergeType, plains+"/a", `{"more":{"x":2}}`)
	}},
	{"the status endpoint writes nothing else", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		r = c.put(200, things+"/a/status", r.with(func(o object) {
			o["status"] = object{"phase": "Ready", "unknown": true}
			o["spec"].(object)["replicas"] = 5
			meta(o)["labels"] = object{"l": "1"}
		}))
		c.put(200, things+"/a", r.with(func(o object) { o["status"] = object{"phase": "Failed"} }))
		c.put(409, things+"/a/status", r.with(func(o object) { meta(o)["resourceVersion"] = "1" }))
		c.patch(422, mergeType, things+"/a/status", `{"status":{"phase":"Odd"}}`)
		c.patch(200, mergeType, things+"/a/status", `{"status":null}`)
	}},
	{"a kind without status endpoint", func(c *client) {
		c.post(201, plains, plain("a", ``))
		c.patch(404, mergeType, plains+"/a/status", `{"status":{}}`)
	}},
	{"a cluster-scoped kind", func(c *client) {
		name := "$ns-a"
		c.post(201, wholes, `{"apiVersion":"truth.example.com/v1","kind":"ClusterThing","metadata":{"name":"`+name+`"},"spec":{"a":1}}`)
		c.post(201, wholes, `{"apiVersion":"truth.example.com/v1","kind":"ClusterThing","metadata":{"name":"$ns-b","namespace":"$ns"}}`)
		c.get(404, in(group+"/v1", "clusterthings"))
		c.delete(200, wholes+"/"+name, "")
	}},
	{"unknown methods", func(c *client) {
		c.want(400, c.send("PUT", things, jsonType, "{}"))
		c.want(405, c.send("DELETE", things+"/a/status", jsonType, ""))
	}},
	{"a body in an unknown format", func(c *client) { c.want(415, c.send("POST", configMaps, "text/plain", "x")) }},
	{"who may not", func(c *client) {
		c.user = "mallory"
		c.get(403, configMaps+"/a")
		c.get(403, configMaps)
		c.post(403, things, thing("a", `{}`))
		c.patch(403, mergeType, things+"/a/status", `{}`)
		c.delete(403, things+"/a", "")
		c.get(403, "/api/v1/namespaces/$ns")
		c.get(403, wholes)
	}},
	{"unknown fields are dropped, refused or ignored", func(c *client) {
		c.post(201, things, thing("a", `{"odd":1,"free":{"odd":1},"items":[{"name":"x","odd":2}]}`))
		c.post(400, things+"?fieldValidation=Strict", thing("b", `{"odd":1,"odder":{}}`))
		c.post(201, things+"?fieldValidation=Ignore", thing("c", `{"odd":1}`))
		c.post(201, configMaps, `{"metadata":{"name":"a"},"odd":1}`)
		c.post(400, configMaps+"?fieldValidation=Strict", `{"metadata":{"name":"b"},"odd":1}`)
	}},
}

// silent sends a request whose response differs between servers.
func silent(c *client, method, path, body string) (r response) {
	c.t.Helper()
	c.silently(func() { r = c.send(method, path, jsonType, body) })
	return r
}

func meta(o object) object {
	m, _ := o["metadata"].(object)
	return m
}

// deletionRows are about deleting objects, and what becomes of those that they own.
var deletionRows = []row{
	{"delete", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.delete(200, configMaps+"/a", "")
		c.delete(404, configMaps+"/a", "")
		c.post(201, things, thing("a", `{}`))
		c.delete(200, things+"/a", "")
		c.get(404, things+"/a")
	}},
	{"delete with preconditions", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.delete(409, things+"/a", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		c.delete(409, things+"/a", fmt.Sprintf(`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":%q}}`, r.metadata("resourceVersion")))
		c.delete(200, things+"/a", fmt.Sprintf(`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":%q}}`, r.metadata("uid")))
		c.post(201, configMaps, configMap("a", `{}`))
		c.delete(409, configMaps+"/a", `{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
	}},
	{"delete as a dry run", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.delete(200, things+"/a?dryRun=All", "")
		c.delete(200, things+"/a", `{"dryRun":["All"]}`)
		c.get(200, things+"/a")
	}},
	{"delete waits for finalizers", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f", "truth.example.com/g"))
		c.delete(200, things+"/a", "")
		c.delete(200, things+"/a", "")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":["truth.example.com/g"]}}`)
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":3}}`)
		c.patch(422, mergeType, things+"/a", `{"metadata":{"finalizers":["truth.example.com/g","truth.example.com/h"]}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
		c.get(404, things+"/a")
	}},
	{"delete of a config map waits for finalizers", func(c *client) {
		c.post(201, configMaps, `{"metadata":{"name":"a","finalizers":["truth.example.com/f"]}}`)
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Background"}`)
		r := c.get(200, configMaps+"/a")
		c.put(200, configMaps+"/a", r.with(func(o object) { meta(o)["finalizers"] = []any{} }))
		c.get(404, configMaps+"/a")
	}},
	{"the last finalizer goes by apply", func(c *client) {
		body := func(finalizers string) string {
			return `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","finalizers":` + finalizers + `}}`
		}
		c.apply(201, "one", things+"/a", body(`["truth.example.com/f"]`))
		c.delete(200, things+"/a", "")
		c.apply(200, "one", things+"/a", body(`[]`))
		c.get(404, things+"/a")
	}},
	{"the status of what is being deleted", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f"))
		c.delete(200, things+"/a", "")
		c.patch(200, mergeType, things+"/a/status", `{"status":{"phase":"Failed"}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
	}},
	{"what is being deleted exists", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f"))
		c.delete(200, things+"/a", "")
		c.post(409, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
		c.post(201, things, thing("a", `{}`))
	}},
	{"the deletion timestamp cannot be taken back", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f"))
		c.delete(200, things+"/a", "")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"deletionTimestamp":null,"deletionGracePeriodSeconds":null,"labels":{"l":"1"}}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
	}},
	{"orphaning marks the object", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f"))
		c.delete(200, things+"/a", `{"propagationPolicy":"Orphan"}`)
		c.until(things+"/a", func(o object) bool { return len(meta(o)["finalizers"].([]any)) == 1 })
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
	}},
	{"background deletion deletes dependents afterwards", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, configMaps, dependent("b", "", reference(owner, false)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Background"}`)
		c.settle(404, configMaps+"/b")
		c.get(404, configMaps+"/b")
	}},
	{"foreground deletion waits for dependents that block it", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, configMaps, dependent("b", "truth.example.com/f", reference(owner, true)))
		c.post(201, configMaps, dependent("c", "", reference(owner, false)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Foreground"}`)
		c.until(configMaps+"/b", func(o object) bool { return meta(o)["deletionTimestamp"] != nil })
		c.settle(404, configMaps+"/c")
		c.get(200, configMaps+"/a")
		c.get(200, configMaps+"/b")
		c.patch(200, mergeType, configMaps+"/b", `{"metadata":{"finalizers":null}}`)
		c.settle(404, configMaps+"/a")
	}},
	{"foreground deletion does not wait for others", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, configMaps, dependent("b", "truth.example.com/f", reference(owner, false)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Foreground"}`)
		c.settle(404, configMaps+"/a")
		c.until(configMaps+"/b", func(o object) bool { return meta(o)["deletionTimestamp"] != nil })
		c.patch(200, mergeType, configMaps+"/b", `{"metadata":{"finalizers":null}}`)
	}},
	{"orphaning takes the references off", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, configMaps, dependent("b", "", reference(owner, true)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Orphan"}`)
		c.settle(404, configMaps+"/a")
		c.get(200, configMaps+"/b")
	}},
	{"an object with one owner left stays", func(c *client) {
		first, second := c.post(201, configMaps, configMap("a", `{}`)), c.post(201, configMaps, configMap("b", `{}`))
		c.post(201, configMaps, dependent("c", "", reference(first, false), reference(second, false)))
		c.delete(200, configMaps+"/a", "")
		c.until(configMaps+"/c", func(o object) bool { return len(meta(o)["ownerReferences"].([]any)) == 1 })
		c.get(200, configMaps+"/c")
		c.delete(200, configMaps+"/b", "")
		c.settle(404, configMaps+"/c")
	}},
	{"an owner of that name with another UID is no owner", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, configMaps, dependent("b", "", `{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"00000000-0000-0000-0000-000000000000"}`))
		c.settle(404, configMaps+"/b")
	}},
	{"an owner of a kind that is not served keeps its dependents", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, configMaps, dependent("b", "", `{"apiVersion":"nobody.example.com/v1","kind":"Nobody","name":"a","uid":"u"}`))
		c.post(201, configMaps, dependent("c", "", reference(owner, false)))
		c.delete(200, configMaps+"/a", "")
		c.settle(404, configMaps+"/c")
		c.get(200, configMaps+"/b")
	}},
	{"dependents of dependents", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		middle := c.post(201, configMaps, dependent("b", "", reference(owner, true)))
		c.post(201, configMaps, dependent("c", "", reference(middle, true)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Foreground"}`)
		c.settle(404, configMaps+"/a")
		c.get(404, configMaps+"/b")
		c.get(404, configMaps+"/c")
	}},
}

func finalized(name, kind string, finalizers ...string) string {
	return fmt.Sprintf(`{"apiVersion":"truth.example.com/v1","kind":%q,"metadata":{"name":%q,"finalizers":[%s]},"spec":{}}`, kind, name, quoted(finalizers))
}

func quoted(texts []string) string {
	var list string
	for i, text := range texts {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf("%q", text)
	}
	return list
}

// reference returns a reference to an owner.
func reference(owner response, block bool) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%t}`,
		owner.body["apiVersion"], owner.body["kind"], owner.metadata("name"), owner.metadata("uid"), block)
}

// dependent returns a ConfigMap that has owners.
func dependent(name, finalizer string, owners ...string) string {
	finalizers := ""
	if finalizer != "" {
		finalizers = fmt.Sprintf("%q", finalizer)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"finalizers":[%s],"ownerReferences":[%s]}}`,
		name, finalizers, strings.Join(owners, ","))
}
