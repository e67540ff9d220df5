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

// customRows are about the schemas of custom resources.
var customRows = []row{
	{"defaults are set at every depth", func(c *client) {
		c.post(201, things, thing("a", `{"nested":{"on":true},"items":[{"name":"x"},{"name":"y","weight":1}]}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"nested":{"deep":null}}}`)
	}},
	{"null is dropped where it is not allowed", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":null,"name":null,"nullable":null,"nested":null,"free":{"x":null}}`))
	}},
	{"types are checked", func(c *client) {
		for _, spec := range []string{
			`{"replicas":"1"}`, `{"replicas":1.5}`, `{"nested":[]}`, `{"tags":"x"}`, `{"tags":[1]}`, `{"nested":{"on":"true"}}`, `{"limits":{"a":1}}`, `"text"`,
		} {
			c.post(422, things, thing("a", spec))
		}
	}},
	{"values are checked", func(c *client) {
		for _, spec := range []string{
			`{"replicas":-1}`, `{"mode":"C"}`, `{"name":"ABC"}`, `{"name":"abcdefghijk"}`, `{"mode":null,"replicas":-1}`, `{"items":[{"value":"x"}]}`, `{"name":""}`,
		} {
			c.send("POST", things, jsonType, thing("a", spec))
		}
	}},
	{"lists that are sets and maps have no doubles", func(c *client) {
		c.post(422, things, thing("a", `{"tags":["s","s"]}`))
		c.post(422, things, thing("a", `{"items":[{"name":"x"},{"name":"x"}]}`))
		c.post(201, things, thing("a", `{"order":[1,1]}`))
	}},
	{"an integer or a string", func(c *client) {
		c.post(201, things, thing("a", `{"port":80}`))
		c.post(201, things, thing("b", `{"port":"80%"}`))
		c.post(422, things, thing("c", `{"port":true}`))
	}},
	{"numbers", func(c *client) {
		c.post(201, things, thing("a", `{"nested":{"ratio":1.5},"replicas":3.0,"free":{"big":12345678901234567,"float":0.1,"whole":2.0}}`))
		c.patch(200, mergeType, things+"/a", `{"spec":{"nested":{"ratio":1.50},"replicas":3,"free":{"whole":2}}}`)
	}},
	{"an embedded object has metadata", func(c *client) {
		c.post(201, things, thing("a", `{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"},"odd":1},"spec":{"x":1}}}`))
		c.post(422, things, thing("b", `{"template":{"spec":{}}}`))
		c.send("POST", things, jsonType, thing("c", `{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":1}}}}`))
	}},
	{"metadata of a wrong type", func(c *client) {
		c.want(400, c.send("POST", things, jsonType, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"a":1}},"spec":{}}`))
		c.want(400, c.send("POST", things, jsonType, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","finalizers":"x"},"spec":{}}`))
	}},
	{"an open schema keeps everything", func(c *client) {
		c.post(201, plains, plain("a", `,"anything":{"goes":[1,"2",{"x":null}]},"text":"<&>é"`))
		c.patch(200, mergeType, plains+"/a", `{"anything":{"goes":null}}`)
	}},
	{"an object without spec", func(c *client) {
		c.post(201, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
		c.patch(200, mergeType, things+"/a", `{"spec":{}}`)
		c.patch(200, mergeType, things+"/a", `{"spec":null}`)
	}},
	{"what was invalid before may stay", func(c *client) {
		group := "ratchet.truth.example.com"
		open := definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema))
		path := in(group+"/v1", "cases")
		c.define(open, path)
		c.post(201, path, `{"apiVersion":"ratchet.truth.example.com/v1","kind":"Case","metadata":{"name":"a"},"spec":{"size":"odd","other":1}}`)
		c.redefine("cases."+group, `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"string","enum":["small"]},"other":{"type":"integer"}}}}}}]`,
			func() bool {
				return c.send("POST", path+"?dryRun=All", jsonType, `{"apiVersion":"ratchet.truth.example.com/v1","kind":"Case","metadata":{"name":"b"},"spec":{"size":"odd"}}`).code == 422
			})
		c.patch(200, mergeType, path+"/a", `{"spec":{"other":2}}`)
		c.patch(422, mergeType, path+"/a", `{"spec":{"size":"bad"}}`)
		c.patch(200, mergeType, path+"/a", `{"spec":{"size":"small"}}`)
	}},
}

// versionRows are about kinds with several versions.
var versionRows = []row{
	{"an object is served in every version", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":3,"free":{"x":1},"name":"abc"}`))
		c.get(200, oldThings+"/a")
		c.get(200, oldThings)
	}},
	{"an old version has defaults of its own when it is written", func(c *client) {
		c.post(201, oldThings, `{"apiVersion":"truth.example.com/v1beta1","kind":"Thing","metadata":{"name":"a"},"spec":{}}`)
		c.get(200, things+"/a")
		c.get(200, oldThings+"/a")
	}},
	{"a write in an old version loses what it does not know", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":3,"free":{"x":1},"name":"abc","mode":"B"}`))
		c.patch(200, mergeType, oldThings+"/a", `{"spec":{"replicas":4}}`)
		c.get(200, things+"/a")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
	}},
	{"a write in an old version that changes nothing", func(c *client) {
		c.post(201, oldThings, `{"apiVersion":"truth.example.com/v1beta1","kind":"Thing","metadata":{"name":"a"},"spec":{"replicas":1}}`)
		c.patch(200, mergeType, oldThings+"/a", `{"spec":{"replicas":1}}`)
	}},
	{"a watch sees objects in its version", func(c *client) {
		w := c.watch(oldThings, query("allowWatchBookmarks", "true"))
		c.post(201, things, thing("a", `{"replicas":3,"name":"abc"}`))
		w.next("ADDED")
		c.patch(200, mergeType, things+"/a", `{"spec":{"name":"abd"}}`)
		w.next("MODIFIED")
		c.delete(200, things+"/a", "")
		w.next("DELETED")
	}},
	{"a deprecated version warns", func(c *client) {
		group := "deprecated.truth.example.com"
		old := `{"name":"v1alpha1","served":true,"storage":false,"deprecated":true,"schema":{"openAPIV3Schema":` + openSchema + `}}`
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema), old), in(group+"/v1alpha1", "cases"))
		c.get(200, in(group+"/v1alpha1", "cases")+"?limit=1")
		c.get(404, in(group+"/v1alpha1", "cases")+"/a")
	}},
	{"the storage version changes", func(c *client) {
		group := "moving.truth.example.com"
		path := in(group+"/v1", "cases")
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema), version("v2", true, false, "", openSchema)), path)
		r := c.post(201, path, `{"apiVersion":"moving.truth.example.com/v1","kind":"Case","metadata":{"name":"a"},"spec":{"x":1}}`)
		w := c.watch(path, query("resourceVersion", r.metadata("resourceVersion")))
		c.redefine("cases."+group, `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`,
			func() bool { return true })
		w.ended()
		c.get(200, in(group+"/v2", "cases")+"/a")
		// The object is written anew, in the other version, though it does not change.
		c.put(200, path+"/a", string(r.raw))
	}},
	{"a version that is not served any more", func(c *client) {
		group := "ending.truth.example.com"
		path := in(group+"/v1", "cases")
		c.define(definition(group, "Case", "Namespaced", version("v1", true, false, "", openSchema), version("v2", true, true, "", openSchema)), path)
		c.post(201, path, `{"apiVersion":"ending.truth.example.com/v1","kind":"Case","metadata":{"name":"a"},"spec":{"x":1}}`)
		c.redefine("cases."+group, `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`,
			func() bool { return c.send("GET", path+"/a", "", "").code == 404 })
		c.get(404, path+"/a")
		c.get(200, in(group+"/v2", "cases")+"/a")
	}},
	{"a new schema prunes and defaults what is stored", func(c *client) {
		group := "pruning.truth.example.com"
		path := in(group+"/v1", "cases")
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "status", openSchema)), path)
		c.post(201, path, `{"apiVersion":"pruning.truth.example.com/v1","kind":"Case","metadata":{"name":"a"},"spec":{"kept":1,"lost":2}}`)
		c.redefine("cases."+group, `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","properties":{"spec":{"type":"object","properties":{"kept":{"type":"integer"},"new":{"type":"string","default":"x"}}}}}}]`,
			func() bool {
				spec, _ := c.send("GET", path+"/a", "", "").body["spec"].(object)
				return spec["lost"] == nil
			})
		c.get(200, path+"/a")
		c.patch(200, mergeType, path+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		c.patch(200, mergeType, path+"/a", `{"spec":{"kept":1}}`)
	}},
}
