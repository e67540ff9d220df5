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
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
)

// maxTopics is how many topics of one parent are remembered beside those of one sync. Beyond that all of them are reported once more.
const maxTopics = 256

// memory is what is remembered of the children of one parent from one sync to the next. The zero value is ready. It is safe for concurrent use; one
// goroutine at a time has what it remembers changed.
type memory struct {
	// held are the deletions of children that are held.
	held loopguard.Held

	mu sync.Mutex
	// records are those of its children.
	records plan.Records
	// reported are the topics of what is reported once.
	reported map[plan.Hash]struct{}
	// stale counts the syncs in a row that found its children not as observed.
	stale int
}

// sizes returns the number of records of children, and whether anything else is remembered.
func (m *memory) sizes() (records int, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records), len(m.reported) > 0 || m.stale > 0
}

// settled reports whether a sync would do nothing for a response that it was given before. Each observed child is given once.
func (m *memory) settled(f plan.Hash, observed []*object.Object) bool {
	records, _ := m.known()
	return records.Settled(f, observed, time.Now())
}

// leaves returns until when a child of a parent is neither adopted nor released, because somebody undoes that each time, and whether that has been
// reported; false if it is not left.
func (m *memory) leaves(key children.Key, now time.Time) (until time.Time, reported, leaves bool) {
	records, _ := m.known()
	b := records.Get(key).Breaker()
	until, leaves = b.Paused(now)
	return until, b.Reported(), leaves
}

// claimed counts children that a sync adopted or released, and notes which of those that are left have been reported.
func (m *memory) claimed(claimed, reported []children.Key, now time.Time) {
	records, _ := m.known()
	m.keep(records.Claimed(claimed, reported, now))
}

// known returns the records of a parent's children, and how many syncs in a row found them not as observed.
func (m *memory) known() (records plan.Records, stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records, m.stale
}

// keep replaces the records of a parent's children.
func (m *memory) keep(records plan.Records) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = records
}

// synced replaces the records after a sync, which found the children not as observed if stale. It returns how many syncs in a row did.
func (m *memory) synced(records plan.Records, stale bool) (inARow int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = records
	if m.stale++; !stale {
		m.stale = 0
	}
	return m.stale
}

// knows reports whether a topic was reported.
func (m *memory) knows(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.reported[plan.HashText(topic)]
	return ok
}

// report notes that a topic is reported, and returns whether it was not before. A sync may have a number of such topics.
func (m *memory) report(topic string, most int) bool {
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
