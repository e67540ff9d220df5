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
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Limit is how long the status of a parent is deferred at most (docs/reference/compatibility.md#d6).
const Limit = 250 * time.Millisecond

// Status is a status that is to be written.
type Status struct {
	// UID is that of the parent.
	UID types.UID
	// Content is the status as a whole. It must not be modified.
	Content map[string]any
	// On is the parent as the API server had it, with the status before.
	On *object.Object

	encoded []byte
}

// Applies reports whether a state of the parent, as the API server has it, is the same object and has the status of before. Otherwise
// another client wrote a status meanwhile, and writing this one would undo that.
func (s Status) Applies(to *object.Object) bool {
	before, _ := s.On.Field("status")
	now, _ := to.Field("status")
	return to.UID() == s.UID && bytes.Equal(before, now)
}

// Over returns a state of the parent as it will be with this status.
func (s Status) Over(o *object.Object) (*object.Object, error) { return o.WithStatus(s.encoded) }

// Latest returns the later one of two states of the parent: that on which the status was made, and that which an informer shows.
func (s Status) Latest(shown *object.Object) *object.Object {
	a, errA := strconv.ParseUint(s.On.ResourceVersion(), 10, 64)
	b, errB := strconv.ParseUint(shown.ResourceVersion(), 10, 64)
	if errA == nil && errB == nil && a > b && s.On.UID() == shown.UID() {
		return s.On
	}
	return shown
}

// entry is the status of one parent.
type entry struct {
	Status

	key parent.Key
	// limit is when it is written at the latest, and due when that is tried.
	limit, due time.Time
	// position is where it is in the heap of due times; notDue while it is being written.
	position int
}

const notDue = -1

// Store has the deferred statuses of one controller. It is safe for concurrent use. What is deferred, got and dropped of one parent is
// so by whoever has its key.
type Store struct {
	clock   clock.WithTicker
	changed chan struct{}

	mu      sync.Mutex
	entries map[parent.Key]*entry
	dues    dues
	// direct are parents whose deferred status could not be written: the next one is not deferred, so that its error is the sync's.
	direct map[parent.Key]struct{}
	closed bool
}

// New returns an empty store. A nil clock means the real one.
func New(c clock.WithTicker) *Store {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Store{clock: c, changed: make(chan struct{}, 1), entries: map[parent.Key]*entry{}, direct: map[parent.Key]struct{}{}}
}

// Defer defers the status of a parent, in place of one that was before, and returns the parent as it will be. It returns nil if the status
// must be written now: the time is over, the last one could not be written, or the store is closed.
func (s *Store) Defer(key parent.Key, on *object.Object, status map[string]any) (*object.Object, error) {
	encoded, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	deferred := Status{UID: on.UID(), Content: status, On: on, encoded: encoded}
	over, err := deferred.Over(on)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	e, ok := s.entries[key]
	_, direct := s.direct[key]
	if s.closed || direct || ok && !now.Before(e.limit) {
		return nil, nil //nolint:nilnil // The documentation says what it means.
	}
	if !ok || e.UID != on.UID() {
		if ok {
			s.remove(e)
		}
		e = &entry{key: key, limit: now.Add(Limit), due: now.Add(Limit)}
		s.entries[key] = e
		heap.Push(&s.dues, e)
		s.wake(e)
	}
	e.Status = deferred
	return over, nil
}

// Get returns the deferred status of a parent.
func (s *Store) Get(key parent.Key) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[key]; ok {
		return e.Status, true
	}
	return Status{}, false
}

// Left returns after which time the status of a parent has to be written; false if none is deferred.
func (s *Store) Left(key parent.Key) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok {
		return 0, false
	}
	return e.limit.Sub(s.clock.Now()), true
}

// Hurry has the status of a parent written now, if one is deferred.
func (s *Store) Hurry(key parent.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[key]; ok {
		s.hurry(e)
	}
}

// HurryAll has all statuses written now.
func (s *Store) HurryAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		s.hurry(e)
	}
}

// Drop drops what is deferred of a parent: a status was written, or the parent is not handled any more.
func (s *Store) Drop(key parent.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.direct, key)
	if e, ok := s.entries[key]; ok {
		s.remove(e)
	}
}

// Failed drops the deferred status of a parent, which could not be written. The next one is not deferred.
func (s *Store) Failed(key parent.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[key]; ok {
		s.direct[key] = struct{}{}
		s.remove(e)
	}
}

// Len returns how many statuses are deferred.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Close has all statuses written now, and none deferred any more.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.entries {
		s.hurry(e)
	}
	s.signal()
}

// The functions below are called with the lock held.

func (s *Store) hurry(e *entry) {
	now := s.clock.Now()
	if e.limit.After(now) {
		e.limit = now
	}
	if e.position != notDue && e.due.After(now) {
		e.due = now
		heap.Fix(&s.dues, e.position)
		s.wake(e)
	}
}

// remove drops an entry. Nothing waits for it any more.
func (s *Store) remove(e *entry) {
	delete(s.entries, e.key)
	if e.position != notDue {
		heap.Remove(&s.dues, e.position)
	}
	if s.closed && len(s.entries) == 0 {
		s.signal()
	}
}

// wake has Run look at the due times anew if an entry is the first one.
func (s *Store) wake(e *entry) {
	if e.position == 0 {
		s.signal()
	}
}

func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// dues is a heap of entries by the time at which they are due.
type dues []*entry

// Len implements heap.Interface.
func (d dues) Len() int { return len(d) }

// Less implements heap.Interface.
func (d dues) Less(i, j int) bool { return d[i].due.Before(d[j].due) }

// Swap implements heap.Interface.
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].position, d[j].position = i, j
}

// Push implements heap.Interface.
func (d *dues) Push(x any) {
	if e, ok := x.(*entry); ok {
		e.position = len(*d)
		*d = append(*d, e)
	}
}

// Pop implements heap.Interface.
func (d *dues) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.position = notDue
	return e
}
