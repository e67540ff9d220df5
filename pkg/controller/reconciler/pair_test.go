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

package reconciler_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestTwoControllersOfOneParentMissNoChange lets both write children and the parent in every sync. The events of those writes come
// late, those of the children after those of the parent, so that each controller is held back by its own expectations.
func TestTwoControllersOfOneParentMissNoChange(t *testing.T) {
	const changes = 2000
	s := newScene(t)
	s.exist(thing(t, "p", 1, "", ""))
	var children atomic.Int64
	var seen [2]atomic.Int64 // the version that the last sync of each controller saw
	writes := make(chan *object.Object, 16)
	for n := range seen {
		k := &kind{}
		k.observe = func(sync *reconciler.Sync) error {
			at, err := strconv.ParseInt(sync.Parent.ResourceVersion(), 10, 64)
			seen[n].Store(at)
			return err
		}
		k.write = func(sync *reconciler.Sync) error {
			if n == 1 {
				return nil
			}
			// The first controller writes a child and the parent; the events come from the test.
			child := widget(t, "w", 1_000_000+int(children.Add(1)), "p", "")
			sync.WroteOther(s.widgets, child)
			select {
			case writes <- child:
			default:
			}
			return sync.WriteParent(t.Context(), parent.Changes{})
		}
		s.start(k, nil)
	}
	for change := int64(2); change < changes+2; change++ {
		s.update(s.things, thing(t, "p", int(change), "", ""))
		for done := false; !done; {
			select {
			case child := <-writes:
				s.update(s.widgets, child)
			default:
				done = seen[0].Load() >= change && seen[1].Load() >= change
			}
			if !done && len(writes) == 0 {
				s.eventually("both controllers to see change "+strconv.FormatInt(change, 10), func() bool {
					return len(writes) > 0 || seen[0].Load() >= change && seen[1].Load() >= change
				})
			}
		}
	}
	t.Logf("%d changes of one parent, none missed by either of two controllers", changes)
}
