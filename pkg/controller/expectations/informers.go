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
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Informers are the informers that one controller uses, whose progress its expectations observe. It is safe for concurrent use. No method waits for handlers with the set locked, so that handlers, and
// syncs that need other informers, do not wait for each other.
type Informers struct {
	expectations *Expectations
	// troubled is called when what Problem returns may have changed.
	troubled func()

	mu sync.Mutex
	// held are the informers in use. The caches have one informer for a query while it is held.
	held   map[*cache.Informer]*held
	closed bool
	// releasing are the informers and subscriptions that are being given back.
	releasing sync.WaitGroup
}

// held is one informer in use.
type held struct {
	informer *cache.Informer
	uses     int
	// ignore ends that the expectations observe it, and neglect the calls about its errors.
	ignore, neglect func()
	// subscriptions are canceled with the last use.
	subscriptions map[*subscription]struct{}
}

type subscription struct{ cancel func() }

// NewInformers returns an empty set, whose informers e observes.
func NewInformers(e *Expectations) *Informers {
	return &Informers{expectations: e, troubled: func() {}, held: map[*cache.Informer]*held{}}
}

// NotifyProblem has changed called, from any goroutine, whenever what Problem returns may have changed, until Close. It must not block.
// It is for a set without informers.
func (s *Informers) NotifyProblem(changed func()) { s.troubled = changed }

// Acquire returns the informer of a cache for q; of several calls with one cache and q, the same. It is held until Close. After Close it is not,
// for a sync that is about to end.
func (s *Informers) Acquire(c *cache.Cache, q cache.Query) *cache.Informer {
	informer := c.Acquire(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.held[informer]
	if known || s.closed {
		informer.Release() // The cache counts one use for the whole set.
	}
	if !known && !s.closed {
		h = &held{informer: informer, ignore: s.expectations.Observe(informer), subscriptions: map[*subscription]struct{}{}}
		h.neglect = informer.NotifyErr(s.troubled)
		s.held[informer] = h
	}
	if h != nil {
		h.uses++
	}
	return informer
}

// Keep keeps a subscription to an informer until that is given back, and calls cancel then.
func (s *Informers) Keep(informer *cache.Informer, cancel func()) { s.keep(informer, cancel) }

func (s *Informers) keep(informer *cache.Informer, cancel func()) *subscription {
	sub := &subscription{cancel: sync.OnceFunc(cancel)}
	s.mu.Lock()
	h, ok := s.held[informer]
	if ok {
		h.subscriptions[sub] = struct{}{}
	}
	s.mu.Unlock()
	if !ok {
		sub.cancel()
	}
	return sub
}

// Watch acquires an informer and subscribes to it until release or Close is called. release must be called once at most. It waits for no
// handler, so handlers may call it: what is given back is so a moment later.
func (s *Informers) Watch(c *cache.Cache, q cache.Query, handle cache.Handler) (informer *cache.Informer, release func()) {
	informer = s.Acquire(c, q)
	sub := s.keep(informer, informer.Subscribe(handle))
	return informer, func() { s.release(informer, sub) }
}

func (s *Informers) release(informer *cache.Informer, sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[informer]
	if !ok {
		return // Close gives it back.
	}
	delete(h.subscriptions, sub)
	h.uses--
	last := h.uses == 0
	if last {
		delete(s.held, informer)
	}
	s.releasing.Go(func() {
		_ = recovery.Call(context.Background(), "giving an informer back", func() error { //nolint:forbidigo // It ends with Close. Errors are logged and counted.
			sub.cancel()
			if last {
				h.release()
			}
			return nil
		})
	})
}

// Await waits until all informers of the set have synced. It returns false when ctx ends before.
func (s *Informers) Await(ctx context.Context) bool {
	for _, informer := range s.informers() {
		select {
		case <-informer.Synced():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Problem says why informers of the set cannot list or watch, in the order of their resources; nil if all can.
func (s *Informers) Problem() (problem error) {
	failing := map[string]error{}
	for _, informer := range s.informers() {
		if err := informer.Err(); err != nil {
			failing[informer.Query().Resource.GroupResource().String()] = err
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(failing)) {
		if problem == nil {
			problem = fmt.Errorf("%s: %w", resource, failing[resource])
		} else {
			problem = fmt.Errorf("%w; %s: %w", problem, resource, failing[resource])
		}
	}
	return problem
}

func (s *Informers) informers() []*cache.Informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.held))
}

// Close gives all informers back, and returns when no handler runs any more.
func (s *Informers) Close() {
	s.mu.Lock()
	given := s.held
	s.held, s.closed = nil, true
	s.mu.Unlock()
	for _, h := range given {
		h.release()
	}
	s.releasing.Wait()
}

// release gives an informer back that is in the set no more.
func (h *held) release() {
	for sub := range h.subscriptions {
		sub.cancel()
	}
	h.ignore()
	h.neglect()
	h.informer.Release()
}
