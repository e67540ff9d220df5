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

package fairqueue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Parts is the part of a budget of bytes that is kept for controllers that hold nothing.
const Parts = 4

// Budget bounds what the controllers of a process hold at once. It is safe for concurrent use. Nil has no bound.
//
// Controllers that wait have turns: the one that holds least is next, so that one which waits for much does not hold up another one that
// waits for little. What a controller holds already it cannot be made to give back.
type Budget struct {
	limit int64
	// fits reports whether the first request of a user may be granted: used is what would be in use then.
	fits func(b *Budget, u *user, used int64) bool

	mu   sync.Mutex
	used int64
	// users are the controllers that have joined, hold something or wait for it.
	users map[string]*user
	// waits counts those who have waited, for their order.
	waits uint64
}

// user is one controller of a budget.
type user struct {
	// joined is how often it has joined and not left.
	joined int
	held   int64
	// waiting are its requests in their order.
	waiting []*waiter
}

// waiter is a request that waits.
type waiter struct {
	weight  int64
	order   uint64
	granted chan struct{}
}

// Bytes returns a budget of a number of bytes, which must be positive. A quarter of it is kept for controllers that hold nothing, unless there is
// one controller alone.
func Bytes(limit int64) *Budget {
	return newBudget(limit, func(b *Budget, u *user, used int64) bool {
		return used <= limit-limit/Parts || used <= limit && (u.held == 0 || len(b.users) == 1)
	})
}

// Slots returns a budget of slots, of which each request takes one. limits returns how many there may be now, of all controllers and of each, which
// is 1 at least.
func Slots(limits func() (all, each int64)) *Budget {
	return newBudget(1, func(_ *Budget, u *user, used int64) bool {
		all, each := limits()
		return used <= all && u.held < each
	})
}

func newBudget(limit int64, fits func(*Budget, *user, int64) bool) *Budget {
	return &Budget{limit: limit, fits: fits, users: map[string]*user{}}
}

// Used returns what is held now, and the limit of one request: all bytes of the budget, or one slot.
func (b *Budget) Used() (used, limit int64) {
	if b == nil {
		return 0, math.MaxInt64
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.limit
}

// Join says that a controller is there, until leave is called.
func (b *Budget) Join(controller string) (leave func()) {
	if b == nil {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.user(controller).joined++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.user(controller).joined--
		b.tidy(controller)
		// It may have left all to the only other one.
		b.grant()
	}
}

// Acquire waits until a controller may hold so much more, which is at most the limit, or until ctx ends. The caller releases it.
func (b *Budget) Acquire(ctx context.Context, controller string, weight int64) error {
	if b == nil {
		return nil
	}
	w := b.enter(controller, weight)
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	if b.abandon(controller, w) {
		return fmt.Errorf("waiting for room: %w", ctx.Err())
	}
	return nil
}

// TryAcquire is Acquire without a wait: it reports whether there was room.
func (b *Budget) TryAcquire(controller string, weight int64) bool {
	return b == nil || !b.abandon(controller, b.enter(controller, weight))
}

// Release gives back what a controller holds.
func (b *Budget) Release(controller string, weight int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= weight
	b.user(controller).held -= weight
	b.tidy(controller)
	b.grant()
}

// enter asks for something for a controller.
func (b *Budget) enter(controller string, weight int64) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits++
	w := &waiter{weight: weight, order: b.waits, granted: make(chan struct{})}
	u := b.user(controller)
	u.waiting = append(u.waiting, w)
	b.grant()
	return w
}

// abandon ends a wait, and reports whether it did: what has been granted meanwhile is the caller's.
func (b *Budget) abandon(controller string, w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.user(controller)
	i := slices.Index(u.waiting, w)
	if i < 0 {
		return false
	}
	u.waiting = slices.Delete(u.waiting, i, i+1)
	b.tidy(controller)
	// It may have held up those behind it.
	b.grant()
	return true
}

// The functions below are called with the lock held.

func (b *Budget) user(controller string) *user {
	u := b.users[controller]
	if u == nil {
		u = &user{}
		b.users[controller] = u
	}
	return u
}

// tidy forgets a controller that is not there any more.
func (b *Budget) tidy(controller string) {
	if u := b.users[controller]; u != nil && u.joined == 0 && u.held == 0 && len(u.waiting) == 0 {
		delete(b.users, controller)
	}
}

// grant gives room to those who wait, in turns, for as long as there is enough for the next one. If there is none for the one that holds least,
// there is none for others.
func (b *Budget) grant() {
	for next := b.next(); next != nil && b.fits(b, next, b.used+next.waiting[0].weight); next = b.next() {
		w := next.waiting[0]
		next.waiting = next.waiting[1:]
		next.held += w.weight
		b.used += w.weight
		close(w.granted)
	}
}

// next returns the controller whose turn it is: of those that wait, the one that holds least, and of several the one that waits longest.
func (b *Budget) next() *user {
	var next *user
	for _, u := range b.users {
		if len(u.waiting) == 0 {
			continue
		}
		if next == nil || u.held < next.held || u.held == next.held && u.waiting[0].order < next.waiting[0].order {
			next = u
		}
	}
	return next
}
