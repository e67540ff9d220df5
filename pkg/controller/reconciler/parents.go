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
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
)

// parents are the parents that a controller handles, with all that it remembers of each from one sync to the next. It is safe for concurrent
// use; the zero value is ready.
type parents struct {
	mu      sync.Mutex
	records map[parent.Key]*record
	// sums are those of all records.
	sums sums
	// tracker is what the parents have in common that do not settle; nil remembers none.
	tracker *loopguard.Tracker
	// blocked are the parents that an object blocks, by that object.
	blocked map[children.Key]map[*record]struct{}
	// begun says that the parents of the start were added, and passed that all of them were synced.
	begun, passed bool
}

// record is what a controller remembers of one parent. A sync keeps the record with which it began: what it remembers of a parent that has
// left meanwhile goes with the record, also if another parent has its name by then. The fields are changed by
// [parents.change], unless they say otherwise.
type record struct {
	key parent.Key
	// gone says that the record is in no table: the controller does not handle the parent.
	gone atomic.Bool
	progress
	finalization
	// obstacles are the objects that have the name of a child and are not the parent's, so that its last sync failed. They change between syncs.
	obstacles []children.Key
	// settling is whether the parent settles, children what is known of its children, own its own writes, related which objects are related to
	// it, and selector which children it selects. They need no [parents.change].
	settling loopguard.Parent
	children memory
	own      expectations.OwnWrites
	related  related.Parent
	selector related.Selector
}

// progress is how far a controller is with a parent.
type progress struct {
	// synced says that the parent was synced since the start, or that its sync failed.
	synced bool
	// late says that it came after the start.
	late bool
	// rolling says that a rolling update is under way, in which so many children are not on the latest revision.
	rolling  bool
	outdated int32
	// at is when the last sync ended, in nanoseconds since 1970, zero for never, and took is how long it was.
	at   int64
	took time.Duration
	// paused says until when the parent is paused by its annotation, as its last event said; empty if it is not.
	paused string
	// pointless stands for a status whose write has changed nothing, zero for none, as the kind was defined then.
	pointless  uint64
	definition int64
}

// sums count parents. Unsynced parents that came after the start are not among the first.
type sums struct{ unsynced, first, rolling, outdated, finalizing, blocked int }

// add returns the record of a parent, a new one if there is none.
func (p *parents) add(key parent.Key) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.records[key]; ok {
		return r
	}
	r := &record{key: key, progress: progress{late: p.begun}}
	p.records = with(p.records, key, r)
	p.tracker.Remember(&r.settling, &r.key)
	p.count(r, 1)
	return r
}

// remove drops the record of a parent and returns it, nil if there is none.
func (p *parents) remove(key parent.Key) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[key]
	if !ok {
		return nil
	}
	p.count(r, -1)
	r.gone.Store(true)
	delete(p.records, key)
	r.settling.Forget()
	return r
}

// of returns the record of a parent, nil if there is none.
func (p *parents) of(key parent.Key) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[key]
}

// ofSync is of for a sync, which needs a record: one that nobody remembers if there is none.
func (p *parents) ofSync(key parent.Key) *record {
	if r := p.of(key); r != nil {
		return r
	}
	r := &record{key: key}
	r.gone.Store(true)
	return r
}

// outside notes an input of a parent that no state shows; nothing of none.
func (r *record) outside() {
	if r != nil {
		r.settling.Outside(time.Now())
	}
}

// change changes a record.
func (p *parents) change(r *record, change func(*record)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.gone.Load() {
		change(r)
		return
	}
	p.count(r, -1)
	change(r)
	p.count(r, 1)
}

// count adds a record to the sums, or takes it off. It is called with the lock held.
func (p *parents) count(r *record, sign int) {
	if !r.synced {
		p.sums.unsynced += sign
		if !r.late {
			p.sums.first += sign
		}
	}
	if r.rolling {
		p.sums.rolling += sign
		p.sums.outdated += sign * int(r.outdated)
	}
	if !r.since.IsZero() {
		p.sums.finalizing += sign
	}
	if len(r.obstacles) > 0 {
		p.sums.blocked += sign
	}
	for _, key := range r.obstacles {
		if sign > 0 {
			p.blocked = with(p.blocked, key, with(p.blocked[key], r, struct{}{}))
		} else if delete(p.blocked[key], r); len(p.blocked[key]) == 0 {
			delete(p.blocked, key)
		}
	}
}

// synced notes that a parent was synced, or that its sync failed.
func (p *parents) synced(r *record) { p.change(r, func(r *record) { r.progress.synced = true }) }

// progress returns how far the controller is with a parent.
func (p *parents) progress(r *record) progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.progress
}

// has reports whether the controller handles a parent.
func (p *parents) has(key parent.Key) bool { return p.of(key) != nil }

// all returns all records.
func (p *parents) all() []*record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.AppendSeq(make([]*record, 0, len(p.records)), maps.Values(p.records))
}

// each yields all parents with a part of their records.
func each[T any](p *parents, part func(*record) *T) iter.Seq2[parent.Key, *T] {
	return func(yield func(parent.Key, *T) bool) {
		for _, r := range p.all() {
			if !yield(r.key, part(r)) {
				return
			}
		}
	}
}

// settling yields of all parents whether they settle.
func (p *parents) settling(yield func(*loopguard.Parent) bool) {
	each(p, func(r *record) *loopguard.Parent { return &r.settling })(func(_ parent.Key, s *loopguard.Parent) bool { return yield(s) })
}

// blockedBy returns the parents that an object blocks.
func (p *parents) blockedBy(key children.Key) []parent.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]parent.Key, 0, len(p.blocked[key]))
	for r := range p.blocked[key] {
		list = append(list, r.key)
	}
	return list
}

func (p *parents) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records)
}

// total returns the sums.
func (p *parents) total() sums {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sums
}

// left returns how many parents of the start wait for their first sync, zero from the moment at which all were synced; how many have
// a rolling update under way; and how many of their children are left. It is called once all present parents were added.
func (p *parents) left() (unsynced, rolling, outdated int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.passed = true, p.passed || p.sums.first == 0
	if !p.passed {
		unsynced = p.sums.first
	}
	return unsynced, p.sums.rolling, p.sums.outdated
}
