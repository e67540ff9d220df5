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

package workqueue

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// agingInterval is how many keys are taken by priority before one is taken from a less urgent list.
const agingInterval = 64

// maxSpare bounds the memory kept for items that are not in use.
const maxSpare = 1024

// Options configures a Queue. The zero value is usable.
type Options struct {
	// Clock is the source of time. Default: the real clock.
	Clock clock.Clock
	// BaseDelay is the delay after the first failure of a key; it doubles with every further one. Default 5 ms.
	BaseDelay time.Duration
	// MaxDelay is the longest delay after a failure. Default 5 minutes.
	MaxDelay time.Duration
	// Jitter is the part of the delay after a failure that is random: the delay d becomes a value between d*(1-Jitter)
	// and d. Values above 1 count as 1. Default (zero) 0.2; a negative value means no jitter.
	Jitter float64
	// Random returns a number in [0,1) and must be safe for concurrent use. Default: math/rand/v2.
	Random func() float64
}

// Queue is a deduplicating priority queue of keys. It is safe for concurrent use. It owns one goroutine from New to
// ShutDown. After ShutDown all methods may still be called and have no effect.
type Queue[K comparable] struct {
	clock   clock.Clock
	start   time.Time
	backoff backoff

	stop  chan struct{}
	rearm chan struct{}
	ended sync.WaitGroup

	mu         sync.Mutex
	filled     sync.Cond
	items      map[K]*item[K]
	lists      [priorities]list[K]
	delays     delays[K]
	spare      list[K]
	pops       uint64
	processing int
	closed     bool
}

// New returns a queue that is ready for use. The caller must call ShutDown when it is done with it.
func New[K comparable](o Options) *Queue[K] {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	q := &Queue[K]{
		clock:   o.Clock,
		start:   o.Clock.Now(),
		backoff: newBackoff(o),
		stop:    make(chan struct{}),
		rearm:   make(chan struct{}, 1),
		items:   map[K]*item[K]{},
	}
	q.filled.L = &q.mu
	q.ended.Go(q.keepTime)
	return q
}

// Add asks for key to be processed at the given priority. A key that is queued already stays queued once, at the
// higher of both priorities. A key that a worker has is processed again after Done. A backoff or pause of the key ends;
// the number of its failures is kept.
func (q *Queue[K]) Add(key K, p Priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.add(q.item(key), p.known())
}

// AddAfter asks for key to be added at the given priority after d. When such a time is pending already, the earlier one
// is kept and the higher priority with it. Nothing but Remove cancels it: not Add, and not a sync of the key before
// (docs/reference/contract.md#s5.2, resyncAfterSeconds). A d of zero or less is Add.
func (q *Queue[K]) AddAfter(key K, d time.Duration, p Priority) {
	if d <= 0 {
		q.Add(key, p)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	i, at := q.item(key), q.now()+d
	if i.resyncAt == unset {
		i.resyncAt, i.resyncPriority = at, p.known()
	} else {
		i.resyncAt, i.resyncPriority = min(i.resyncAt, at), min(i.resyncPriority, p.known())
	}
	q.schedule(i)
}

// RetryAfter pauses key: it is added at the given priority after d unless something adds it before, which ends the
// pause. It replaces a pause or backoff that is pending, and has no effect on a key that is queued or asked for again
// while a worker has it. It serves Retry-After of a hook and waits for a condition which is signaled by Add. The number
// of failures is not changed. A d of zero or less is Add.
func (q *Queue[K]) RetryAfter(key K, d time.Duration, p Priority) {
	if d <= 0 {
		q.Add(key, p)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if i := q.item(key); q.retry(i, d, p.known()) {
		i.backsOff = false
	}
}

// Fail records a failure of key and asks for it at priority Retry after its backoff: BaseDelay after the first failure
// in a row, doubling to MaxDelay, with jitter. It returns how long that is; 0 when the key has been added in the meantime
// and is going to be processed without waiting. Workers call it before Done.
func (q *Queue[K]) Fail(key K) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0
	}
	i := q.item(key)
	i.failures++
	d := q.backoff.delay(i.failures)
	if !q.retry(i, d, Retry) {
		return 0
	}
	i.backsOff = true
	return d
}

// RetryFailed ends the backoff of every key that waits in one: what made them fail may be mended. Pauses that RetryAfter
// began go on, and the numbers of failures are kept. A key that failed before and that a worker has now is asked for again.
func (q *Queue[K]) RetryFailed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, i := range q.items {
		if i.failures > 0 && (i.processing || i.backsOff && i.retryAt != unset) {
			q.add(i, Retry)
		}
	}
}

// Forget sets the number of failures of key to zero. Work that is pending stays. Workers call it after success, before
// Done.
func (q *Queue[K]) Forget(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok {
		i.failures = 0
		q.drop(i)
	}
}

// Failures returns how many times in a row key has failed.
func (q *Queue[K]) Failures(key K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok {
		return int(i.failures)
	}
	return 0
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
	i.again, i.held, i.failures = none, none, 0
	i.retryAt, i.resyncAt = unset, unset
	q.schedule(i)
	q.drop(i)
}

// Hold says that a worker, which got key at the given priority, asks whether it may process it. If not, something will release
// it. Until it is processed it is queued at that priority at least. Workers call it before they ask, and Begin after a yes.
func (q *Queue[K]) Hold(key K, p Priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	i := q.item(key)
	i.held = min(i.held, p.known())
}

// Release adds a key that is held, at the priority at which it was. It does nothing for others: somebody else has added the
// key, and a worker has begun with it.
func (q *Queue[K]) Release(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok && i.held != none && !q.closed {
		q.add(i, i.held)
	}
}

// Begin says that a worker begins to process key. It is held no more, and adds up to now ask for nothing else than what is
// processed now.
func (q *Queue[K]) Begin(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok && i.processing {
		i.held, i.again = none, none
	}
}

// Get waits for a key and returns it with the priority it was queued at. Keys come by priority, first in first out
// within one; every 64th comes from a less urgent priority that has any, each of them in turn. ok is false after ShutDown,
// even when keys are left. The caller must call Done with the key.
func (q *Queue[K]) Get() (key K, p Priority, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if i := q.pop(); i != nil {
			p = i.queued
			i.queued, i.processing = none, true
			q.processing++
			return i.key, p, true
		}
		q.filled.Wait()
	}
	return key, none, false
}

// Done tells that the worker has finished with key. A key that was added in the meantime is queued now, at the highest
// priority that was asked for.
func (q *Queue[K]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok || !i.processing {
		return
	}
	i.processing = false
	q.processing--
	if p := i.again; p != none && !q.closed {
		i.again = none
		q.add(i, p)
	}
	q.drop(i)
}

// ShutDown makes every Get return false, and waits for the queue's own goroutine to end. It does not wait for workers.
// It may be called more than once.
func (q *Queue[K]) ShutDown() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.stop)
		q.filled.Broadcast()
	}
	q.mu.Unlock()
	q.ended.Wait()
}

// Lengths are the numbers of keys in a queue. A key that is processed or delayed may be counted there as well as in one
// of the priorities.
type Lengths struct {
	// Live, Retry, Echo and Resync are the keys ready to be processed, by priority.
	Live, Retry, Echo, Resync int
	// Delayed are the keys that wait for a time.
	Delayed int
	// Processing are the keys that workers have.
	Processing int
}

// Ready is the number of keys ready to be processed.
func (l Lengths) Ready() int { return l.Live + l.Retry + l.Echo + l.Resync }

// Len returns how many keys there are.
func (q *Queue[K]) Len() Lengths {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Lengths{
		Live:       q.lists[Live].len,
		Retry:      q.lists[Retry].len,
		Echo:       q.lists[Echo].len,
		Resync:     q.lists[Resync].len,
		Delayed:    len(q.delays),
		Processing: q.processing,
	}
}
