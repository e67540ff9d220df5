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

package childcontrol

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

func TestWhatIsRememberedOfParentsIsCounted(t *testing.T) {
	var m memory
	records := func(n int) func(types.UID) {
		return func(parent types.UID) { m.commit(parent, make(plan.Records, n)) }
	}
	synced := func(n int, stale bool) func(types.UID) {
		return func(parent types.UID) { m.synced(parent, make(plan.Records, n), stale) }
	}
	tell := func(parent types.UID) { m.tell(parent, "topic", 0) }
	for i, step := range []struct {
		reason                   string
		parent                   types.UID
		happens                  func(types.UID)
		parents, records, others int
	}{
		{"A parent is added.", "a", records(3), 1, 3, 0},
		{"Another one is.", "b", records(1), 2, 4, 0},
		{"The records of a parent are replaced.", "a", records(2), 2, 3, 0},
		{"The same ones change nothing.", "a", records(2), 2, 3, 0},
		{"A parent has no children any more.", "a", records(0), 1, 1, 0},
		{"A parent without records is not counted.", "a", records(0), 1, 1, 0},
		{"A parent is told something.", "a", tell, 1, 1, 1},
		{"It is told the same once.", "a", tell, 1, 1, 1},
		{"Children are not as observed.", "b", synced(1, true), 1, 1, 2},
		{"They are not again.", "b", synced(2, true), 1, 2, 2},
		{"They are.", "b", synced(2, false), 1, 2, 1},
		{"A parent goes.", "b", m.forget, 0, 0, 1},
		{"The last one does.", "a", m.forget, 0, 0, 0},
	} {
		step.happens(step.parent)
		if parents, records, others := m.sizes(); parents != step.parents || records != step.records || others != step.others {
			t.Errorf("step %d: %d, %d, %d; want %d, %d, %d: %s", i, parents, records, others, step.parents, step.records, step.others, step.reason)
		}
	}
	if len(m.parents) > 0 {
		t.Errorf("%d parents are left", len(m.parents))
	}
}
