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

import "maps"

// definitionRows are about CustomResourceDefinitions.
var definitionRows = []row{
	{"a definition gets defaults and a status", func(c *client) {
		group := "defaults.truth.example.com"
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema)), in(group+"/v1", "cases"))
		c.bare(c.silentGet(crds + "/cases." + group))
	}},
	{"definitions that are invalid", func(c *client) {
		group := "invalid.truth.example.com"
		c.post(422, crds, definition(group, "Case", "Odd", version("v1", true, true, "", openSchema)))
		c.post(422, crds, definition(group, "Case", "Namespaced", version("v1", true, false, "", openSchema)))
		c.post(422, crds, definition(group, "Case", "Namespaced", version("v1", true, true, "", `{"type":"object","properties":{"a":{}}}`)))
		c.post(422, crds, definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema), version("v1", true, false, "", openSchema)))
	}},
	{"a watch ends when the definition changes", func(c *client) {
		group := "changing.truth.example.com"
		path := in(group+"/v1", "cases")
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema)), path)
		w := c.watch(path, query("allowWatchBookmarks", "true"))
		c.post(201, path, `{"apiVersion":"changing.truth.example.com/v1","kind":"Case","metadata":{"name":"a"}}`)
		w.next("ADDED")
		c.redefine("cases."+group, `[{"op":"add","path":"/spec/versions/0/subresources","value":{"status":{}}}]`, func() bool { return true })
		w.ended()
		c.patch(200, mergeType, path+"/a/status", `{"status":{"x":1}}`)
	}},
	{"a field that a definition takes away and gives back", func(c *client) {
		group := "hiding.truth.example.com"
		path := in(group+"/v1", "cases")
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "",
			`{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}}}`)), path)
		created := c.post(201, path, `{"apiVersion":"hiding.truth.example.com/v1","kind":"Case","metadata":{"name":"a"},"spec":{"a":1,"b":2}}`)
		shows := func(b bool) func() bool {
			return func() bool {
				spec, _ := c.silentGet(path + "/a").body["spec"].(object)
				_, ok := spec["b"]
				return ok == b
			}
		}
		w := c.watch(path, query("resourceVersion", created.metadata("resourceVersion")))
		const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b"
		c.redefine("cases."+group, `[{"op":"remove","path":"`+field+`"}]`, shows(false))
		w.ended()
		c.get(200, path+"/a")
		c.redefine("cases."+group, `[{"op":"add","path":"`+field+`","value":{"type":"integer"}}]`, shows(true))
		c.get(200, path+"/a")
		// Whoever watches on has to list, and sees the object in another form under the same version.
		w = c.watch(path, query("resourceVersion", created.metadata("resourceVersion")))
		c.silently(func() {
			if failed := w.next("ERROR"); failed["reason"] != "Expired" {
				c.t.Errorf("got %v", failed)
			}
		})
	}},
	{"a definition takes its objects with it", func(c *client) {
		group := "leaving.truth.example.com"
		path := in(group+"/v1", "cases")
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema)), path)
		c.post(201, path, `{"apiVersion":"leaving.truth.example.com/v1","kind":"Case","metadata":{"name":"a","finalizers":["truth.example.com/f"]}}`)
		c.post(201, path, `{"apiVersion":"leaving.truth.example.com/v1","kind":"Case","metadata":{"name":"b"}}`)
		w := c.watch(path, query("resourceVersion", "0", "fieldSelector", "metadata.name=a"))
		w.next("ADDED")
		c.bare(c.silentDelete(crds + "/cases." + group))
		c.settle(404, path+"/b")
		w.next("MODIFIED")
		c.until(path+"/a", func(o object) bool { return meta(o)["deletionTimestamp"] != nil })
		c.post(403, path, `{"apiVersion":"leaving.truth.example.com/v1","kind":"Case","metadata":{"name":"c"}}`)
		c.patch(200, mergeType, path+"/a", `{"metadata":{"finalizers":null}}`)
		w.next("DELETED")
		c.settle(404, crds+"/cases."+group)
		c.settle(404, path)
		c.get(404, path+"/a")
		w.ended()
	}},
	{"a definition comes back without the objects", func(c *client) {
		group := "returning.truth.example.com"
		path := in(group+"/v1", "cases")
		d := definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema))
		c.define(d, path)
		c.post(201, path, `{"apiVersion":"returning.truth.example.com/v1","kind":"Case","metadata":{"name":"a"}}`)
		c.silentDelete(crds + "/cases." + group)
		c.settle(404, crds+"/cases."+group)
		c.settle(404, path)
		c.define(d, path)
		c.get(404, path+"/a")
		c.post(201, path, `{"apiVersion":"returning.truth.example.com/v1","kind":"Case","metadata":{"name":"a"}}`)
	}},
	{"delete of a definition of another UID", func(c *client) {
		group := "uid.truth.example.com"
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema)), in(group+"/v1", "cases"))
		c.delete(409, crds+"/cases."+group, `{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
	}},
	{"the scope of a definition is fixed", func(c *client) {
		group := "scope.truth.example.com"
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema)), in(group+"/v1", "cases"))
		c.patch(422, mergeType, crds+"/cases."+group, `{"spec":{"scope":"Cluster"}}`)
	}},
	{"the generation of a definition counts its spec", func(c *client) {
		group := "generation.truth.example.com"
		c.define(definition(group, "Case", "Namespaced", version("v1", true, true, "", openSchema)), in(group+"/v1", "cases"))
		c.silently(func() { c.patch(200, mergeType, crds+"/cases."+group, `{"metadata":{"labels":{"l":"1"}}}`) })
		c.bare(c.silentGet(crds + "/cases." + group))
		c.silently(func() {
			c.patch(200, jsonPatchType, crds+"/cases."+group, `[{"op":"add","path":"/spec/names/shortNames","value":["cs"]}]`)
		})
		c.until(crds+"/cases."+group, func(o object) bool {
			status, _ := o["status"].(object)
			names, _ := status["acceptedNames"].(object)
			return names["shortNames"] != nil
		})
		c.bare(c.silentGet(crds + "/cases." + group))
	}},
}

func (c *client) silentGet(path string) (r response) {
	c.t.Helper()
	c.silently(func() { r = c.get(200, path) })
	return r
}

func (c *client) silentDelete(path string) (r response) {
	c.t.Helper()
	c.silently(func() { r = c.delete(200, path, "") })
	return r
}

// bare adds a definition to the transcript without what depends on when its controllers have seen it.
func (c *client) bare(r response) {
	m := object{}
	for k, v := range meta(r.body) {
		if k != "resourceVersion" && k != "managedFields" {
			m[k] = v
		}
	}
	shown := object{}
	maps.Copy(shown, r.body)
	shown["metadata"] = m
	c.note("definition", response{body: shown})
}

// discoveryRows are about what tells which kinds are served.
var discoveryRows = []row{
	{"the resources of a group-version", func(c *client) {
		c.note("v1", response{body: c.resources("/apis/truth.example.com/v1")})
		c.note("v1beta1", response{body: c.resources("/apis/truth.example.com/v1beta1")})
		c.get(404, "/apis/truth.example.com/v2")
		c.get(404, "/apis/nobody.example.com/v1")
		c.get(404, "/apis/nobody.example.com")
	}},
	{"the versions of a group", func(c *client) {
		c.get(200, "/apis/truth.example.com")
		c.get(200, "/apis/apiextensions.k8s.io")
		c.get(200, "/apis/events.k8s.io")
	}},
	{"the core group", func(c *client) {
		r := c.silentGet("/api")
		c.note("api", response{body: object{"kind": r.body["kind"], "versions": r.body["versions"]}})
		list := c.resources("/api/v1")
		known := object{}
		for name, resource := range list {
			switch name {
			case "configmaps", "secrets", "namespaces", "namespaces/status", "events":
				known[name] = resource
			}
		}
		c.note("v1", response{body: known})
	}},
	{"the group of definitions", func(c *client) {
		c.note("v1", response{body: c.resources("/apis/apiextensions.k8s.io/v1")})
	}},
	{"all groups", func(c *client) {
		r := c.silentGet("/apis")
		groups, _ := r.body["groups"].([]any)
		for _, g := range groups {
			if described := g.(object); described["name"] == "truth.example.com" {
				c.note("group", response{body: described})
			}
		}
	}},
	{"a definition is discovered", func(c *client) {
		group := "discovered.truth.example.com"
		c.define(definition(group, "Case", "Namespaced", version("v1beta1", true, false, "", openSchema), version("v2", true, false, "", openSchema),
			version("v1", true, true, "status", openSchema), version("v3", false, false, "", openSchema)), in(group+"/v1", "cases"))
		c.settle(200, "/apis/"+group+"/v2")
		c.get(200, "/apis/"+group)
		c.note("v1", response{body: c.resources("/apis/" + group + "/v1")})
		c.get(404, "/apis/"+group+"/v3")
		c.silentDelete(crds + "/cases." + group)
		c.settle(404, "/apis/"+group)
		c.get(404, "/apis/"+group+"/v1")
	}},
	{"the OpenAPI document of a custom group-version", func(c *client) {
		c.until("/openapi/v3/apis/truth.example.com/v1", func(o object) bool { return o["components"] != nil })
		r := c.silentGet("/openapi/v3/apis/truth.example.com/v1")
		schemas := r.body["components"].(object)["schemas"].(object)
		c.note("Thing", response{body: described(schemas["com.example.truth.v1.Thing"].(object)).(object)})
		c.note("Plain", response{body: described(schemas["com.example.truth.v1.Plain"].(object)).(object)})
		c.get(404, "/openapi/v3/apis/nobody.example.com/v1")
	}},
}

// resources returns the resources of a group-version by name.
func (c *client) resources(path string) object {
	c.t.Helper()
	r := c.silentGet(path)
	list, _ := r.body["resources"].([]any)
	byName := object{}
	for _, e := range list {
		resource := e.(object)
		delete(resource, "storageVersionHash")
		byName[resource["name"].(string)] = resource
	}
	return byName
}

// described is a schema without descriptions, but for those of definitions.
func described(v any) any {
	switch v := v.(type) {
	case object:
		o := object{}
		for k, inner := range v {
			if k != "description" {
				o[k] = described(inner)
			}
		}
		return o
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = described(v[i])
		}
		return list
	}
	return v
}
