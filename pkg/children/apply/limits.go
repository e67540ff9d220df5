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

package apply

import (
	"context"
	"slices"
	"sync"
)

// slots bound the writes of all controllers together. Controllers that wait have turns: one that waits for many writes does not hold up
// another one that waits for few. It is safe for concurrent use.
type slots struct {
	most   int
	behind func() bool

	mu   sync.Mutex
	used int
	// held is how many of them each controller has.
	held map[string]int
	// waiting are the writes of the controllers that wait, and turns the names of these controllers, of which the first is next. One whose
	// writes were given up keeps its turn, and lets it pass.
	waiting map[string][]waiter
	turns   []string
}

// waiter is closed when the write that waits for it has a slot.
type waiter chan struct{}

func newSlots(writes int, behind func() bool) *slots {
	if behind == nil {
		behind = func() bool { return false }
	}
	return &slots{most: writes, behind: behind, held: map[string]int{}, waiting: map[string][]waiter{}}
}

// take waits for a slot for a controller. release gives it back. The error is that of ctx.
func (s *slots) take(ctx context.Context, controller string) (release func(), err error) {
	w := s.enter(controller)
	release = func() { s.release(controller) }
	if w == nil {
		return release, nil
	}
	select {
	case <-w:
		return release, nil
	case <-ctx.Done():
		s.leave(controller, w)
		return nil, ctx.Err() //nolint:wrapcheck // The caller says what was to be written.
	}
}

// enter takes a slot, or returns what to wait for.
func (s *slots) enter(controller string) waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant() // The limit may be higher than when the last slot was given back.
	_, waits := s.waiting[controller]
	if limit := s.limit(); !waits && s.used < limit && s.held[controller] < most(limit) {
		s.hold(controller)
		return nil
	}
	w := make(waiter)
	if !waits {
		s.turns = append(s.turns, controller)
	}
	s.waiting[controller] = append(s.waiting[controller], w)
	return w
}

// leave ends a wait. A slot that was granted meanwhile is given back.
func (s *slots) leave(controller string, w waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w:
		s.free(controller)
		return
	default:
	}
	s.waiting[controller] = slices.DeleteFunc(s.waiting[controller], func(each waiter) bool { return each == w })
}

func (s *slots) release(controller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(controller)
}

// The functions below are called with the lock held.

// limit is how many writes there may be now.
func (s *slots) limit() int {
	if s.behind() {
		return max(1, s.most/4)
	}
	return s.most
}

// most is how many writes of one controller there may be: an API server that hangs holds them for as long as requests may take, and what is left
// is for the writes of others.
func most(limit int) int { return max(1, limit-limit/4) }

func (s *slots) hold(controller string) {
	s.used++
	s.held[controller]++
}

// free takes a slot back and gives it to those who wait.
func (s *slots) free(controller string) {
	s.used--
	if s.held[controller]--; s.held[controller] == 0 {
		delete(s.held, controller)
	}
	s.grant()
}

// grant gives free slots to those who wait, one to each controller in its turn, and none to those that have the most that they may have. There is
// always a write that ends later if one is left waiting: both limits are 1 at least.
func (s *slots) grant() {
	if len(s.turns) == 0 {
		return
	}
	limit := s.limit()
	for passed := 0; s.used < limit && passed < len(s.turns); {
		controller := s.turns[0]
		s.turns = s.turns[1:]
		list := s.waiting[controller]
		switch {
		case len(list) == 0:
		case s.held[controller] < most(limit):
			s.hold(controller)
			close(list[0])
			list, passed = list[1:], 0
		default:
			passed++
		}
		if len(list) > 0 {
			s.waiting[controller] = list
			s.turns = append(s.turns, controller)
		} else {
			delete(s.waiting, controller)
		}
	}
}
