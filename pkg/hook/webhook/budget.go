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
	// freeBytes is the size up to which a request or a response is not counted against its budget.
	freeBytes = 64 << 10
)

// Budget bounds the bytes that the clients of a process hold at once. It is safe for concurrent use. Nil has no bound.
type Budget struct {
	bytes int64
	room  *semaphore.Weighted
	used  atomic.Int64
}

// NewBudget returns a budget of a number of bytes, which must be positive.
func NewBudget(bytes int64) *Budget {
	return &Budget{bytes: bytes, room: semaphore.NewWeighted(bytes)}
}

// Used returns the bytes that are reserved now, and the whole budget. It does not block.
func (b *Budget) Used() (used, limit int64) { return b.used.Load(), b.bytes }

// quotaParts is the number of clients that it takes to fill a budget.
const quotaParts = 4

// quota is what one client may reserve of a budget: a part of it, so that a client whose hook does not read leaves room for the others.
// Nil has no bound.
type quota struct {
	budget *Budget
	bytes  int64
	room   *semaphore.Weighted
}

// quota returns the part of one client.
func (b *Budget) quota() *quota {
	if b == nil {
		return nil
	}
	bytes := max(1, b.bytes/quotaParts)
	return &quota{budget: b, bytes: bytes, room: semaphore.NewWeighted(bytes)}
}

// reserve waits for room, in the order of the calls, until ctx ends: first in the quota, so that what waits for the budget is no more than
// the quota either. More than the quota is the quota.
func (q *quota) reserve(ctx context.Context, bytes int64) (*reservation, error) {
	if q == nil {
		return nil, nil
	}
	bytes = min(bytes, q.bytes)
	if err := q.room.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("waiting for room beside other calls of the hook: %w", err)
	}
	r, err := q.budget.reserve(ctx, bytes)
	if err != nil {
		q.room.Release(bytes)
		return nil, err
	}
	r.quota = q
	return r, nil
}

// free gives bytes back.
func (b *Budget) free(bytes int64) {
	b.used.Add(-bytes)
	b.room.Release(bytes)
}

// reserve waits for room, in the order of the calls, until ctx ends. More than the whole budget is the whole budget.
func (b *Budget) reserve(ctx context.Context, bytes int64) (*reservation, error) {
	if b == nil {
		return nil, nil
	}
	bytes = min(bytes, b.bytes)
	if err := b.room.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("waiting for room: %w", err)
	}
	return newReservation(b, bytes), nil
}

// tryReserve returns nil and false when there is no room now.
func (b *Budget) tryReserve(bytes int64) (*reservation, bool) {
	if b == nil {
		return nil, true
	}
	if !b.room.TryAcquire(bytes) {
		return nil, false
	}
	return newReservation(b, bytes), true
}

// reservation is a part of a budget, which is given back when all its holders have released it. Nil is one of nothing.
type reservation struct {
	budget *Budget
	// quota is nil if the budget alone was asked.
	quota   *quota
	bytes   int64
	holders atomic.Int32
}

func newReservation(b *Budget, bytes int64) *reservation {
	b.used.Add(bytes)
	r := &reservation{budget: b, bytes: bytes}
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
		r.budget.free(r.bytes - bytes)
		r.bytes = bytes
	}
}

// release ends the use by one holder.
func (r *reservation) release() {
	if r != nil && r.holders.Add(-1) == 0 {
		r.budget.free(r.bytes)
		if r.quota != nil {
			r.quota.room.Release(r.bytes)
		}
	}
}
