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

package expectations

import (
	"context"
	"hash/maphash"
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// staleFor is how long a computed staleness is good for: it is read before every write of a child.
const staleFor = 50 * time.Millisecond

// remembered is how many writes of the process are remembered. Parents that answer each other's writes do so within fewer.
const remembered = 4096

// chain is how many writes back from a write those are looked for that led to it, and most how many of them on the way.
const chain, most = 4, 64

// Registry knows the expectations of all controllers of a process. It is safe for concurrent use; the zero value is ready.
type Registry struct {
	mu       sync.Mutex
	all      map[*Expectations]struct{}
	computed time.Time
	stale    time.Duration
	// written is what controllers wrote whose expectations were closed, by their names.
	written map[string]map[schema.GroupResource]write
	own     ownVersions
}

// made is a write of a parent of a controller, as a hash, and the versions that it is because of.
type made struct {
	by      uint64
	because []uint64
}

// ownVersions are the last states of objects that the controllers of a process have made. The zero value is ready.
type ownVersions struct {
	mu     sync.Mutex
	latest [remembered]uint64
	next   int
	writes map[uint64]made
}

func (v *ownVersions) add(version uint64, write made) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.writes == nil {
		v.writes = make(map[uint64]made, remembered)
	}
	if _, known := v.writes[version]; !known {
		delete(v.writes, v.latest[v.next])
		v.latest[v.next] = version
		v.next = (v.next + 1) % remembered
	}
	v.writes[version] = write
}

// led reports whether a write of a parent led to a version. It is looked for when it is asked: events may show what a write made before its response does.
func (v *ownVersions) led(by, version uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	versions := []uint64{version}
	for range chain {
		var before []uint64
		for _, version := range versions {
			write := v.writes[version]
			if write.by == by {
				return true
			}
			before = append(before, write.because...)
		}
		versions = before[:min(len(before), most)]
	}
	return false
}

// Answers reports whether a state of an object, for which a version stands ([history.Version], [history.Deleted]), was made by a controller of the
// registry because of what a sync of a parent of these expectations wrote, directly or by way of few others, lately.
func (e *Expectations) Answers(key parent.Key, version uint64) bool {
	return e.registry != nil && e.registry.own.led(e.id(key), version)
}

// made notes that a sync of a parent made a state of an object.
func (e *Expectations) made(key parent.Key, version uint64) {
	if e.registry == nil {
		return
	}
	e.registry.own.add(version, made{e.id(key), e.Because(key)})
}

// seed makes the hashes of this process comparable.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // It does not change, and hashes of all controllers must be comparable.

// id stands for a parent of the controller.
func (e *Expectations) id(key parent.Key) uint64 {
	return maphash.Comparable(seed, struct {
		controller string
		key        parent.Key
	}{e.controller, key}) | 1
}

// New returns expectations that count for the registry until they are closed. They are those of a controller, whose name is unique among
// both kinds; AwaitFormer waits for what the last one of that name wrote before its expectations were closed. A nil registry returns expectations that count for none.
func (r *Registry) New(controller string, release func(parent.Key), c clock.WithDelayedExecution) *Expectations {
	e := New(release, c)
	if r == nil {
		return e
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all, r.written = map[*Expectations]struct{}{}, map[string]map[schema.GroupResource]write{}
	}
	r.all[e] = struct{}{}
	e.registry, e.controller = r, controller
	e.former, e.written = r.written[controller], recent(r.written[controller], e.clock.Now())
	return e
}

// closed keeps what a controller wrote that has ended, and forgets what nobody waits for any more. A nil registry keeps nothing.
func (r *Registry) closed(e *Expectations) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, e)
	r.written[e.controller] = e.written
	for name, former := range r.written {
		if r.written[name] = recent(former, e.clock.Now()); len(r.written[name]) == 0 {
			delete(r.written, name)
		}
	}
}

// recent returns the writes for which informers are waited for still.
func recent(writes map[schema.GroupResource]write, now time.Time) map[schema.GroupResource]write {
	kept := map[schema.GroupResource]write{}
	for resource, w := range writes {
		if now.Sub(w.at) < Limit {
			w.deletes = maps.Clone(w.deletes)
			maps.DeleteFunc(w.deletes, func(_ types.UID, d deletion) bool { return now.Sub(d.written) >= Limit })
			kept[resource] = w
		}
	}
	return kept
}

// write is the last write of a resource: a version that informers show after it, and when it was made.
type write struct {
	version uint64
	at      time.Time
	// deletes are the deletions whose events had not come: their responses have no version.
	deletes map[types.UID]deletion
}

// wrote notes, for the controller that follows, what an informer has shown, or was to show, once something was written. It is called with the lock held.
func (e *Expectations) wrote(informer *cache.Informer, w *watched) {
	if w.written.IsZero() {
		return
	}
	version, _ := strconv.ParseUint(informer.LastSyncedVersion(), 10, 64) // One that is no number has no order.
	if pending := len(w.versions); pending > 0 {
		version = max(version, w.versions[pending-1].version)
	}
	last := e.written[w.resource]
	last.version = max(last.version, version)
	if w.written.After(last.at) {
		last.at = w.written
	}
	if last.deletes == nil {
		last.deletes = map[types.UID]deletion{}
	}
	maps.Copy(last.deletes, w.deletes)
	e.written[w.resource] = last
}

// formerWrites is in the place of the parent for which the controllers before this one wrote something.
var formerWrites = parent.Key{} //nolint:gochecknoglobals // It does not change. No parent has an empty name.

// expectFormer expects the informers to show what the controllers before this one wrote. They have synced. The channel that it returns is closed when
// no parent expects anything any more.
func (e *Expectations) expectFormer() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	var left time.Duration
	for informer, w := range e.watched {
		last := e.former[w.resource]
		rest := last.at.Add(Limit).Sub(e.clock.Now())
		if rest <= 0 {
			continue
		}
		left = max(left, rest)
		w.observer.Wake() // What it shows is looked at afterwards.
		if seen, _ := strconv.ParseUint(informer.LastSyncedVersion(), 10, 64); seen < last.version {
			w.push(pendingVersion{last.version, e.expect(formerWrites), last.at})
		}
		for uid, d := range last.deletes {
			if d.due(informer, uid) {
				d.of = e.expect(formerWrites)
				w.deletes[uid] = d
			}
		}
	}
	if p, ok := e.parents[formerWrites]; ok {
		p.timer.Reset(left)
	}
	e.former = nil
	empty := make(chan struct{})
	if len(e.parents) == 0 {
		close(empty)
	} else {
		e.empty = empty
	}
	return empty
}

// AwaitFormer waits until the informers that are observed show what the controller of the same name wrote that ran before, as [Registry.New]
// says, and what the controller's own syncs wrote, or until Limit has passed for what they do not show. They have synced, and may be behind those of
// the former controller: their resources may be in another version, or selected otherwise. It returns false if ctx ends before. Nothing may be
// written before it returns, and it must not be called twice at the same time.
func (e *Expectations) AwaitFormer(ctx context.Context) bool {
	select {
	case <-e.expectFormer():
		return true
	case <-ctx.Done():
		return false
	}
}

// Staleness returns how far the informers are behind the writes of all controllers, as of a moment ago.
func (r *Registry) Staleness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.computed) > staleFor {
		r.computed, r.stale = now, 0
		for e := range r.all {
			r.stale = max(r.stale, e.Staleness())
		}
	}
	return r.stale
}
