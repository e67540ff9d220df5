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

package reconciler

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

func TestProgressOfParents(t *testing.T) {
	key := func(name string) parent.Key {
		return parent.NewKey(schema.GroupResource{Resource: "things"}, "ns", name)
	}
	var p parents
	for _, name := range []string{"a", "b", "c"} {
		p.add(key(name))
		p.add(key(name))
	}
	roll := func(name string, rolling bool, outdated int32) {
		p.change(p.ofSync(key(name)), func(r *record) { r.rolling, r.outdated = rolling, outdated })
	}
	for _, step := range []struct {
		reason                     string
		do                         func()
		len, unsynced, rolling, of int
	}{
		{"All wait for their first sync.", func() {}, 3, 3, 0, 0},
		{"One is synced, twice.", func() { p.synced(p.ofSync(key("a"))); p.synced(p.ofSync(key("a"))) }, 3, 2, 0, 0},
		{"One leaves before it is synced.", func() { p.remove(key("b")); p.remove(key("b")) }, 2, 1, 0, 0},
		{"One that is not there is not counted.", func() { p.synced(p.ofSync(key("b"))); roll("b", true, 3) }, 2, 1, 0, 0},
		{"Two roll.", func() { roll("a", true, 5); roll("c", true, 2) }, 2, 1, 2, 7},
		{"One is further.", func() { roll("a", true, 1) }, 2, 1, 2, 3},
		{"New ones do not count.", func() { p.add(key("d")) }, 3, 1, 2, 3},
		{"All of the start were synced.", func() { p.synced(p.ofSync(key("c"))) }, 3, 0, 2, 3},
		{"New ones do not count any more.", func() { p.remove(key("d")); p.add(key("e")) }, 3, 0, 2, 3},
		{"One is done, one leaves.", func() { roll("a", false, 0); p.remove(key("c")) }, 2, 0, 0, 0},
	} {
		step.do()
		unsynced, rolling, left := p.left()
		if got := [4]int{p.len(), unsynced, rolling, left}; got != [4]int{step.len, step.unsynced, step.rolling, step.of} {
			t.Errorf("got %v: %s", got, step.reason)
		}
	}
}
