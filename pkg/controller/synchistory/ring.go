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

package synchistory

import (
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// DefaultBytes is the size of a ring unless it is set.
const DefaultBytes = 4 << 20

// Ring has the recent syncs of all controllers of a process. It is safe for concurrent use; a nil ring records nothing.
type Ring struct {
	limit int64

	// mu guards all histories as well. It is held for a few steps, and for one look at all syncs when they are asked for.
	mu             sync.Mutex
	bytes          int64
	oldest, latest *node
	controllers    map[string]*History
}

// node is one sync, in the list of the ring and in that of its parent.
type node struct {
	packed

	of *entry
	// older and newer are the neighbors in the ring, and before and after those of the same parent. One that is abridged is in no ring.
	older, newer, before, after *node
}

// size is how many bytes of the ring the sync takes.
func (n *node) size() int64 { return int64(unsafe.Sizeof(*n)) + int64(cap(n.bytes)) }

// entry is what is remembered of a parent.
type entry struct {
	first, last *node
	// wrote stands for the versions that the present or the last sync made, and wroteBefore for those of the one before it.
	wrote, wroteBefore []uint64
	// forgotten says that nothing is to be remembered any more.
	forgotten bool
	// few is where most have both.
	few [2][usualVersions]uint64
}

func newEntry() *entry {
	e := &entry{}
	e.wrote, e.wroteBefore = e.few[0][:0], e.few[1][:0]
	return e
}

// NewRing returns a ring for a number of bytes; nil if that is not positive.
func NewRing(limit int64) *Ring {
	if limit <= 0 {
		return nil
	}
	return &Ring{limit: limit, controllers: map[string]*History{}}
}

// Of returns the history of a controller object, whose name is unique among both kinds. That of a former object of that name is dropped.
func (r *Ring) Of(controller string, uid types.UID) *History {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.controllers[controller]; ok {
		if h.uid == uid {
			return h
		}
		h.drop()
	}
	h := &History{ring: r, uid: uid, parents: map[parent.Key]*entry{}}
	r.controllers[controller] = h
	return h
}

// Close forgets a controller object that is gone, or that this process does not run any more.
func (r *Ring) Close(controller string, uid types.UID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.controllers[controller]; ok && h.uid == uid {
		h.drop()
		delete(r.controllers, controller)
	}
}

// Bytes returns how many bytes the ring has, without the last syncs that are kept in short.
func (r *Ring) Bytes() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// The functions below are called with the lock held.

// push adds a sync of a parent, which is in no list yet, and lets the oldest ones of all parents go for which there is no room.
func (r *Ring) push(e *entry, n *node) {
	if e.last != nil && e.last.abridged() {
		e.first, e.last = nil, nil
	}
	n.of, n.older, n.before = e, r.latest, e.last
	if r.latest == nil {
		r.oldest = n
	} else {
		r.latest.newer = n
	}
	r.latest = n
	if e.last == nil {
		e.first = n
	} else {
		e.last.after = n
	}
	e.last = n
	for r.bytes += n.size(); r.bytes > r.limit; {
		r.evict(r.oldest)
	}
}

// evict takes the oldest sync of all out of the ring, which is the oldest of its parent. The last one of its parent stays in short.
func (r *Ring) evict(n *node) {
	r.unlink(n)
	e := n.of
	if e.last == n {
		n.packed, n.older, n.newer = n.abridge(), nil, nil
		return
	}
	e.first, n.after.before = n.after, nil
}

// unlink takes a sync out of the ring.
func (r *Ring) unlink(n *node) {
	if n.older == nil {
		r.oldest = n.newer
	} else {
		n.older.newer = n.newer
	}
	if n.newer == nil {
		r.latest = n.older
	} else {
		n.newer.older = n.older
	}
	r.bytes -= n.size()
}

// forget takes all syncs of a parent out of the ring.
func (r *Ring) forget(e *entry) {
	for n := e.first; n != nil; n = n.after {
		if !n.abridged() {
			r.unlink(n)
		}
	}
	e.first, e.last, e.forgotten = nil, nil, true
}
