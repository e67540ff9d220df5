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

package manager

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

const (
	things = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list","patch"]}]}`
	thingList = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[
{"metadata":{"name":"a","namespace":"ns","uid":"ua","resourceVersion":"1","finalizers":["other","f"]}},
{"metadata":{"name":"b","namespace":"ns","uid":"ub","resourceVersion":"2","finalizers":["other"]}},
{"metadata":{"name":"c","namespace":"ns","uid":"uc","resourceVersion":"3","finalizers":["f"]}}]}`
	notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
)

// serveCluster serves paths with bodies; all else is not found. It returns what was written.
func serveCluster(t *testing.T, paths map[string]string) (*cluster.Cluster, *[]string) {
	t.Helper()
	var written []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			written = append(written, strings.TrimPrefix(r.Header.Get("Impersonate-User")+" ", " ")+r.URL.Path+" "+string(body))
		}
		body, ok := paths[r.URL.Path]
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			body = notFound
		case body == "":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	window, err := cluster.New(cluster.Options{Config: &rest.Config{Host: server.URL, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return window, &written
}

func TestFinalizedParentsAreFoundInAnyVersion(t *testing.T) {
	const versions = `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/v2","version":"v2"},{"groupVersion":"example.com/v1","version":"v1"}]}`
	for name, tc := range map[string]struct {
		paths map[string]string
		want  []string
		err   string
	}{
		"another version": {
			paths: map[string]string{
				"/apis/example.com": versions, "/apis/example.com/v1": things, "/apis/example.com/v1/things": thingList,
				"/apis/example.com/v2": `{"kind":"APIResourceList","groupVersion":"example.com/v2","resources":[]}`,
			},
			want: []string{"things.example.com/ns/a", "things.example.com/ns/c"},
		},
		"no group": {},
		"no such resource": {paths: map[string]string{
			"/apis/example.com": versions, "/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[]}`,
		}},
		"a version that is not available": {
			paths: map[string]string{
				"/apis/example.com": versions, "/apis/example.com/v2": "", "/apis/example.com/v1": things, "/apis/example.com/v1/things": thingList,
			},
			want: []string{"things.example.com/ns/a", "things.example.com/ns/c"},
		},
		"possibly in a version that is not available": {
			paths: map[string]string{"/apis/example.com": versions, "/apis/example.com/v2": ""}, err: "example.com/v2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serveCluster(t, tc.paths)
			list, err := finalizedParents(t.Context(), p, schema.GroupResource{Group: "example.com", Resource: "things"}, reconciler.Definition{Finalizer: "f"})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("the error is %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range list {
				got = append(got, o.Key.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestReleaseTakesOneFinalizerOff(t *testing.T) {
	p, written := serveCluster(t, map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`, "/api/v1": strings.ReplaceAll(things, "example.com/v1", "v1"),
		"/api/v1/things": thingList, "/api/v1/namespaces/ns/things/a": `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"ua"}}`,
	})
	list, err := finalizedParents(t.Context(), p, schema.GroupResource{Resource: "things"}, reconciler.Definition{Finalizer: "f"})
	if err != nil || len(list) != 2 {
		t.Fatalf("got %v, %v", list, err)
	}
	for _, o := range list { // The second one is gone.
		if err := o.Release(t.Context()); err != nil {
			t.Errorf("releasing %s: %v", o.Key, err)
		}
	}
	want := []string{
		`/api/v1/namespaces/ns/things/a {"metadata":{"finalizers":["other"],"resourceVersion":"1","uid":"ua"}}`,
		`/api/v1/namespaces/ns/things/c {"metadata":{"finalizers":[],"resourceVersion":"3","uid":"uc"}}`,
	}
	if !slices.Equal(*written, want) {
		t.Errorf("got  %q\nwant %q", *written, want)
	}
}

// A finalizer is taken off by the account of the latest definition, which may be another one than that which put it there.
func TestFinalizersAreReleasedByTheServiceAccount(t *testing.T) {
	p, written := serveCluster(t, map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`, "/api/v1": strings.ReplaceAll(things, "example.com/v1", "v1"),
		"/api/v1/things": thingList, "/api/v1/namespaces/ns/things/a": `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"ua"}}`,
	})
	d := reconciler.Definition{Finalizer: "f", Account: &rights.Account{Namespace: "team", Name: "alice"}}
	list, err := finalizedParents(t.Context(), p, schema.GroupResource{Resource: "things"}, d)
	if err != nil || len(list) == 0 {
		t.Fatalf("got %v, %v", list, err)
	}
	if err := list[0].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = `system:serviceaccount:team:alice /api/v1/namespaces/ns/things/a {"metadata":{"finalizers":["other"],"resourceVersion":"1","uid":"ua"}}`
	if !slices.Equal(*written, []string{want}) {
		t.Errorf("got  %q\nwant %q", *written, want)
	}
}
