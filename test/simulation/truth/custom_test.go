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
	"maps"
	"strings"
)

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

// thingSchema is the schema of Things in version v1.
const thingSchema = `{"type":"object","properties":{
 "spec":{"type":"object","required":["mode"],"properties":{
  "mode":{"type":"string","enum":["A","B"],"default":"A"},
  "replicas":{"type":"integer","minimum":0,"default":1},
  "name":{"type":"string","pattern":"^[a-z]+$","maxLength":8},
  "port":{"x-kubernetes-int-or-string":true},
  "tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
  "items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
   "items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"value":{"type":"string"},"weight":{"type":"integer","default":5}}}},
  "order":{"type":"array","items":{"type":"integer"},"x-kubernetes-list-type":"atomic"},
  "plain":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},
  "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
  "nested":{"type":"object","properties":{"deep":{"type":"string","default":"x"},"ratio":{"type":"number"},"on":{"type":"boolean"}}},
  "nullable":{"type":"string","nullable":true},
  "limits":{"type":"object","additionalProperties":{"type":"string"}},
  "whole":{"type":"object","additionalProperties":{"type":"string"},"x-kubernetes-map-type":"atomic"},
  "template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},
 "status":{"type":"object","properties":{"phase":{"type":"string","enum":["Ready","Failed"]},"observed":{"type":"integer"},
  "conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
   "items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"status":{"type":"string"}}}}}}}}`

// oldSchema is that of version v1beta1.
const oldSchema = `{"type":"object","properties":{
 "spec":{"type":"object","properties":{"replicas":{"type":"integer","default":2},"legacy":{"type":"string","default":"yes"},
  "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
 "status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`

const openSchema = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`

// group is that of the custom resources which rows share.
const group = "truth.example.com"

var sharedDefinitions = []string{
	definition(group, "Thing", "Namespaced",
		version("v1", true, true, "status", thingSchema), version("v1beta1", true, false, "status", oldSchema)),
	definition(group, "Plain", "Namespaced", version("v1", true, true, "", openSchema)),
	definition(group, "ClusterThing", "Cluster", version("v1", true, true, "status", openSchema)),
}

// definition returns a CustomResourceDefinition.
func definition(group, kind, scope string, versions ...string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.%[2]s"},
"spec":{"group":%[2]q,"names":{"kind":%[3]q,"plural":%[1]q},"scope":%[4]q,"versions":[%[5]s]}}`,
		plural, group, kind, scope, strings.Join(versions, ",\n"))
}

func version(name string, served, storage bool, subresource, schema string) string {
	subresources := "{}"
	if subresource != "" {
		subresources = fmt.Sprintf(`{%q:{}}`, subresource)
	}
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"subresources":%s,"schema":{"openAPIV3Schema":%s}}`, name, served, storage, subresources, schema)
}

// manifests joins JSON documents into YAML.
func manifests(documents []string) string { return strings.Join(documents, "\n---\n") }

var (
	things     = in(group+"/v1", "things")
	oldThings  = in(group+"/v1beta1", "things")
	plains     = in(group+"/v1", "plains")
	configMaps = in("v1", "configmaps")
	wholes     = "/apis/" + group + "/v1/clusterthings"
)

// thing returns a Thing with a spec.
func thing(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":%q},"spec":%s}`, group, name, spec)
}

func plain(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Plain","metadata":{"name":%q}%s}`, group, name, rest)
}

func configMap(name, data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":%s}`, name, data)
}

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
	}},
	{"the core group", func(c *client) {
		r := c.silentGet("/api")
		c.note("api", response{body: object{"kind": r.body["kind"], "versions": r.body["versions"]}})
		list := c.resources("/api/v1")
		known := object{}
		for name, resource := range list {
			switch name {
			case "configmaps", "namespaces", "namespaces/status", "events":
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
