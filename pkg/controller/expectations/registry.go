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
	"container/heap"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// staleFor is how long a computed staleness is good for: it is read before every write of a child.
const staleFor = 50 * time.Millisecond

// Registry knows the expectations of all controllers of a process. It is safe for concurrent use; the zero value is ready.
type Registry struct {
	mu       sync.Mutex
	all      map[*Expectations]struct{}
	computed time.Time
	stale    time.Duration
}

// New returns expectations that count for the registry until they are closed.
func (r *Registry) New(release func(parent.Key), c clock.WithDelayedExecution) *Expectations {
	e := New(release, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*Expectations]struct{}{}
	}
	r.all[e] = struct{}{}
	e.closed = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, e)
	}
	return e
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

// Staleness returns how long ago the oldest write was made that an informer has not shown yet, whether or not a parent waits for
// it; 0 if all are shown. It grows when the API server is so busy with writes that its watches fall behind. Writes older than
// Limit do not count: an informer that lost its watch for good says nothing about the others.
func (e *Expectations) Staleness() time.Duration {
	var stale time.Duration
	e.change(func() (released []parent.Key) {
		now := e.clock.Now()
		for _, w := range e.watched {
			for len(w.versions) > 0 && now.Sub(w.versions[0].written) > Limit {
				released = e.shown(w.versions.pop().of, released)
			}
			for uid, d := range w.deletes {
				if now.Sub(d.written) > Limit {
					delete(w.deletes, uid)
					released = e.shown(d.of, released)
				}
			}
			if len(w.versions) > 0 {
				stale = max(stale, now.Sub(w.versions[0].written))
			}
		}
		return released
	})
	return stale
}

// versions is a heap of versions that are to be shown, the oldest first.
type versions []pendingVersion

type pendingVersion struct {
	version uint64
	of      *expecting
	written time.Time
}

func (v *versions) pop() pendingVersion {
	first := (*v)[0]
	heap.Pop(v)
	return first
}

// Len implements heap.Interface.
func (v versions) Len() int { return len(v) }

// Less implements heap.Interface.
func (v versions) Less(i, j int) bool { return v[i].version < v[j].version }

// Swap implements heap.Interface.
func (v versions) Swap(i, j int) { v[i], v[j] = v[j], v[i] }

// Push implements heap.Interface.
func (v *versions) Push(x any) {
	if pending, ok := x.(pendingVersion); ok {
		*v = append(*v, pending)
	}
}

// Pop implements heap.Interface.
func (v *versions) Pop() any {
	last := len(*v) - 1
	x := (*v)[last]
	(*v)[last] = pendingVersion{}
	*v = (*v)[:last]
	return x
}
