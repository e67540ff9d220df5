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

package informers

import (
	"context"
	"fmt"
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
)

// Set is a set of informers. It is safe for concurrent use.
type Set struct {
	expectations *expectations.Expectations

	mu       sync.Mutex
	held     map[cache.Query]*held
	released bool
}

type held struct {
	informer *cache.Informer
	cancels  []func()
}

// New returns an empty set, whose informers e observes.
func New(e *expectations.Expectations) *Set {
	return &Set{expectations: e, held: map[cache.Query]*held{}}
}

// Acquire returns the informer of a cache for q; of several calls with one q, the same. It is released with the set.
func (s *Set) Acquire(c *cache.Cache, q cache.Query) *cache.Informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.held[q]; ok {
		return h.informer
	}
	informer := c.Acquire(q)
	h := &held{informer: informer, cancels: []func(){s.expectations.Observe(informer)}}
	if s.released {
		// Acquired after Release, by a sync that is about to end: it is returned without a reference.
		h.release()
		return informer
	}
	s.held[q] = h
	return informer
}

// Subscribe tells handle of the changes that an informer of the set sees, until the set is released.
func (s *Set) Subscribe(informer *cache.Informer, handle cache.Handler) {
	cancel := informer.Subscribe(handle)
	s.mu.Lock()
	h, ok := s.held[informer.Query()]
	if ok {
		h.cancels = append(h.cancels, cancel)
	}
	s.mu.Unlock()
	if !ok {
		cancel()
	}
}

// Await waits until all informers of the set have synced. It returns false when ctx ends before.
func (s *Set) Await(ctx context.Context) bool {
	for _, informer := range s.informers() {
		select {
		case <-informer.Synced():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Problem says why an informer of the set cannot list or watch, nil if all can.
func (s *Set) Problem() error {
	for _, informer := range s.informers() {
		if err := informer.Err(); err != nil {
			return fmt.Errorf("%s: %w", informer.Query().Resource.GroupResource(), err)
		}
	}
	return nil
}

func (s *Set) informers() []*cache.Informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*cache.Informer, 0, len(s.held))
	for _, h := range s.held {
		list = append(list, h.informer)
	}
	return list
}

// Release gives all informers back.
func (s *Set) Release() {
	s.mu.Lock()
	s.released = true
	given := s.held
	s.held = map[cache.Query]*held{}
	s.mu.Unlock()
	// Canceling waits for handlers, which may ask this set for informers.
	for _, h := range given {
		h.release()
	}
}

func (h *held) release() {
	for _, cancel := range h.cancels {
		cancel()
	}
	h.informer.Release()
}
