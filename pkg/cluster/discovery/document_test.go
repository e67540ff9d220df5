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

package discovery

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func documentOf(list string) []byte {
	return fmt.Appendf(nil, `{"components":{"schemas":{"Thing":{"properties":{"metadata":{},"list":{"x-kubernetes-list-type":%q}},
		"x-kubernetes-group-version-kind":[{"kind":"Thing"}]}}}}`, list)
}

func TestADocumentIsDecodedOnceWhileItIsUsed(t *testing.T) {
	d := documents{known: map[[sha256.Size]byte]weak.Pointer[document]{}}
	decode := func(list string) *Schema {
		kinds, err := d.schemas(documentOf(list))
		if err != nil {
			t.Fatal(err)
		}
		if kinds["Thing"] == nil || kinds["Thing"].node.Properties["list"].ListType != list {
			t.Fatalf("decoded %+v, want a list of type %s", kinds, list)
		}
		return kinds["Thing"]
	}
	first, other := decode("map"), decode("set")
	if again := decode("map"); again.document != first.document {
		t.Error("the same document is decoded twice")
	}
	if other.document == first.document {
		t.Error("different documents are taken for the same one")
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(other)
	runtime.GC()
	if kept := decode("atomic"); len(d.known) != 1 {
		t.Errorf("%d documents are remembered, of which one is used", len(d.known))
	} else {
		runtime.KeepAlive(kept)
	}
	if _, err := d.schemas([]byte("{")); err == nil {
		t.Error("half a document is decoded")
	}
}

func TestWhereKindsComeFrom(t *testing.T) {
	example := schema.GroupVersion{Group: "example.com", Version: "v1"}
	for name, tc := range map[string]struct {
		reason  string
		label   string
		version schema.GroupVersion
		want    Origin
	}{
		"Custom":     {"kube-apiserver makes the APIService with the definition.", "true", example, Custom},
		"BuiltIn":    {"Kubernetes' own groups may have a dot.", "onstart", example, BuiltIn},
		"Aggregated": {"Somebody else has made the APIService.", "", example, Aggregated},
		"Absent":     {"It may be in no list yet.", "true", schema.GroupVersion{Group: "other.example.com", Version: "v1"}, Unknown},
		"Core":       {"No definition can have such a group.", "", schema.GroupVersion{Version: "v1"}, BuiltIn},
		"Apps":       {"No definition can have such a group.", "", schema.GroupVersion{Group: "apps", Version: "v1"}, BuiltIn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: tc.label}
				if got := q.run(t).Origin(tc.version); got != tc.want {
					t.Errorf("%s got %d, want %d", tc.reason, got, tc.want)
				}
			})
		})
	}
	if got := (&Discovery{}).Origin(example); got != Unknown {
		t.Errorf("without a watch of APIServices the origin is %d, want unknown", got)
	}
}
