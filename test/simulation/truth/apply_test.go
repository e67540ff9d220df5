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
