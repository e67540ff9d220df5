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

package apiserver_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

const benchDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
"spec":{"group":"example.com","names":{"kind":"Thing","plural":"things"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,
"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
"replicas":{"type":"integer","default":1},"values":{"type":"object","additionalProperties":{"type":"string"}},
"items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],
"properties":{"name":{"type":"string"},"value":{"type":"string"}}}}}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

const benchThings = "/apis/example.com/v1/namespaces/default/things"

func newServer(tb testing.TB) *apiserver.Server {
	tb.Helper()
	s := apiserver.New(apiserver.Options{Now: func() time.Time { return time.Unix(1700000000, 0) }})
	send(tb, s, 201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", benchDefinition)
	return s
}

func send(tb testing.TB, s *apiserver.Server, code int, method, path, contentType, body string) apiserver.Response {
	tb.Helper()
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		tb.Fatal(err)
	}
	r := s.Do(apiserver.Request{
		User: "admin", UserAgent: "test/1", Method: method, Path: path, Query: values, ContentType: contentType, Body: []byte(body),
	})
	if r.Code != code {
		tb.Fatalf("%s %s: %d %s", method, path, r.Code, r.Body)
	}
	return r
}

// benchObject returns a custom resource of a KiB.
func benchObject(name string, replicas int) string {
	var values []string
	for i := range 10 {
		values = append(values, fmt.Sprintf(`"key%d":%q`, i, strings.Repeat("x", 60)))
	}
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%q,"labels":{"app":"x","other":"y"}},"spec":{"replicas":%d,"values":{%s},"items":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}}`,
		name, replicas, strings.Join(values, ","))
}

func BenchmarkNew(b *testing.B) {
	newServer(b)
	b.ReportAllocs()
	for b.Loop() {
		newServer(b)
	}
}

func BenchmarkCreate(b *testing.B) {
	s := newServer(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		send(b, s, 201, "POST", benchThings, "application/json", benchObject(fmt.Sprintf("a%d", n), 1))
		if n%1000 == 0 {
			s = newServer(b)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	s := newServer(b)
	r := send(b, s, 201, "POST", benchThings, "application/json", benchObject("a", 1))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		body := strings.Replace(string(r.Body), `"replicas":`, fmt.Sprintf(`"replicas":%d`, n%7+1), 1)
		r = send(b, s, 200, "PUT", benchThings+"/a", "application/json", body)
		r.Body = []byte(strings.Replace(string(r.Body), fmt.Sprintf(`"replicas":%d`, n%7+1), `"replicas":`, 1))
		if n%1000 == 0 {
			s = newServer(b)
			r = send(b, s, 201, "POST", benchThings, "application/json", benchObject("a", 1))
		}
	}
}

func BenchmarkMergePatch(b *testing.B) {
	s := newServer(b)
	send(b, s, 201, "POST", benchThings, "application/json", benchObject("a", 1))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		send(b, s, 200, "PATCH", benchThings+"/a", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))
	}
}

func BenchmarkApply(b *testing.B) {
	s := newServer(b)
	b.ReportAllocs()
	n := 0
	code := 201
	for b.Loop() {
		n++
		send(b, s, code, "PATCH", benchThings+"/a?fieldManager=m&force=true", "application/apply-patch+yaml", benchObject("a", n))
		code = 200
	}
}

func BenchmarkConfigMapPatch(b *testing.B) {
	s := newServer(b)
	path := "/api/v1/namespaces/default/configmaps"
	send(b, s, 201, "POST", path, "application/json", fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"x":%q}}`, strings.Repeat("x", 900)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		send(b, s, 200, "PATCH", path+"/a", "application/merge-patch+json", fmt.Sprintf(`{"data":{"y":"%d"}}`, n))
	}
}

func BenchmarkGet(b *testing.B) {
	s := newServer(b)
	send(b, s, 201, "POST", benchThings, "application/json", benchObject("a", 1))
	b.ReportAllocs()
	for b.Loop() {
		send(b, s, 200, "GET", benchThings+"/a", "", "")
	}
}

func BenchmarkStatus(b *testing.B) {
	s := newServer(b)
	path := "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"
	send(b, s, 201, "POST", path, "application/json", `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"a"},
		"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"things"},"hooks":{"sync":{"webhook":{"url":"http://x"}}}}}`)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		send(b, s, 200, "PATCH", path+"/a/status?fieldManager=m&force=true", "application/apply-patch+yaml",
			fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"a"},"status":{"observedGeneration":%d}}`, n))
	}
}
