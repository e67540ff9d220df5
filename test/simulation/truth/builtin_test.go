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
		c.post(201, namespaces, `{"metadata":{"name":"$ns-a","labels":{"l":"1"}},"spec":{"finalizers":["x"]},"status":{"phase":"Odd"}}`)
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
