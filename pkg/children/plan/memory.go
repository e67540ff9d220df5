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

package plan

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// The breaker stops a child that was written more than maxWrites times within window without a change of what is desired
// (docs/reference/compatibility.md#d12.4). It is tried again after firstPause, then after pauses that double up to longestPause.
const (
	maxWrites    = 10
	window       = time.Minute
	firstPause   = time.Minute
	longestPause = 10 * time.Minute
)

// Memory is what is remembered of the children of the parents of one controller, for as long as the parents exist. It is
// safe for concurrent use; one parent is used by one goroutine at a time.
type Memory struct {
	clock clock.PassiveClock
	seed  maphash.Seed

	mu sync.Mutex
	// parents have their children in order.
	parents map[types.UID]family
	// asked counts the questions whether a response is settled.
	asked uint64
}

// family is what is known of the children of a parent, in the order of their keys: most parents have few, and there may be many
// parents.
type family []*remembered

func (f family) search(key children.Key) (int, bool) {
	return slices.BinarySearchFunc(f, key, func(r *remembered, key children.Key) int { return r.key.Compare(key) })
}

func (f family) get(key children.Key) *remembered {
	if i, ok := f.search(key); ok {
		return f[i]
	}
	return nil
}

// remembered is what is known of one child.
type remembered struct {
	key children.Key
	// desired is the hash of the desired state that all of this belongs to.
	desired uint64
	// response is the last response that this desired state was a part of, with so many desired children.
	response Response
	siblings int
	// seen is the last question in which this child was observed.
	seen uint64
	// settledAt is the version at which the child needed nothing, and settledFor the reason.
	settledAt  string
	settledFor Reason
	// returned is what the API server made of what was written, where it differs.
	returned baseline
	known    bool
	// breaker is nil for a child that was only ever created.
	breaker *breaker
}

// breaker counts the writes of one child.
type breaker struct {
	writes      int
	windowStart time.Time
	pausedUntil time.Time
	pause       time.Duration
	announced   bool
}

// baseline has, by path, the hash of the value that the API server returned where it was not the desired one.
type baseline struct {
	seed   maphash.Seed
	values map[string]uint64
}

// holds reports whether an observed value is still what the API server returned after our own write.
func (b baseline) holds(d merge.Difference) bool {
	was, ok := b.values[d.Path]
	return ok && was == hashOf(b.seed, d)
}

func (b baseline) add(d merge.Difference) { b.values[d.Path] = hashOf(b.seed, d) }

func hashOf(seed maphash.Seed, d merge.Difference) uint64 {
	if !d.Present {
		return 0
	}
	// Maps are encoded with sorted keys, so that equal values have equal hashes.
	encoded, err := json.Marshal(d.Observed)
	if err != nil {
		return 1
	}
	return maphash.Bytes(seed, encoded)
}

// NewMemory returns an empty memory. A nil clock means the real one.
func NewMemory(c clock.PassiveClock) *Memory {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Memory{clock: c, seed: maphash.MakeSeed(), parents: map[types.UID]family{}}
}

// Forget drops what is known of a parent that is gone.
func (m *Memory) Forget(parent types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parents, parent)
}

// Prune drops what is known of children of a parent that its plan does not deal with. One for which no step could be
// worked out is still there.
func (m *Memory) Prune(parent types.UID, p Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.parents[parent]
	if len(known) <= len(p.Steps) {
		return
	}
	present := make(map[children.Key]struct{}, len(p.Steps)+len(p.failed))
	for i := range p.Steps {
		present[p.Steps[i].Key] = struct{}{}
	}
	for _, key := range p.failed {
		present[key] = struct{}{}
	}
	m.parents[parent] = slices.DeleteFunc(known, func(r *remembered) bool {
		_, ok := present[r.key]
		return !ok
	})
}

func (m *Memory) find(parent types.UID, key children.Key, desired uint64) *remembered {
	if r := m.parents[parent].get(key); r != nil && r.desired == desired {
		return r
	}
	return nil
}

// ensure returns what is known of a child in a desired state, started anew when that is another.
func (m *Memory) ensure(parent types.UID, key children.Key, desired uint64) *remembered {
	known, ok := m.parents[parent]
	i, there := known.search(key)
	if there && known[i].desired == desired {
		return known[i]
	}
	// The names may be parts of an object's JSON, which must not stay in memory for them.
	key.Name = strings.Clone(key.Name)
	if !ok {
		parent = types.UID(strings.Clone(string(parent)))
	}
	r := &remembered{key: key, desired: desired}
	if there {
		known[i] = r
	} else {
		m.parents[parent] = slices.Insert(known, i, r)
	}
	return r
}

func (m *Memory) settled(parent types.UID, key children.Key, desired uint64, version string) (Reason, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(parent, key, desired)
	if r == nil || r.settledAt == "" || r.settledAt != version {
		return "", false
	}
	return r.settledFor, true
}

// settle takes note that a child needs nothing as it is. The way in which it differs from what is desired, if it does, is
// from then on what the API server made of it.
func (m *Memory) settle(parent types.UID, step Step, reason Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ensure(parent, step.Key, step.desired)
	r.settleAt(step.Observed, reason)
	if reason == Same && !r.known && step.returned != nil {
		r.known, r.returned = true, *step.returned
	}
}

// settleAt keeps a copy of the version: the object's own is a part of its JSON, which must not stay in memory for it.
func (r *remembered) settleAt(o *object.Object, reason Reason) {
	r.settledAt, r.settledFor = strings.Clone(o.ResourceVersion()), reason
}

func (m *Memory) baseline(parent types.UID, key children.Key, desired uint64) (baseline, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.find(parent, key, desired); r != nil && r.known {
		return r.returned, true
	}
	return baseline{}, false
}

// Wrote takes note of what the API server returned for a step that created or updated a child.
func (m *Memory) Wrote(in Input, step Step, written *object.Object) {
	returned := in.differences(step, written)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.accept(in, step, written, returned)
	if step.Action != Create {
		r.count(m.clock.Now())
	}
}

// Accepted takes note that the API server would not change a child that a step was to change: it is as desired.
func (m *Memory) Accepted(in Input, step Step) {
	returned := in.differences(step, step.Observed)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accept(in, step, step.Observed, returned)
}

func (m *Memory) accept(in Input, step Step, o *object.Object, returned baseline) *remembered {
	r := m.ensure(in.Parent, step.Key, step.desired)
	r.known, r.returned = true, returned
	r.settleAt(o, Same)
	return r
}

// differences returns what an API server made of what a step applies.
func (in Input) differences(step Step, o *object.Object) baseline {
	if step.Manager != "" {
		return in.returnedBy(step, o)
	}
	returned := baseline{seed: in.Memory.seed}
	desired := observable(step.content)
	if o.Holds(desired) {
		return returned
	}
	returned.values = map[string]uint64{}
	content, err := o.Decode()
	if err != nil {
		return returned
	}
	// An object that cannot be merged has no baseline; the next plan says why.
	_, _ = merge.Objects(content, desired, desired, in.schema(o.GroupVersionKind()), func(d merge.Difference) bool {
		returned.add(d)
		return true
	})
	return returned
}

// Replaced takes note that a child was deleted in order to be made anew.
func (m *Memory) Replaced(in Input, step Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ensure(in.Parent, step.Key, step.desired).count(m.clock.Now())
}

func (r *remembered) count(now time.Time) {
	if r.breaker == nil {
		r.breaker = &breaker{}
	}
	b := r.breaker
	if now.Sub(b.windowStart) > window {
		// It was quiet for a while: what follows is another matter.
		b.windowStart, b.writes, b.pause = now, 0, 0
	}
	b.writes++
	if b.writes <= maxWrites {
		return
	}
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	b.pausedUntil = now.Add(b.pause)
	b.writes = maxWrites // one more write after the pause, then the next one
	b.windowStart = b.pausedUntil
	b.announced = false
}

func (m *Memory) paused(parent types.UID, key children.Key, desired uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(parent, key, desired)
	return r != nil && r.breaker != nil && m.clock.Now().Before(r.breaker.pausedUntil)
}

// announce reports whether the present pause of a child was not told of yet.
func (m *Memory) announce(parent types.UID, key children.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.parents[parent].get(key)
	if r == nil || r.breaker == nil || r.breaker.announced {
		return false
	}
	r.breaker.announced = true
	return true
}

// RetryAfter returns how long it is until a child of the parent that is paused may be written again, 0 if none is.
func (m *Memory) RetryAfter(parent types.UID) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var soonest time.Duration
	now := m.clock.Now()
	for _, r := range m.parents[parent] {
		if r.breaker == nil {
			continue
		}
		if left := r.breaker.pausedUntil.Sub(now); left > 0 && (soonest == 0 || left < soonest) {
			soonest = left
		}
	}
	return soonest
}
