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

package worker

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// agingInterval is how many keys are taken by priority before one is taken from a less urgent list.
const agingInterval = 64

// MaxDelay is the longest time that a key is delayed. Longer delays are cut to it: a year and a
// thousand years are the same to a process.
const MaxDelay = 365 * 24 * time.Hour

// DefaultMaxDelay is the longest delay after a failure, where Options do not say otherwise.
const DefaultMaxDelay = 5 * time.Minute

// maxSpare bounds the memory kept for items that are not in use, and for the map of items when there are none.
const maxSpare = 1024

// Options configures a Queue. The zero value is usable.
type Options struct {
	// Clock is the source of time. Default: the real clock.
	Clock clock.Clock
	// BaseDelay is the delay after the first failure of a key; it doubles with every further one. Default 5 ms.
	BaseDelay time.Duration
	// MaxDelay is the longest delay after a failure, at most the constant of this name. Default: DefaultMaxDelay.
	MaxDelay time.Duration
	// Jitter is the part of the delay after a failure that is random: the delay d becomes a value between d*(1-Jitter)
	// and d. Values above 1 count as 1. Default (zero) 0.2; a negative value means no jitter.
	Jitter float64
	// Random returns a number in [0,1) and must be safe for concurrent use. Default: math/rand/v2.
	Random func() float64
	// Metrics are the series of the queue. Nil: none.
	Metrics *metrics.Queue
	// Triggers says that the queue keeps why keys are to be processed.
	Triggers bool
}

// Queue is a deduplicating priority queue of keys. It is safe for concurrent use. All methods may be called before Run,
// when no delay ends, and after Run, when they have no effect.
type Queue[K comparable] struct {
	clock   clock.Clock
	start   time.Time
	backoff backoff
	metrics *metrics.Queue
	rearm   chan struct{}
	// triggers says that they are kept.
	triggers bool

	mu         sync.Mutex
	filled     sync.Cond
	items      map[K]*item[K]
	most       int // the most items that the map had at a time
	lists      [priorities]fifo[K]
	delays     delays[K]
	spare      fifo[K]
	pops       uint64
	processing int
	paused     bool
	closed     bool
}

// newQueue returns a queue. It starts nothing.
func newQueue[K comparable](o Options) *Queue[K] {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	q := &Queue[K]{
		clock:   o.Clock,
		start:   o.Clock.Now(),
		backoff: newBackoff(o),
		metrics: o.Metrics,
		rearm:   make(chan struct{}, 1),
		items:   map[K]*item[K]{},

		triggers: o.Triggers,
	}
	q.filled.L = &q.mu
	return q
}

// Run queues delayed keys when they are due, until ctx ends. Then every Get returns false, and Run returns; it does not wait
// for workers. It must be called once at most.
func (q *Queue[K]) Run(ctx context.Context) {
	q.keepTime(ctx.Done())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// Add asks for key to be processed at the given priority. A key that is queued already stays queued once, at the
// higher of both priorities. A key that a worker has is processed again after Done. A backoff or pause of the key ends;
// the number of its failures is kept.
func (q *Queue[K]) Add(key K, p Priority) { q.AddBecause(key, p, trigger.Trigger{}) }

// AddBecause is Add with the reason, which Begin returns. It makes no difference to when the key is processed.
func (q *Queue[K]) AddBecause(key K, p Priority, why trigger.Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	i := q.item(key)
	q.because(i, why)
	q.add(i, p.known())
}

// AddAfter asks for key to be added at the given priority after d. When such a time is pending already, the earlier one
// is kept and the higher priority with it. Nothing but Remove cancels it: not Add, and not a sync of the key before
// (docs/reference/contract.md#s5.2, resyncAfterSeconds). A d of zero or less is Add; one above MaxDelay is MaxDelay.
func (q *Queue[K]) AddAfter(key K, d time.Duration, p Priority) {
	if d <= 0 {
		q.AddBecause(key, p, trigger.Of(v1alpha1.SyncTimer))
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	i, at := q.item(key), q.after(d)
	if i.removed {
		return
	}
	if i.resyncAt == unset {
		i.resyncAt, i.resyncPriority = at, p.known()
	} else {
		i.resyncAt, i.resyncPriority = min(i.resyncAt, at), min(i.resyncPriority, p.known())
	}
	q.schedule(i)
}

// RetryAfter pauses key, whose sync ended with err: it is added at the given priority after d unless something adds it
// before, which ends the pause. It replaces a pause or backoff that is pending, and has no effect on a key that is queued or
// was added again while a worker has it. It serves Retry-After of a hook. The number of failures is not changed. A d of zero
// or less is Add; one above MaxDelay is MaxDelay.
func (q *Queue[K]) RetryAfter(key K, d time.Duration, p Priority, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	i := q.item(key)
	if i.removed {
		return
	}
	i.err = err
	if d <= 0 {
		q.because(i, trigger.Of(v1alpha1.SyncRetry))
		q.add(i, p.known())
	} else if q.retry(i, d, p.known()) {
		i.backsOff = false
	}
}

// Fail records a failure of key with its error and asks for key at priority Retry after its backoff: BaseDelay after the
// first failure in a row, doubling to MaxDelay, with jitter. It returns how long that is; 0 when the key has been added in
// the meantime and is going to be processed without waiting. Workers call it before Done.
func (q *Queue[K]) Fail(key K, err error) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0
	}
	i := q.item(key)
	if i.removed {
		return 0
	}
	i.failures++
	i.err = err
	d := q.backoff.delay(i.failures)
	if !q.retry(i, d, Retry) {
		return 0
	}
	i.backsOff = true
	return d
}

// RetryFailed ends the backoff of every key that waits in one and whose last error matches: its cause may be gone. A nil
// match stands for every error. Pauses that RetryAfter began go on, and the numbers of failures are kept. A key that failed
// before and that a worker has now is added again whatever its last error was: its next one may be about the former state.
// Match must not block nor call the queue.
func (q *Queue[K]) RetryFailed(match func(error) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, i := range q.items {
		if i.failures == 0 {
			continue
		}
		if i.processing || i.backsOff && i.retryAt != unset && (match == nil || match(i.err)) {
			q.because(i, trigger.Of(v1alpha1.SyncRetry))
			q.add(i, Retry)
		}
	}
}

// Failure returns how many times in a row key has failed, and the error of its last sync, nil if that succeeded.
func (q *Queue[K]) Failure(key K) (times int, last error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok {
		return int(i.failures), i.err
	}
	return 0, nil
}

// Forget sets the number of failures of key to zero and drops its last error. Work that is pending stays. Workers call it after success, before
// Done.
func (q *Queue[K]) Forget(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok {
		i.failures, i.err = 0, nil
		q.drop(i)
	}
}

// Remove drops all pending work and the failures of key, for a key whose object is gone. A worker that has the key is
// not disturbed and still must call Done; a later Add counts again.
func (q *Queue[K]) Remove(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok {
		return
	}
	if i.queued != none {
		q.lists[i.queued].remove(i)
		i.queued = none
	}
	i.again, i.held, i.failures, i.err, i.triggers = none, none, 0, nil, nil
	i.retryAt, i.resyncAt, i.removed = unset, unset, i.processing
	q.schedule(i)
	q.drop(i)
}

// Pending returns the number of keys that are queued or that a worker has. Those that are delayed or held are not among them.
func (q *Queue[K]) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.processing
	for p := range q.lists {
		n += q.lists[p].len
	}
	return n
}

// Hold says that a worker, which got key at the given priority, is going to find out whether it may process it. If it may not,
// something will release it. Until it is processed it is queued at that priority at least. Workers call it before they
// find out, and Begin if they may.
func (q *Queue[K]) Hold(key K, p Priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	i := q.item(key)
	i.held = min(i.held, p.known())
}

// Release adds a key that is held, at the priority at which it was. It does nothing for others: the key was added by other
// means, and a worker has begun with it.
func (q *Queue[K]) Release(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok && i.held != none && !q.closed {
		q.add(i, i.held)
	}
}

// Begin says that a worker begins to process key. It is held no more, and adds up to now ask for nothing else than what is
// processed now. It returns why that is, as far as the queue keeps it.
func (q *Queue[K]) Begin(key K) (why trigger.Begun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok && i.processing {
		return q.begin(i)
	}
	return why
}

// GoOn is Begin for the worker that has processed key and goes on with it at once. It returns false, and changes nothing, if nothing has added
// the key at Live since it was begun, or if the queue is paused or closed.
func (q *Queue[K]) GoOn(key K) (why trigger.Begun, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok || !i.processing || i.removed || i.again != Live || q.paused || q.closed {
		return why, false
	}
	now := q.now()
	q.metrics.Finished(now - i.takenAt)
	q.metrics.Started(now - i.addedAt)
	i.takenAt = now
	return q.begin(i), true
}

// Take gives key to the caller as Get gives it to a worker, whether or not it is queued. It returns false if a worker has it. What it is
// queued for waits until Done, which the caller must call. It has an effect after Run, too.
func (q *Queue[K]) Take(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.item(key)
	if i.processing {
		return false
	}
	if i.queued != none {
		q.lists[i.queued].remove(i)
		i.again, i.queued = i.queued, none
	}
	i.processing, i.taken, i.takenAt = true, true, q.now()
	q.processing++
	return true
}

// Pause lets Get wait although there are keys, until Resume. Keys are added, delayed and removed as ever.
func (q *Queue[K]) Pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
}

// Resume ends a pause.
func (q *Queue[K]) Resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	q.filled.Broadcast()
}

// Processing returns the number of keys that a worker has.
func (q *Queue[K]) Processing() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.processing
}

// Get waits for a key and returns it with the priority it was queued at. Keys come by priority, first in first out
// within one; every 64th comes from a less urgent priority that has any, each of them in turn. ok is false after Run,
// even when keys are left. The caller must call Done with the key.
func (q *Queue[K]) Get() (key K, p Priority, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if i := q.next(); i != nil {
			p = i.queued
			i.queued, i.processing = none, true
			q.processing++
			now := q.now()
			q.metrics.Started(now - i.addedAt)
			i.takenAt = now
			return i.key, p, true
		}
		q.filled.Wait()
	}
	return key, none, false
}

// Done says that the worker has finished with key. A key that was added in the meantime is queued now, at the highest
// priority at which it was added. It returns whether key was removed in the meantime, and not added since.
func (q *Queue[K]) Done(key K) (removed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok || !i.processing {
		return false
	}
	removed = i.removed
	taken := i.taken
	i.processing, i.removed, i.taken = false, false, false
	q.processing--
	if i.held == none && !taken {
		q.metrics.Finished(q.now() - i.takenAt)
	}
	if p := i.again; p != none && !q.closed {
		i.again = none
		q.push(i, min(p, i.held))
	}
	q.drop(i)
	return removed
}
