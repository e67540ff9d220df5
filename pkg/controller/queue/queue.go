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

package queue

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Config describes a queue and its workers. Only Random and Metrics may be nil.
type Config struct {
	// Workers is the number of keys that are synced at the same time.
	Workers int
	// Sync is never called for one key by two goroutines at once. Its context ends with the Grace, and has the cause of the end of Run's then.
	Sync Sync
	// Ready reports whether a key may be synced now. After it returned false, [Queue.Release] is to be called as soon as the
	// key may be synced, from any goroutine.
	Ready func(key parent.Key) bool
	// Failed reports an error that is retried with back-off: an event, usually.
	Failed func(ctx context.Context, key parent.Key, err error)
	// Waits reports a parent whose syncs have to wait for more than a minute, though nothing has failed, and when the next one is.
	Waits func(ctx context.Context, key parent.Key, err error, after time.Duration)
	// Recovered reports that a parent was synced again after its last sync had failed.
	Recovered func(key parent.Key)
	// Processed is called when a worker is done with a key, synced or not. It must not block.
	Processed func()
	// Random returns numbers in [0,1) for the jitter of back-offs, and must be safe for concurrent use. Nil: math/rand/v2.
	Random func() float64
	// Metrics are the series of the controller, which Run shows. Nil: none.
	Metrics *metrics.Controller
	// Triggers says that it is kept why keys are synced.
	Triggers bool
}

// Counters count what a queue did. They are safe for concurrent use.
type Counters struct {
	// Syncs counts syncs that ended without an error, Failed those whose error was reported.
	Syncs, Failed atomic.Int64
}

// Queue is a deduplicating priority queue of keys with the workers that sync them. It is safe for concurrent use. All methods may be called
// before Run, when nothing is synced and no delay ends.
type Queue struct {
	// Counters count what the queue did.
	Counters Counters

	config  Config
	metrics *metrics.Queue
	start   time.Time
	// rearm says that a time is earlier than all before.
	rearm chan struct{}
	// waiting are the goroutines that wait for what syncs have to wait for.
	waiting sync.WaitGroup

	mu     sync.Mutex
	filled sync.Cond
	items  map[parent.Key]*item
	lists  [priorities]fifo
	delays delays
	// failing are the items whose last sync failed, in order, which begins with the one that has failed for the longest time.
	failing    list.List
	pops       uint64
	processing int
	paused     bool
	closed     bool
}

// New returns a queue and starts nothing. Keys may be added at once; they are synced by Run.
func New(c Config) *Queue {
	if c.Random == nil {
		c.Random = rand.Float64
	}
	q := &Queue{config: c, metrics: c.Metrics.Queue(), start: time.Now(), rearm: make(chan struct{}, 1), items: map[parent.Key]*item{}}
	q.filled.L = &q.mu
	q.metrics.Observe(q.state)
	return q
}

// Add asks for key to be synced at the given priority, and says why, as far as that is known. A key that is queued already stays queued once, at
// the higher of both priorities. A key that a worker has is synced again after that. A back-off or pause of the key ends; the number of its
// failures is kept.
func (q *Queue) Add(key parent.Key, p Priority, why ...history.Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(q.item(key), p, why...)
}

// AddAfter asks for key to be synced after a time, a year at most. When such a time is pending already, the earlier one is kept. Nothing but Forget
// cancels it: not Add, and not a sync of the key before (docs/reference/contract.md#s5.2, resyncAfterSeconds).
func (q *Queue) AddAfter(key parent.Key, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addAfter(q.item(key), after, Live)
}

// Release adds a key for which Ready returned false, at the priority that it had. It does nothing for others.
func (q *Queue) Release(key parent.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok && i.held != none {
		q.add(i, i.held)
	}
}

// Reset has the back-off of a key start over: its parent changed.
func (q *Queue) Reset(key parent.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok {
		i.failures = 0
	}
}

// Forget drops all that is pending or known of a parent that is gone. A worker that syncs it is not disturbed, and what that sync asks for
// does not count; a later Add does.
func (q *Queue) Forget(key parent.Key) {
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
	i.again, i.held, i.triggers = none, none, nil
	i.retryAt, i.resyncAt, i.removed = unset, unset, i.processing
	q.schedule(i)
	q.ended(i, nil)
	q.drop(i)
}

// RetryFailed ends the back-off of every key that waits in one and whose last error matches: its cause may be gone. A nil match stands for every
// error. Pauses that a hook asked for go on, and the numbers of failures are kept. A key that failed before and that a worker has now is added
// again whatever its last error was: its next one may be about the former state. Match must not block nor call the queue.
func (q *Queue) RetryFailed(match func(error) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.items {
		if i.failures == 0 {
			continue
		}
		if i.processing || i.backsOff && i.retryAt != unset && (match == nil || match(i.last.err)) {
			q.add(i, Retry, history.Of(v1alpha1.SyncRetry))
		}
	}
}

// The functions below are called with the lock held.

// item returns the item of key, new if there is none.
func (q *Queue) item(key parent.Key) *item {
	i, ok := q.items[key]
	if !ok {
		i = &item{key: key, delayed: notDelayed, queued: none, again: none, held: none}
		q.items[key] = i
	}
	return i
}

// drop forgets the item if it carries no information.
func (q *Queue) drop(i *item) {
	if i.queued != none || i.held != none || i.delayed != notDelayed || i.processing || i.last != nil {
		return
	}
	delete(q.items, i.key)
	if len(q.items) == 0 {
		// A map keeps the memory of the most keys that it had, such as all parents after a start.
		q.items = map[parent.Key]*item{}
	}
}

// add queues the item, or notes that it is to be queued when the worker that has it is done.
func (q *Queue) add(i *item, p Priority, why ...history.Trigger) {
	i.removed = false
	if q.config.Triggers {
		for _, each := range why {
			if i.triggers == nil {
				i.triggers = &history.Set{Since: q.now()}
			}
			i.triggers.Add(each)
		}
	}
	if i.retryAt != unset {
		i.retryAt = unset
		q.schedule(i)
	}
	p = min(p, i.held)
	switch {
	case i.processing:
		if i.again == none {
			q.added(i)
		}
		i.again = min(i.again, p)
		return
	case i.queued <= p:
		return
	case i.queued != none:
		q.lists[i.queued].remove(i)
	default:
		q.added(i)
	}
	q.push(i, p)
}

// added notes that an item was added which was not.
func (q *Queue) added(i *item) {
	i.addedAt = q.now()
	q.metrics.Added()
}

func (q *Queue) push(i *item, p Priority) {
	i.queued = p
	q.lists[p].push(i)
	q.filled.Signal()
}

// item is all that the queue knows about one key. It exists as long as there is something to know.
type item struct {
	key        parent.Key
	prev, next *item

	// retryAt is when the key is added unless it is added before: back-off and pauses.
	retryAt time.Duration
	// resyncAt is when the key is added at resyncPriority in any case: AddAfter.
	resyncAt time.Duration
	// addedAt is when the key was queued, or was to be queued again. takenAt is when a worker got it.
	addedAt, takenAt time.Duration
	// triggers are why the key is to be synced; nil if that is not known.
	triggers *history.Set
	// last is the error of the last sync, unless it succeeded.
	last *failure
	// failing is its place among the items whose last sync failed; nil for others.
	failing *list.Element
	// stopWaiting ends the wait for what a sync had to wait for; nil if there was none since the last one that succeeded.
	stopWaiting context.CancelFunc
	// cut ends the context of the sync that is under way; nil if there is none.
	cut context.CancelCauseFunc
	// delayed is the position in the heap of due times.
	delayed int
	// failures is how many syncs in a row failed or had to wait, conflicts how many ended with a conflict and no failure: what had to wait
	// between them does not count, nor does a change of the parent.
	failures, conflicts uint32

	resyncPriority Priority
	// queued is the list that the item is in; none when it is in no list.
	queued Priority
	// again is the priority of adds while a worker has the key; none without such adds.
	again Priority
	// held is the most urgent priority at which a worker got the key and has not begun to sync it; none without such.
	held       Priority
	processing bool
	// removed says that the key was forgotten while a worker has it: what the worker asks for at the end does not count.
	removed bool
	// backsOff says that retryAt is a back-off, not a pause that a hook asked for.
	backsOff bool
	// reported says that an error was since the last sync that succeeded, be it that the last one had to wait.
	reported bool
}

// Priority says how urgent a key is. The smaller value goes first.
type Priority int8

const (
	// Live is for a change of others than the controller: of a parent, a child, a related object or a definition.
	Live Priority = iota
	// Retry is for a sync that failed before and whose back-off has ended.
	Retry
	// SelfTriggered is for a sync whose only cause is what the sync before it wrote: only the hook waits for it.
	SelfTriggered
	// Resync is for syncs without a known change: periodic resyncs and the initial list after a start.
	Resync

	priorities = 4

	// none marks the absence of a priority. It is larger than every priority, so that min works.
	none Priority = priorities
)

// agingInterval is how many keys are taken by priority before one is taken from a less urgent list.
const agingInterval = 64

// next takes the next item from the lists; nil when there is none, or the queue is paused. It is called with the lock held.
func (q *Queue) next() *item {
	if q.paused {
		return nil
	}
	for _, p := range q.order() {
		if i := q.lists[p].head; i != nil {
			q.lists[p].remove(i)
			q.pops++
			return i
		}
	}
	return nil
}

// order returns in which order the lists are looked through: by urgency, except that now and then a less urgent one is the
// first, each in turn, so that nothing waits forever.
func (q *Queue) order() [priorities]Priority {
	if q.pops%agingInterval == agingInterval-1 {
		return [...][priorities]Priority{
			{Resync, SelfTriggered, Retry, Live}, {SelfTriggered, Retry, Resync, Live}, {Retry, Resync, SelfTriggered, Live},
		}[q.pops/agingInterval%(priorities-1)]
	}
	return [...]Priority{Live, Retry, SelfTriggered, Resync}
}

// fifo is a doubly linked list through the items themselves; an item is in one at most.
type fifo struct {
	head, tail *item
	len        int
}

func (l *fifo) push(i *item) {
	i.prev, i.next = l.tail, nil
	if l.tail == nil {
		l.head = i
	} else {
		l.tail.next = i
	}
	l.tail = i
	l.len++
}

func (l *fifo) remove(i *item) {
	if i.prev == nil {
		l.head = i.next
	} else {
		i.prev.next = i.next
	}
	if i.next == nil {
		l.tail = i.prev
	} else {
		i.next.prev = i.prev
	}
	i.prev, i.next = nil, nil
	l.len--
}
