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
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
)

// maxTopics is how many topics of one parent are remembered beside those of one sync. Beyond that all of them are reported once more.
const maxTopics = 256

// Memory is what is remembered of one parent from one sync to the next. The zero value is ready. It is safe for concurrent use; one goroutine at
// a time has what it remembers changed.
type Memory struct {
	// Held are the deletions of children that are held.
	Held loopguard.Held

	mu sync.Mutex
	// records are those of its children.
	records plan.Records
	// reported are the topics of what is reported once.
	reported map[plan.Hash]struct{}
	// stale counts the syncs in a row that found its children not as observed.
	stale int
}

// Sizes returns the number of records of children, and whether anything else is remembered.
func (m *Memory) Sizes() (records int, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records), len(m.reported) > 0 || m.stale > 0
}

// known returns the records of a parent's children, and how many syncs in a row found them not as observed.
func (m *Memory) known() (records plan.Records, stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records, m.stale
}

// keep replaces the records of a parent's children.
func (m *Memory) keep(records plan.Records) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = records
}

// synced replaces the records after a sync, which found the children not as observed if stale. It returns how many syncs in a row did.
func (m *Memory) synced(records plan.Records, stale bool) (inARow int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = records
	if m.stale++; !stale {
		m.stale = 0
	}
	return m.stale
}

// knows reports whether a topic was reported.
func (m *Memory) knows(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.reported[plan.HashText(topic)]
	return ok
}

// report notes that a topic is reported, and returns whether it was not before. A sync may have a number of such topics.
func (m *Memory) report(topic string, most int) bool {
	if m.knows(topic) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reported == nil || len(m.reported) >= maxTopics+most {
		m.reported = map[plan.Hash]struct{}{}
	}
	m.reported[plan.HashText(topic)] = struct{}{}
	return true
}
