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

package deferredstatus

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

const (
	// retry is after which time a key is asked for again that a worker has. Its sync writes the status, or makes another one.
	retry = 10 * time.Millisecond
	// never is the time until what only a change brings.
	never time.Duration = -1
)

// Writing says how Run writes. All fields are required.
type Writing struct {
	// Take takes the key of a parent, so that no worker has it until Done. It returns false if one has it already.
	Take func(key parent.Key) bool
	// Done gives the key back.
	Done func(key parent.Key)
	// Write writes the deferred status of a parent, and drops it whatever comes of that. It must not panic.
	Write func(ctx context.Context, key parent.Key)
	// Parallel is how many are written at the same time.
	Parallel int
	// Grace is how long it may take to write what is left after the context of Run has ended.
	Grace time.Duration
}

// Run writes the deferred statuses that are due until ctx ends. Then nothing is deferred any more, and it returns when what was
// deferred is written, or when the grace is over. Nothing that it started runs any more then. It must be called once at most.
func (s *Store) Run(ctx context.Context, w Writing) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	r := runner{Store: s, Writing: w}
	defer r.running.Wait()
	timer := s.clock.NewTimer(Limit)
	defer timer.Stop()
	ended := ctx.Done()
	var over <-chan time.Time
	var grace clock.Timer
	defer func() {
		if grace != nil {
			grace.Stop()
		}
	}()
	for {
		next, more := r.begin(work)
		if !more {
			return
		}
		var due <-chan time.Time
		if next != never {
			timer.Reset(next)
			due = timer.C()
		}
		select {
		case <-due:
		case <-s.changed:
		case <-ended:
			ended = nil
			grace = s.clock.NewTimer(w.Grace)
			over = grace.C()
			s.Close()
		case <-over:
			cancel()
			return
		}
	}
}

// runner is the state of Run.
type runner struct {
	*Store
	Writing

	running sync.WaitGroup
	// active is how many are being written. It is guarded by the lock of the Store.
	active int
}

// begin begins to write what is due, and returns after which time there is more to do, never if only a change can bring it; false if
// there will be no more.
func (r *runner) begin(ctx context.Context) (next time.Duration, more bool) {
	for {
		e, next, more := r.take()
		if e == nil {
			return next, more
		}
		r.running.Go(func() {
			defer r.written(e)
			if r.Take(e.key) {
				defer r.Done(e.key)
				r.Write(ctx, e.key)
			}
		})
	}
}

// take takes the first entry that is due, nil if there is none; then it returns after which time there will be one, never if that is not known.
func (r *runner) take() (e *entry, next time.Duration, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && len(r.entries) == 0 {
		return nil, 0, false
	}
	if len(r.dues) == 0 || r.active >= r.Parallel {
		return nil, never, true // What changes that also signals.
	}
	e = r.dues[0]
	if wait := e.due.Sub(r.clock.Now()); wait > 0 {
		return nil, wait, true
	}
	heap.Pop(&r.dues)
	r.active++
	return e, 0, true
}

// written notes that an entry was written, or that its key was not free.
func (r *runner) written(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
	if r.entries[e.key] == e {
		e.due = r.clock.Now().Add(retry)
		heap.Push(&r.dues, e)
	}
	r.signal()
}
