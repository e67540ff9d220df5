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
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

// maxTopics is how many topics of one parent are remembered beside those of one sync. Beyond that all of them are reported once more.
const maxTopics = 256

// memory is what is remembered of each parent from one sync to the next. The zero value is ready. It is safe for concurrent use; one parent is
// used by one goroutine at a time.
type memory struct {
	mu      sync.Mutex
	parents map[types.UID]remembered
	// counts are those of all parents.
	counts struct{ parents, records, told, stale int }
}

// remembered is what is remembered of one parent.
type remembered struct {
	// records are those of its children.
	records plan.Records
	// told are the topics of what it was told that is told once.
	told map[plan.Hash]struct{}
	// stale counts the syncs in a row that found its children not as observed.
	stale int32
}

// of returns what is remembered of a parent.
func (m *memory) of(parent types.UID) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parents[parent]
}

// change changes what is remembered of a parent. Nothing is kept of one of which that is nothing.
func (m *memory) change(parent types.UID, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.parents[parent]
	m.count(known, -1)
	change(&known)
	m.count(known, 1)
	if len(known.records)+len(known.told) == 0 && known.stale == 0 {
		delete(m.parents, parent)
		return
	}
	if m.parents == nil {
		m.parents = map[types.UID]remembered{}
	}
	m.parents[types.UID(strings.Clone(string(parent)))] = known // The UID may be a part of an object's JSON.
}

// count is called with the lock held.
func (m *memory) count(known remembered, by int) {
	m.counts.parents += by * min(len(known.records), 1)
	m.counts.records += by * len(known.records)
	m.counts.told += by * min(len(known.told), 1)
	m.counts.stale += by * min(int(known.stale), 1)
}

// commit replaces the records of a parent's children.
func (m *memory) commit(parent types.UID, records plan.Records) {
	m.change(parent, func(known *remembered) { known.records = records })
}

// synced replaces the records after a sync, which found the children not as observed if stale. It returns how many syncs in a row did.
func (m *memory) synced(parent types.UID, records plan.Records, stale bool) (inARow int) {
	m.change(parent, func(known *remembered) {
		known.records = records
		if known.stale++; !stale {
			known.stale = 0
		}
		inARow = int(known.stale)
	})
	return inARow
}

// told reports whether a parent was told of a topic.
func (m *memory) told(parent types.UID, topic string) bool {
	_, ok := m.of(parent).told[plan.HashText(topic)]
	return ok
}

// tell notes that a parent was told of a topic, and reports whether it was not before. A sync may have a number of such topics.
func (m *memory) tell(parent types.UID, topic string, most int) bool {
	if m.told(parent, topic) {
		return false
	}
	m.change(parent, func(known *remembered) {
		if known.told == nil || len(known.told) >= maxTopics+most {
			known.told = map[plan.Hash]struct{}{}
		}
		known.told[plan.HashText(topic)] = struct{}{}
	})
	return true
}

// forget drops what is remembered of a parent that is gone.
func (m *memory) forget(parent types.UID) {
	m.change(parent, func(known *remembered) { *known = remembered{} })
}

// sizes returns the number of parents with records of children, that of these records, and that of parents of which anything else is remembered.
func (m *memory) sizes() (parents, records, others int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts.parents, m.counts.records, m.counts.told + m.counts.stale
}
