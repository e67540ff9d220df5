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
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// parents are the parents that a controller handles, and how far it is with each. It is safe for concurrent use; the zero value is ready.
type parents struct {
	mu   sync.Mutex
	keys map[parent.Key]progress
	// unsynced, first, rolling and outdated are the sums of the progress of all. Unsynced parents that came after the start are not among the first.
	unsynced, first, rolling, outdated int
	// begun says that the parents of the start were added, and passed that all of them were synced.
	begun, passed bool
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
	// pointless stands for a status whose write has changed nothing, zero for none.
	pointless uint64
}

func (p *parents) add(key parent.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys == nil {
		p.keys = map[parent.Key]progress{}
	}
	if _, ok := p.keys[key]; !ok {
		added := progress{late: p.begun}
		p.keys[key] = added
		p.count(added, 1)
	}
}

// remove reports whether the key was there.
func (p *parents) remove(key parent.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	former, ok := p.keys[key]
	if ok {
		p.count(former, -1)
	}
	delete(p.keys, key)
	return ok
}

// synced notes that a parent was synced.
func (p *parents) synced(key parent.Key) {
	p.update(key, func(now *progress) { now.synced = true })
}

// timed notes when a sync of a parent ended, and how long it took.
func (p *parents) timed(key parent.Key, at time.Time, took time.Duration) {
	p.update(key, func(now *progress) { now.at, now.took = at.UnixNano(), took })
}

// pointless notes for which status a write has changed nothing.
func (p *parents) pointless(key parent.Key, status uint64) {
	p.update(key, func(now *progress) { now.pointless = status })
}

// progress returns how far the controller is with a parent.
func (p *parents) progress(key parent.Key) progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[key]
}

// rollout notes whether a parent has a rolling update under way, and how many of its children are left.
func (p *parents) rollout(key parent.Key, rolling bool, outdated int) {
	p.update(key, func(now *progress) { now.rolling, now.outdated = rolling, int32(min(outdated, 1<<30)) }) //nolint:gosec // It fits.
}

func (p *parents) update(key parent.Key, change func(*progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	former, ok := p.keys[key]
	if !ok {
		return
	}
	now := former
	change(&now)
	if now == former {
		return
	}
	p.count(former, -1)
	p.count(now, 1)
	p.keys[key] = now
}

// count is called with the lock held.
func (p *parents) count(of progress, sign int) {
	if !of.synced {
		p.unsynced += sign
		if !of.late {
			p.first += sign
		}
	}
	if of.rolling {
		p.rolling += sign
		p.outdated += sign * int(of.outdated)
	}
}

func (p *parents) has(key parent.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.keys[key]
	return ok
}

// all returns the keys of all parents.
func (p *parents) all() []parent.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.keys))
}

func (p *parents) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys)
}

// ended returns how many parents were synced since the start, well or not.
func (p *parents) ended() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys) - p.unsynced
}

// left returns how many parents of the start wait for their first sync, zero from the moment at which all were synced; how many have
// a rolling update under way; and how many of their children are left. It is called once all present parents were added.
func (p *parents) left() (unsynced, rolling, outdated int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.passed = true, p.passed || p.first == 0
	if !p.passed {
		unsynced = p.first
	}
	return unsynced, p.rolling, p.outdated
}
