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
	"testing"

	"github.com/google/go-cmp/cmp"

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
			reason: "What is there already, or is gone already, is not sent.", object: full,
			changes: Changes{
				Labels: map[string]*string{"l": new("1"), "absent": nil}, Status: map[string]any{"n": int64(1)}, DropFinalizer: "absent",
			},
			want: `[]`,
		},
		"NoMapYet": {
			reason: "The map is made with its first key; a pointer cannot lead into a map that is not there.", object: bare,
			changes: Changes{Labels: map[string]*string{"a": nil, "b": new(""), "c": new("1")}},
			want:    `[{"op":"add","path":"/metadata/labels","value":{"b":""}},{"op":"add","path":"/metadata/labels/c","value":"1"}]`,
		},
		"EmptyMap": {
			reason: "An empty map is as good as none.", object: full,
			changes: Changes{Annotations: map[string]*string{"a": new("1")}},
			want:    `[{"op":"add","path":"/metadata/annotations","value":{"a":"1"}}]`,
		},
		"Escapes": {
			reason: "Slash and tilde have a meaning in pointers.", object: full,
			changes: Changes{Labels: map[string]*string{"x/y~z": nil, "l": new("2")}},
			want:    `[{"op":"add","path":"/metadata/labels/l","value":"2"},{"op":"remove","path":"/metadata/labels/x~1y~0z"}]`,
		},
		"FinalizerAndStatus": {
			reason: "The finalizers of others stay; a status is replaced as a whole, by an empty one too.", object: full,
			changes: Changes{Status: map[string]any{}, DropFinalizer: "ours"},
			want:    `[{"op":"add","path":"/metadata/finalizers","value":["theirs"]},{"op":"add","path":"/status","value":{}}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := object.Parse([]byte(tc.object), object.ParseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			operations, err := tc.changes.operations(o)
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
