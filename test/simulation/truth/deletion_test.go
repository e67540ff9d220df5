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
	{"bad options of a deletion", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.send("DELETE", things+"/a", jsonType, `{"propagationPolicy":"Odd"}`)
		c.send("DELETE", things+"/a", jsonType, `{"propagationPolicy":"Orphan","orphanDependents":true}`)
		c.send("DELETE", things+"/a?propagationPolicy=Odd", jsonType, "")
		c.get(200, things+"/a")
	}},
	{"orphaning marks the object", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f"))
		c.delete(200, things+"/a", `{"propagationPolicy":"Orphan"}`)
		c.until(things+"/a", func(o object) bool { return len(meta(o)["finalizers"].([]any)) == 1 })
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null}}`)
	}},
	{"background deletion deletes dependents afterwards", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, secrets, dependent("Secret", "b", "", reference(owner, false)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Background"}`)
		c.settle(404, secrets+"/b")
		c.get(404, secrets+"/b")
	}},
	{"foreground deletion waits for dependents that block it", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, secrets, dependent("Secret", "b", "truth.example.com/f", reference(owner, true)))
		c.post(201, configMaps, dependent("ConfigMap", "c", "", reference(owner, false)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Foreground"}`)
		c.until(secrets+"/b", func(o object) bool { return meta(o)["deletionTimestamp"] != nil })
		c.settle(404, configMaps+"/c")
		c.get(200, configMaps+"/a")
		c.get(200, secrets+"/b")
		c.patch(200, mergeType, secrets+"/b", `{"metadata":{"finalizers":null}}`)
		c.settle(404, configMaps+"/a")
	}},
	{"foreground deletion does not wait for others", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, secrets, dependent("Secret", "b", "truth.example.com/f", reference(owner, false)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Foreground"}`)
		c.settle(404, configMaps+"/a")
		c.until(secrets+"/b", func(o object) bool { return meta(o)["deletionTimestamp"] != nil })
		c.patch(200, mergeType, secrets+"/b", `{"metadata":{"finalizers":null}}`)
	}},
	{"orphaning takes the references off", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, secrets, dependent("Secret", "b", "", reference(owner, true)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Orphan"}`)
		c.settle(404, configMaps+"/a")
		c.get(200, secrets+"/b")
	}},
	{"an object with one owner left stays", func(c *client) {
		first, second := c.post(201, configMaps, configMap("a", `{}`)), c.post(201, configMaps, configMap("b", `{}`))
		c.post(201, secrets, dependent("Secret", "c", "", reference(first, false), reference(second, false)))
		c.delete(200, configMaps+"/a", "")
		c.until(secrets+"/c", func(o object) bool { return len(meta(o)["ownerReferences"].([]any)) == 1 })
		c.get(200, secrets+"/c")
		c.delete(200, configMaps+"/b", "")
		c.settle(404, secrets+"/c")
	}},
	{"an owner of that name with another UID is no owner", func(c *client) {
		c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, secrets, dependent("Secret", "b", "", `{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"00000000-0000-0000-0000-000000000000"}`))
		c.settle(404, secrets+"/b")
	}},
	{"an owner of a kind that is not served keeps its dependents", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		c.post(201, secrets, dependent("Secret", "b", "", `{"apiVersion":"nobody.example.com/v1","kind":"Nobody","name":"a","uid":"u"}`))
		c.post(201, secrets, dependent("Secret", "c", "", reference(owner, false)))
		c.delete(200, configMaps+"/a", "")
		c.settle(404, secrets+"/c")
		c.get(200, secrets+"/b")
	}},
	{"dependents of dependents", func(c *client) {
		owner := c.post(201, configMaps, configMap("a", `{}`))
		middle := c.post(201, secrets, dependent("Secret", "b", "", reference(owner, true)))
		c.post(201, configMaps, dependent("ConfigMap", "c", "", reference(middle, true)))
		c.delete(200, configMaps+"/a", `{"propagationPolicy":"Foreground"}`)
		c.settle(404, configMaps+"/a")
		c.get(404, secrets+"/b")
		c.get(404, configMaps+"/c")
	}},
	{"a collection is deleted", func(c *client) {
		for _, name := range []string{"a", "b", "c"} {
			c.post(201, things, fmt.Sprintf(`{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":%q,"labels":{"n":%q}},"spec":{}}`, name, name))
		}
		c.want(200, silent(c, "DELETE", things+"?labelSelector=n+in+(a,b)", ""))
		c.get(404, things+"/a")
		c.get(404, things+"/b")
		c.get(200, things+"/c")
	}},
	{"a namespace takes its objects with it", func(c *client) {
		other, inside := "/api/v1/namespaces/$ns-x", "/api/v1/namespaces/$ns-x/configmaps"
		c.post(201, "/api/v1/namespaces", `{"metadata":{"name":"$ns-x"}}`)
		c.post(201, inside, `{"metadata":{"name":"a","finalizers":["truth.example.com/f"]}}`)
		c.post(201, inside, configMap("b", `{}`))
		c.delete(200, other, "")
		c.settle(404, inside+"/b")
		c.until(inside+"/a", func(o object) bool { return meta(o)["deletionTimestamp"] != nil })
		c.post(403, inside, configMap("c", `{}`))
		c.post(403, "/apis/truth.example.com/v1/namespaces/$ns-x/things", thing("c", `{}`))
		c.patch(200, mergeType, inside+"/a", `{"metadata":{"finalizers":null}}`)
		c.settle(404, other)
	}},
	{"some namespaces stay", func(c *client) { c.delete(403, "/api/v1/namespaces/default", "") }},
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

// dependent returns an object of the core group that has owners.
func dependent(kind, name, finalizer string, owners ...string) string {
	finalizers := ""
	if finalizer != "" {
		finalizers = fmt.Sprintf("%q", finalizer)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"finalizers":[%s],"ownerReferences":[%s]}}`,
		kind, name, finalizers, strings.Join(owners, ","))
}
