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

package webhook

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

const (
	// DefaultResponseBudget is the default of the server for the bytes of responses that all its hooks hold at once.
	DefaultResponseBudget = 256 << 20
	// DefaultRequestBudget is the default of the server for the bytes of requests that it sends to all its hooks at once.
	DefaultRequestBudget = 256 << 20
	// DefaultEtagBudget is the default of the server for the bytes of responses that all its hooks remember by entity tags.
	DefaultEtagBudget = 128 << 20
	// freeBytes is the size up to which a request or a response is not counted against its budget. Nothing bounds the sum of these but the
	// number of syncs at the same time, which for a controller is less than twice its workers: each has one request and one response.
	freeBytes = 64 << 10
)

// quotaParts is the number of clients that it takes to fill a budget, and the part of it that is kept for controllers that hold nothing.
const quotaParts = 4

// Budget bounds the bytes that the clients of a process hold at once. It is safe for concurrent use. Nil has no bound.
//
// Controllers that wait have turns: the one that holds least is next, so that one which waits for much does not hold up another one that
// waits for little. What a controller holds already it cannot be made to give back, and its hook decides for how long it reads. So a
// quarter of the budget is kept for controllers that hold nothing, unless there is one controller alone.
//
// A budget of slots bounds what is done at once, and what a controller does.
type Budget struct {
	bytes int64
	// slots returns how many there may be now, of all controllers and of each. Nil: it is a budget of bytes.
	slots func() (all, each int64)

	mu   sync.Mutex
	used int64
	// users are the controllers that have clients, hold bytes or wait for them.
	users map[string]*user
	// waits counts those who have waited, for their order.
	waits uint64
}

// user is one controller of a budget.
type user struct {
	// clients is how many of its clients are not closed.
	clients int
	held    int64
	// waiting are its requests in their order.
	waiting []*waiter
}

// waiter is a request that waits.
type waiter struct {
	bytes   int64
	order   uint64
	granted chan struct{}
}

// NewBudget returns a budget of a number of bytes, which must be positive.
func NewBudget(bytes int64) *Budget {
	return &Budget{bytes: bytes, users: map[string]*user{}}
}

// NewSlots returns a budget of slots. limits returns how many there may be now, of all controllers and of each, which is 1 at least.
func NewSlots(limits func() (all, each int64)) *Budget {
	return &Budget{bytes: 1, slots: limits, users: map[string]*user{}}
}

// Take waits for a slot for a controller until ctx ends. release gives it back.
func (b *Budget) Take(ctx context.Context, controller string) (release func(), err error) {
	r, err := b.reserve(ctx, controller, 1)
	return r.release, err
}

// Used returns the bytes that are reserved now, and the whole budget.
func (b *Budget) Used() (used, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.bytes
}

// join adds a client of a controller, until leave is called.
func (b *Budget) join(controller string) (leave func()) {
	if b == nil {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.user(controller).clients++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.user(controller).clients--
		b.tidy(controller)
		// It may have left all to the only other one.
		b.grant()
	}
}

// reserve waits for room until ctx ends. More than the whole budget is the whole budget.
func (b *Budget) reserve(ctx context.Context, controller string, bytes int64) (*reservation, error) {
	if b == nil {
		return nil, nil
	}
	bytes = min(bytes, b.bytes)
	w := b.enter(controller, bytes)
	select {
	case <-w.granted:
		return newReservation(b, controller, bytes), nil
	case <-ctx.Done():
	}
	if b.abandon(controller, w) {
		return nil, fmt.Errorf("waiting for room: %w", ctx.Err())
	}
	return newReservation(b, controller, bytes), nil
}

// tryReserve returns nil and false when there is no room now.
func (b *Budget) tryReserve(bytes int64) (*reservation, bool) {
	if b == nil {
		return nil, true
	}
	const nobody = ""
	w := b.enter(nobody, bytes)
	if b.abandon(nobody, w) {
		return nil, false
	}
	return newReservation(b, nobody, bytes), true
}

// room returns the bytes that nobody holds now.
func (b *Budget) room() int64 {
	if b == nil {
		return math.MaxInt64
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes - b.used
}

// enter asks for bytes for a controller.
func (b *Budget) enter(controller string, bytes int64) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits++
	w := &waiter{bytes: bytes, order: b.waits, granted: make(chan struct{})}
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

// free gives bytes back.
func (b *Budget) free(controller string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	b.user(controller).held -= bytes
	b.tidy(controller)
	b.grant()
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
	if u := b.users[controller]; u != nil && u.clients == 0 && u.held == 0 && len(u.waiting) == 0 {
		delete(b.users, controller)
	}
}

// grant gives room to those who wait, in turns, for as long as there is enough for the next one.
func (b *Budget) grant() {
	for {
		next := b.next()
		if next == nil || !b.fits(next) {
			return
		}
		w := next.waiting[0]
		next.waiting = next.waiting[1:]
		next.held += w.bytes
		b.used += w.bytes
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

// fits reports whether there is room for what a controller waits for. If there is none for the one that holds least, there is none for others.
func (b *Budget) fits(u *user) bool {
	used := b.used + u.waiting[0].bytes
	if b.slots != nil {
		all, each := b.slots()
		return used <= all && u.held < each
	}
	return used <= b.bytes-b.bytes/quotaParts || used <= b.bytes && (u.held == 0 || len(b.users) == 1)
}

// quota is what one client may reserve of a budget: a part of it, so that a client whose hook does not read leaves room for the others.
// Nil has no bound.
type quota struct {
	budget     *Budget
	controller string
	bytes      int64
	room       *semaphore.Weighted
}

// quota returns the part of one client of a controller.
func (b *Budget) quota(controller string) *quota {
	if b == nil {
		return nil
	}
	bytes := max(1, b.bytes/quotaParts)
	return &quota{budget: b, controller: controller, bytes: bytes, room: semaphore.NewWeighted(bytes)}
}

// reserve waits for room until ctx ends: first in the quota, in the order of the calls, so that what waits for the budget is no more than
// the quota either. More than the quota is the quota.
func (q *quota) reserve(ctx context.Context, bytes int64) (*reservation, error) {
	if q == nil {
		return nil, nil
	}
	bytes = min(bytes, q.bytes)
	if err := q.room.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("waiting for room beside other calls of the hook: %w", err)
	}
	r, err := q.budget.reserve(ctx, q.controller, bytes)
	if err != nil {
		q.room.Release(bytes)
		return nil, err
	}
	r.quota = q
	return r, nil
}

// reservation is a part of a budget, which is given back when all its holders have released it. Nil is one of nothing.
type reservation struct {
	budget     *Budget
	controller string
	// quota is nil if the budget alone was asked.
	quota   *quota
	bytes   int64
	holders atomic.Int32
}

func newReservation(b *Budget, controller string, bytes int64) *reservation {
	r := &reservation{budget: b, controller: controller, bytes: bytes}
	r.holders.Store(1)
	return r
}

// share adds a holder. The caller knows that there is one already.
func (r *reservation) share() {
	if r != nil {
		r.holders.Add(1)
	}
}

// shrink gives back what exceeds a number of bytes. Only the first holder calls it, before there is another one.
func (r *reservation) shrink(bytes int64) {
	if r != nil && bytes < r.bytes {
		r.budget.free(r.controller, r.bytes-bytes)
		r.bytes = bytes
	}
}

// release ends the use by one holder.
func (r *reservation) release() {
	if r != nil && r.holders.Add(-1) == 0 {
		r.budget.free(r.controller, r.bytes)
		if r.quota != nil {
			r.quota.room.Release(r.bytes)
		}
	}
}
