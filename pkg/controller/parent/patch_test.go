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

package parent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestChangesAreTheLeastOperations(t *testing.T) {
	const bare = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","uid":"u","resourceVersion":"1"}}`
	const full = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","uid":"u","resourceVersion":"1",` +
		`"labels":{"l":"1","x/y~z":"2"},"annotations":{},"finalizers":["ours","theirs"]},"status":{"n":1}}`
	cases := map[string]struct {
		reason  string
		object  string
		changes Changes
		want    string
	}{
		"Nothing": {
			reason: "A response that mentions nothing changes nothing.", object: full, want: `[]`,
		},
		"Same": {
			reason: "What is so already is not sent.", object: full,
			changes: Changes{
				Labels: map[string]*string{"l": new("1"), "absent": nil}, Status: map[string]any{"n": int64(1)}, DropFinalizer: "absent",
			},
			want: `[]`,
		},
		"SameNumber": {
			reason: "A number that a hook writes as 1.0 is stored as 1.", object: full,
			changes: Changes{Status: map[string]any{"n": float64(1)}}, want: `[]`,
		},
		"NoMapYet": {
			reason: "The map is made with its first key.", object: bare,
			changes: Changes{Labels: map[string]*string{"a": nil, "b": new(""), "c": new("1")}},
			want:    `[{"op":"add","path":"/metadata/labels","value":{"b":"","c":"1"}}]`,
		},
		"EmptyMap": {
			reason: "An empty map is as good as none.", object: full,
			changes: Changes{Annotations: map[string]*string{"a": new("1")}},
			want:    `[{"op":"add","path":"/metadata/annotations","value":{"a":"1"}}]`,
		},
		"OthersStay": {
			reason: "A map is sent with the keys that are not mentioned.", object: full,
			changes: Changes{Labels: map[string]*string{"x/y~z": nil, "m": new("2")}},
			want:    `[{"op":"add","path":"/metadata/labels","value":{"l":"1","m":"2"}}]`,
		},
		"LastKey": {
			reason: "Without its last key a map is empty.", object: full,
			changes: Changes{Labels: map[string]*string{"x/y~z": nil, "l": nil}},
			want:    `[{"op":"add","path":"/metadata/labels","value":{}}]`,
		},
		"FinalizerAndStatus": {
			reason: "The finalizers of others stay; a status is replaced as a whole, by an empty one too.", object: full,
			changes: Changes{Status: map[string]any{}, DropFinalizer: "ours"},
			want:    `[{"op":"add","path":"/metadata/finalizers","value":["theirs"]},{"op":"add","path":"/status","value":{}}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			operations, err := tc.changes.operations(parse(t, tc.object))
			if err != nil {
				t.Fatalf("%s\nunexpected error: %v", tc.reason, err)
			}
			got, err := json.Marshal(append([]operation{}, operations...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAMapThatWasRemovedMeanwhileIsAConflict has an API server that patches before it compares versions, as the real one does.
func TestAMapThatWasRemovedMeanwhileIsAConflict(t *testing.T) {
	seen := `{"metadata":{"name":"a","uid":"u","resourceVersion":"1","labels":{"l":"1"},"annotations":{"a":"1"},"finalizers":["ours"]}}`
	now := map[string]any{"metadata": map[string]any{"name": "a", "uid": "u", "resourceVersion": "2"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var operations []operation
		if err := json.NewDecoder(r.Body).Decode(&operations); err != nil {
			t.Error(err)
		}
		code := http.StatusConflict
		for _, o := range operations {
			steps := strings.Split(o.Path, "/")[1:]
			var at any = now
			for _, step := range steps[:len(steps)-1] {
				parent, _ := at.(map[string]any)
				at = parent[step]
			}
			parent, ok := at.(map[string]any)
			if _, has := parent[steps[len(steps)-1]]; !ok || o.Op != "add" && !has {
				code = http.StatusUnprocessableEntity
			}
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	api, err := client.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	o := parse(t, seen)
	target := client.Target{Resource: schema.GroupVersionResource{Version: "v1", Resource: "things"}, Name: "a"}
	status := map[string]any{"n": 1}
	for name, write := range map[string]func() (*object.Object, error){
		"a label removed": func() (*object.Object, error) {
			return Changes{Labels: map[string]*string{"l": nil}}.Write(t.Context(), api, target, o)
		},
		"a label set": func() (*object.Object, error) {
			return Changes{Labels: map[string]*string{"m": new("1")}}.Write(t.Context(), api, target, o)
		},
		"an annotation changed": func() (*object.Object, error) {
			return Changes{Annotations: map[string]*string{"a": new("2")}}.Write(t.Context(), api, target, o)
		},
		"a finalizer": func() (*object.Object, error) {
			return Changes{DropFinalizer: "ours"}.Write(t.Context(), api, target, o)
		},
		"a status": func() (*object.Object, error) { return Changes{Status: status}.Write(t.Context(), api, target, o) },
		"a status by itself": func() (*object.Object, error) {
			at := target
			at.Subresource = "status"
			return Changes{Status: status}.Write(t.Context(), api, at, o)
		},
	} {
		if _, err := write(); !apierrors.IsConflict(err) {
			t.Errorf("%s: got %v, want a conflict", name, err)
		}
	}
}
