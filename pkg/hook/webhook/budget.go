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

	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
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

// reserve waits for room until ctx ends. More than the whole budget is the whole budget. A nil budget has room for everything.
func reserve(ctx context.Context, b *fairqueue.Budget, controller string, bytes int64) (*reservation, error) {
	if b == nil {
		return nil, nil
	}
	_, whole := b.Used()
	bytes = min(bytes, whole)
	if err := b.Acquire(ctx, controller, bytes); err != nil {
		return nil, err
	}
	return newReservation(b, controller, bytes), nil
}

// tryReserve returns nil and false when there is no room now.
func tryReserve(b *fairqueue.Budget, bytes int64) (*reservation, bool) {
	const nobody = ""
	if b == nil || !b.TryAcquire(nobody, bytes) {
		return nil, b == nil
	}
	return newReservation(b, nobody, bytes), true
}

// quota is what one client may reserve of a budget: a part of it, so that a client whose hook does not read leaves room for the others.
// Nil has no bound.
type quota struct {
	budget     *fairqueue.Budget
	controller string
	bytes      int64
	room       *semaphore.Weighted
}

// newQuota returns the part of one client of a controller.
func newQuota(b *fairqueue.Budget, controller string) *quota {
	if b == nil {
		return nil
	}
	_, whole := b.Used()
	bytes := max(1, whole/fairqueue.Parts)
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
	if err := q.budget.Acquire(ctx, q.controller, bytes); err != nil {
		q.room.Release(bytes)
		return nil, err
	}
	r := newReservation(q.budget, q.controller, bytes)
	r.quota = q
	return r, nil
}

// reservation is a part of a budget, which is given back when all its holders have released it. Nil is one of nothing.
type reservation struct {
	budget     *fairqueue.Budget
	controller string
	// quota is nil if the budget alone was asked.
	quota   *quota
	bytes   int64
	holders atomic.Int32
}

func newReservation(b *fairqueue.Budget, controller string, bytes int64) *reservation {
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
		r.budget.Release(r.controller, r.bytes-bytes)
		r.bytes = bytes
	}
}

// release ends the use by one holder.
func (r *reservation) release() {
	if r != nil && r.holders.Add(-1) == 0 {
		r.budget.Release(r.controller, r.bytes)
		if r.quota != nil {
			r.quota.room.Release(r.bytes)
		}
	}
}
