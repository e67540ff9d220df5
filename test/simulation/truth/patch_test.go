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
	{"a strategic merge patch", func(c *client) {
		c.post(201, configMaps, configMap("a", `{"a":"1","b":"2"}`))
		c.patch(200, strategicType, configMaps+"/a", `{"data":{"a":null,"c":"3"},"metadata":{"finalizers":["truth.example.com/f"]}}`)
		c.patch(200, strategicType, configMaps+"/a", `{"metadata":{"finalizers":["truth.example.com/g"]}}`)
		c.patch(200, strategicType, configMaps+"/a", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["truth.example.com/f","truth.example.com/g"]}}`)
	}},
	{"a strategic merge patch of owners goes by UID", func(c *client) {
		c.post(201, configMaps, `{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"nobody.example.com/v1","kind":"Nobody","name":"x","uid":"u"}],"finalizers":["truth.example.com/f"]}}`)
		c.patch(200, strategicType, configMaps+"/a", `{"metadata":{"ownerReferences":[{"apiVersion":"nobody.example.com/v1","kind":"Nobody","name":"y","uid":"v"}]}}`)
		c.patch(200, strategicType, configMaps+"/a", `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u"}]}}`)
		c.patch(200, mergeType, configMaps+"/a", `{"metadata":{"finalizers":null}}`)
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
