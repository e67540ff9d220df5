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
	"net/url"
	"strings"
)

const (
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	metadataOne  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

// several makes some Things with labels.
func several(c *client) {
	for i, name := range []string{"a", "b", "c", "d"} {
		c.post(201, things, fmt.Sprintf(`{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":%q,"labels":{"n":%q,"even":"%t"}},"spec":{}}`, name, name, i%2 == 1))
	}
}

// readRows are about reading and listing objects.
var readRows = []row{
	{"lists are sorted and have versions", func(c *client) {
		several(c)
		c.list(things)
		c.list(things + "?resourceVersion=0")
	}},
	{"an empty list", func(c *client) { c.list(things) }},
	{"a list of config maps has items without kind", func(c *client) {
		c.post(201, configMaps, `{"metadata":{"name":"a","labels":{"l":"1"}}}`)
		c.list(configMaps + "?labelSelector=l")
	}},
	{"label selectors", func(c *client) {
		several(c)
		for _, selector := range []string{"n=a", "n!=a", "n in (a,b)", "n notin (a,b)", "even=true,n!=b", "!n", "odd"} {
			c.list(things + "?labelSelector=" + url.QueryEscape(selector))
		}
		c.get(400, things+"?labelSelector="+url.QueryEscape("a b"))
	}},
	{"field selectors", func(c *client) {
		several(c)
		c.list(things + "?fieldSelector=metadata.name%3Db")
		c.list(things + "?fieldSelector=metadata.name%21%3Db%2Cmetadata.namespace%3D$ns")
		c.get(400, things+"?fieldSelector=spec.replicas%3D1")
		c.post(201, configMaps, configMap("a", `{}`))
		c.list(configMaps + "?fieldSelector=metadata.name%3Da")
		c.get(400, configMaps+"?fieldSelector=data.a%3D1")
	}},
	{"a list at a version in the future", func(c *client) {
		c.silently(func() {
			c.want(504, c.send("GET", things+"?resourceVersion=99999999999&resourceVersionMatch=NotOlderThan", "", ""))
		})
	}},
	{"a list at a version", func(c *client) {
		r := c.post(201, things, thing("a", `{}`))
		c.post(201, things, thing("b", `{}`))
		c.silently(func() {
			listed := c.get(200, things+"?resourceVersionMatch=NotOlderThan&resourceVersion="+r.metadata("resourceVersion"))
			if items := listed.body["items"].([]any); len(items) != 2 {
				c.t.Errorf("got %d objects", len(items))
			}
		})
	}},
	{"a list at a bad version", func(c *client) { c.get(400, things+"?resourceVersion=odd") }},
	{"the metadata alone", func(c *client) {
		c.post(201, things, thing("a", `{"replicas":2}`))
		c.accept = metadataList
		c.list(things)
		c.accept = metadataOne
		c.get(200, things+"/a")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
	}},
	{"a list of all namespaces", func(c *client) {
		c.post(201, things, `{"apiVersion":"truth.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"all":"$ns"}},"spec":{}}`)
		c.list("/apis/truth.example.com/v1/things?labelSelector=all%3D$ns")
		c.get(404, "/apis/truth.example.com/v1/things/a")
	}},
	{"the status endpoint can be read", func(c *client) {
		c.post(201, things, thing("a", `{}`))
		c.get(200, things+"/a/status")
		c.get(404, things+"/b/status")
	}},
}

// list reads a list, whose version is not compared: other rows write at the same time.
func (c *client) list(path string) response {
	c.t.Helper()
	var r response
	c.silently(func() { r = c.get(200, path) })
	m, _ := r.body["metadata"].(object)
	if version, _ := m["resourceVersion"].(string); version == "" {
		c.t.Errorf("the list has no version: %s", r.raw)
	}
	shown := object{}
	maps.Copy(shown, r.body)
	rest := object{}
	for k, v := range m {
		if k != "resourceVersion" {
			rest[k] = v
		}
	}
	shown["metadata"] = rest
	c.note("list "+path, response{body: shown})
	return r
}

// watchRows are about watches.
var watchRows = []row{
	{"a watch tells changes", func(c *client) {
		r := c.list(things)
		w := c.watch(things, query("resourceVersion", r.metadata("resourceVersion")))
		c.post(201, things, thing("a", `{}`))
		w.next("ADDED")
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`)
		w.next("MODIFIED")
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`) // Nothing changes: there is no event.
		c.patch(200, mergeType, things+"/a/status", `{"status":{"phase":"Ready"}}`)
		w.next("MODIFIED")
		c.delete(200, things+"/a", "")
		w.next("DELETED")
	}},
	{"a watch begins in the past", func(c *client) {
		r := c.list(things)
		several(c)
		c.delete(200, things+"/b", "")
		w := c.watch(things, query("resourceVersion", r.metadata("resourceVersion")))
		for range 4 {
			w.next("ADDED")
		}
		w.next("DELETED")
	}},
	{"a watch without version tells what exists", func(c *client) {
		several(c)
		for _, version := range []string{"", "0"} {
			w := c.watch(things, query("resourceVersion", version))
			for range 4 {
				w.next("ADDED")
			}
			c.post(201, things, thing("e"+version, `{}`))
			w.next("ADDED")
			c.delete(200, things+"/e"+version, "")
			w.next("DELETED")
		}
	}},
	{"a list as a watch", func(c *client) {
		several(c)
		w := c.watch(things, query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"))
		for range 4 {
			w.next("ADDED")
		}
		w.bookmark()
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`)
		w.next("MODIFIED")
	}},
	{"a list of metadata as a watch", func(c *client) {
		several(c)
		c.accept = metadataOne
		w := c.watch(things, query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true", "labelSelector", "even=true"))
		w.next("ADDED")
		w.next("ADDED")
		w.bookmark()
		c.delete(200, things+"/b", "")
		w.next("DELETED")
	}},
	{"a list of config maps as a watch", func(c *client) {
		c.post(201, configMaps, configMap("a", `{"k":"v"}`))
		w := c.watch(configMaps, query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true", "fieldSelector", "metadata.name=a"))
		w.next("ADDED")
		w.bookmark()
		c.patch(200, mergeType, configMaps+"/a", `{"data":{"k":"w"}}`)
		w.next("MODIFIED")
	}},
	{"an empty list as a watch", func(c *client) {
		w := c.watch(things, query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true", "resourceVersion", "0"))
		w.bookmark()
	}},
	{"parameters of watches that do not fit", func(c *client) {
		c.get(422, things+"?watch=true&sendInitialEvents=true")
		c.get(422, things+"?watch=true&resourceVersionMatch=NotOlderThan")
		c.get(422, things+"?watch=true&sendInitialEvents=true&resourceVersionMatch=Exact")
		c.get(422, things+"?sendInitialEvents=true")
	}},
	{"an object enters and leaves a selection", func(c *client) {
		r := c.list(things)
		w := c.watch(things, query("resourceVersion", r.metadata("resourceVersion"), "labelSelector", "l=1"))
		c.post(201, things, thing("a", `{}`))
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		w.next("ADDED")
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":2}}`)
		w.next("MODIFIED")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"2"}},"spec":{"replicas":3}}`)
		w.next("DELETED")
		c.patch(200, mergeType, things+"/a", `{"spec":{"replicas":4}}`)
		c.patch(200, mergeType, things+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		w.next("ADDED")
		c.delete(200, things+"/a", "")
		w.next("DELETED")
	}},
	{"a watch of one object", func(c *client) {
		r := c.list(things)
		w := c.watch(things, query("resourceVersion", r.metadata("resourceVersion"), "fieldSelector", "metadata.name=b"))
		several(c)
		w.next("ADDED")
		c.delete(200, things+"/a", "")
		c.delete(200, things+"/b", "")
		w.next("DELETED")
	}},
	{"the deletion of what waits for finalizers is two events", func(c *client) {
		c.post(201, things, finalized("a", "Thing", "truth.example.com/f"))
		w := c.watch(things, query("resourceVersion", "0"))
		w.next("ADDED")
		c.delete(200, things+"/a", "")
		w.next("MODIFIED")
		c.patch(200, mergeType, things+"/a", `{"metadata":{"finalizers":null,"labels":{"l":"last"}}}`)
		w.next("DELETED")
	}},
	{"a watch from a version that is too old", func(c *client) {
		several(c)
		c.forget()
		w := c.watch(things, query("resourceVersion", "1"))
		c.silently(func() {
			failed := w.next("ERROR")
			if failed["reason"] != "Expired" || fmt.Sprint(failed["code"]) != "410" || !strings.HasPrefix(fmt.Sprint(failed["message"]), "too old resource version: 1 (") {
				c.t.Errorf("got %v", failed)
			}
		})
		w.ended()
	}},
	{"a watch from a bad version", func(c *client) { c.get(500, things+"?watch=true&resourceVersion=odd") }},
	{"a watch ends at its time", func(c *client) {
		w := c.watch(things, query("timeoutSeconds", "1"))
		w.ended()
	}},
	{"a dry run makes no event", func(c *client) {
		r := c.list(things)
		w := c.watch(things, query("resourceVersion", r.metadata("resourceVersion")))
		c.post(201, things+"?dryRun=All", thing("a", `{}`))
		c.post(201, things, thing("b", `{}`))
		w.next("ADDED")
	}},
}
