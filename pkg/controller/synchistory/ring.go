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
	// filling is where the next sync goes if it has room there; nil if there is none.
	filling     *chunk
	controllers map[string]*History
}

// node is one sync, in the list of the ring and in that of its parent.
type node struct {
	packed

	of *entry
	// in is where it is; nil for one that is abridged, which is in no ring.
	in *chunk
	// older and newer are the neighbors in the ring, and before and after those of the same parent.
	older, newer, before, after *node
}

const (
	// chunks is how many pieces the memory of a ring has at least, unless these would be large.
	chunks = 32
	// maxChunk is how many bytes of syncs a chunk has at most, but for a single one that is larger.
	maxChunk = 32 << 10
	// usualSync is how many bytes most syncs take, with their nodes, as long as it is not known.
	usualSync = 200
)

// chunk is memory for several syncs, which is two objects for the garbage collector and not two for each sync. It is given back as a whole,
// when none of them is in the ring any more: the oldest ones go first, so that chunks are left one after the other.
type chunk struct {
	nodes []node
	data  []byte
	// size is how many bytes of the ring it takes.
	size int64
	// live is how many of its syncs are in the ring.
	live int
}

// place puts a sync into a chunk, with a copy of its bytes. It is in no list yet.
func (r *Ring) place(p packed) *node {
	c := r.filling
	if c == nil || len(c.nodes) == cap(c.nodes) || len(c.data)+len(p.bytes) > cap(c.data) {
		usual, each := min(int(r.limit/chunks), maxChunk), usualSync
		if c != nil {
			each = nodeSize + len(c.data)/len(c.nodes) // As in the one that is full.
		}
		nodes := max(usual/each, 1)
		c = &chunk{nodes: make([]node, 0, nodes), data: make([]byte, 0, max(usual-nodes*nodeSize, len(p.bytes)))}
		c.size = int64(nodes*nodeSize + cap(c.data))
		r.bytes += c.size
		r.filling = c
	}
	at := len(c.data)
	c.data = append(c.data, p.bytes...)
	p.bytes = c.data[at:len(c.data):len(c.data)]
	c.nodes = append(c.nodes, node{packed: p, in: c})
	c.live++
	return &c.nodes[len(c.nodes)-1]
}

const nodeSize = int(unsafe.Sizeof(node{}))

// entry is what is remembered of a parent. There is one for each.
type entry struct {
	first, last *node
	// wrote stands for the versions that the last syncs made: so many of them are those of the one before the present or the last one, and
	// come first.
	wrote  []uint64
	before int
	// forgotten says that nothing is to be remembered any more.
	forgotten bool
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

// push adds a copy of a sync of a parent, and lets the oldest ones of all parents go for which there is no room.
func (r *Ring) push(e *entry, p packed) {
	n := r.place(p)
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
	for r.bytes > r.limit {
		r.evict(r.oldest)
	}
}

// evict takes the oldest sync of all out of the ring, which is the oldest of its parent. The last one of its parent stays in short.
func (r *Ring) evict(n *node) {
	e := n.of
	if e.last == n {
		last := &node{packed: n.abridge(), of: e}
		e.first, e.last = last, last
	} else {
		e.first, n.after.before = n.after, nil
	}
	r.unlink(n)
}

// unlink takes a sync out of the ring, which is in no list of its parent any more.
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
	c := n.in
	*n = node{} // What its chunk has left must not keep other chunks in memory.
	if c.live--; c.live == 0 {
		r.bytes -= c.size
		if r.filling == c {
			r.filling = nil
		}
	}
}

// forget takes all syncs of a parent out of the ring.
func (r *Ring) forget(e *entry) {
	for n := e.first; n != nil; {
		after := n.after
		if n.in != nil {
			r.unlink(n)
		}
		n = after
	}
	e.first, e.last, e.forgotten = nil, nil, true
}
