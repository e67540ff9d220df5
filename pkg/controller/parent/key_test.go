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
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKeysNameParents(t *testing.T) {
	foos := schema.GroupResource{Group: "example.com", Resource: "foos"}
	key := KeyOf(foos, parse(t, `{"apiVersion":"v1","kind":"Foo","metadata":{"namespace":"ns","name":"a"}}`))
	if key != NewKey(foos, "ns", "a") || key.Resource() != foos || key.Namespace != "ns" || key.Name != "a" {
		t.Errorf("got %v", key)
	}
	if text := key.String(); text != "foos.example.com/ns/a" {
		t.Errorf("as a text: %s", text)
	}
	for _, other := range []Key{
		NewKey(schema.GroupResource{Resource: "foos"}, "ns", "a"), NewKey(foos, "", "a"), NewKey(foos, "ns", "b"), {},
	} {
		if key == other {
			t.Errorf("%v is the same as %v", other, key)
		}
	}
	if none := NewKey(schema.GroupResource{}, "", "a"); none != (Key{Name: "a"}) || none.Resource() != (schema.GroupResource{}) {
		t.Errorf("without a resource: %v", none)
	}
}

func TestAKeyIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Key{}); size > 40 {
		t.Errorf("a key has %d bytes; each mechanism has one for every parent of which it remembers something", size)
	}
}
