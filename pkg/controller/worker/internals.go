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
	"container/heap"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// now is the time since the queue's start, plus one nanosecond so that it never is unset.
func (q *Queue[K]) now() time.Duration { return q.clock.Since(q.start) + 1 }

// after is the time d from now, MaxDelay at most.
func (q *Queue[K]) after(d time.Duration) time.Duration { return q.now() + min(d, MaxDelay) }

// The functions below are called with the lock held.

// item returns the item of key, new if there is none.
func (q *Queue[K]) item(key K) *item[K] {
	if i, ok := q.items[key]; ok {
		return i
	}
	i := q.spare.head
	if i == nil {
		i = &item[K]{}
	} else {
		q.spare.remove(i)
	}
	*i = item[K]{key: key, delayed: notDelayed, queued: none, again: none, held: none}
	q.items[key] = i
	q.most = max(q.most, len(q.items))
	return i
}

// drop forgets the item if it carries no information.
func (q *Queue[K]) drop(i *item[K]) {
	if !i.idle() {
		return
	}
	delete(q.items, i.key)
	if len(q.items) == 0 && q.most > maxSpare {
		// A map keeps the memory of the most keys that it had, such as all parents after a start.
		q.items, q.most = map[K]*item[K]{}, 0
	}
	if q.spare.len < maxSpare {
		*i = item[K]{}
		q.spare.push(i)
	}
}

// add queues the item, or notes that it is to be queued after Done.
func (q *Queue[K]) add(i *item[K], p Priority) {
	i.removed = false
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

// begin begins to process an item.
func (q *Queue[K]) begin(i *item[K]) (why trigger.Begun) {
	i.held, i.again = none, none
	if why.Triggers, i.triggers = i.triggers, nil; why.Triggers != nil {
		why.Waited = q.now() - why.Triggers.Since
	}
	return why
}

// because notes why an item is added.
func (q *Queue[K]) because(i *item[K], why trigger.Trigger) {
	if !q.triggers || why.Reason == "" {
		return
	}
	if i.triggers == nil {
		i.triggers = trigger.NewSet(q.now())
	}
	i.triggers.Add(why)
}

// added notes that an item was added which was not.
func (q *Queue[K]) added(i *item[K]) {
	i.addedAt = q.now()
	q.metrics.Added()
}

func (q *Queue[K]) push(i *item[K], p Priority) {
	i.queued = p
	q.lists[p].push(i)
	q.filled.Signal()
}

// retry delays the item unless it is going to be processed anyway, and returns whether it does.
func (q *Queue[K]) retry(i *item[K], d time.Duration, p Priority) bool {
	q.metrics.Retried()
	if i.queued != none || i.again != none {
		return false
	}
	i.retryAt, i.retryPriority = q.after(d), p
	q.schedule(i)
	return true
}

// next takes the next item unless the queue is paused; nil when there is none.
func (q *Queue[K]) next() *item[K] {
	if q.paused {
		return nil
	}
	return q.pop()
}

// pop takes the next item from the lists; nil when they are empty.
func (q *Queue[K]) pop() *item[K] {
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
// first, so that nothing waits forever.
func (q *Queue[K]) order() [priorities]Priority {
	if q.pops%agingInterval == agingInterval-1 {
		switch q.pops / agingInterval % (priorities - 1) {
		case 0:
			return [...]Priority{Resync, SelfTriggered, Retry, Live}
		case 1:
			return [...]Priority{SelfTriggered, Retry, Resync, Live}
		default:
			return [...]Priority{Retry, Resync, SelfTriggered, Live}
		}
	}
	return [...]Priority{Live, Retry, SelfTriggered, Resync}
}

// schedule puts the item where it belongs in the heap of due times, and wakes the timekeeper if it is now the first.
func (q *Queue[K]) schedule(i *item[K]) {
	due := i.due()
	switch {
	case due == unset && i.delayed == notDelayed:
		return
	case due == unset:
		// The timer stays as it is set: at worst it fires once when nothing is due, which costs less than to set it anew.
		heap.Remove(&q.delays, i.delayed)
		return
	case i.delayed == notDelayed:
		heap.Push(&q.delays, i)
	default:
		heap.Fix(&q.delays, i.delayed)
	}
	if i.delayed == 0 {
		select {
		case q.rearm <- struct{}{}:
		default:
		}
	}
}

// keepTime queues delayed items when they are due, until stop is closed. One timer, set to the earliest due time, serves them all.
func (q *Queue[K]) keepTime(stop <-chan struct{}) {
	var timer clock.Timer
	for {
		next := q.release()
		var fired <-chan time.Time
		if next != unset {
			wait := next - q.now()
			if timer == nil {
				timer = q.clock.NewTimer(wait)
			} else {
				timer.Reset(wait)
			}
			fired = timer.C()
			// The clock may have moved before the timer was set. A clock that is moved by hand would not fire then.
			if q.now() >= next {
				halt(timer)
				continue
			}
		}
		select {
		case <-fired:
		case <-q.rearm:
			halt(timer)
		case <-stop:
			halt(timer)
			return
		}
	}
}

// halt stops the timer and makes sure that its channel is empty.
func halt(timer clock.Timer) {
	if timer == nil || timer.Stop() {
		return
	}
	select {
	case <-timer.C():
	default:
	}
}

// release queues what is due and returns the next due time; unset when there is none.
func (q *Queue[K]) release() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for len(q.delays) > 0 {
		i := q.delays[0]
		if i.due() > now {
			return i.due()
		}
		p := none
		if i.retryAt != unset && i.retryAt <= now {
			p, i.retryAt = i.retryPriority, unset
			q.because(i, trigger.Of(v1alpha1.SyncRetry))
		}
		if i.resyncAt != unset && i.resyncAt <= now {
			p, i.resyncAt = min(p, i.resyncPriority), unset
			q.because(i, trigger.Of(v1alpha1.SyncTimer))
		}
		q.schedule(i)
		q.add(i, p)
	}
	return unset
}

// State returns the state of the queue for its metrics. The last error of each key whose last sync had one is given to visit,
// which must not block nor call the queue. It takes time in proportion to the number of keys.
func (q *Queue[K]) State(visit func(error)) metrics.QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := metrics.QueueState{
		Live: q.lists[Live].len, Retry: q.lists[Retry].len, SelfTriggered: q.lists[SelfTriggered].len, Resync: q.lists[Resync].len,
		Processing: q.processing,
	}
	now := q.now()
	for _, i := range q.items {
		if i.err != nil {
			visit(i.err)
		}
		if i.processing {
			took := now - i.takenAt
			s.Unfinished += took
			s.Longest = max(s.Longest, took)
		}
		count(&s.Again, i.again != none)
		count(&s.Held, i.held != none && i.queued == none && !i.processing)
		count(&s.Retrying, i.retryAt != unset)
		count(&s.Scheduled, i.resyncAt != unset)
	}
	return s
}

func count(n *int, it bool) {
	if it {
		*n++
	}
}

// Defaults of Options.
const (
	defaultBaseDelay = 5 * time.Millisecond
	defaultJitter    = 0.2
)

// backoff computes the delay after a number of consecutive failures.
type backoff struct {
	base, limit time.Duration
	jitter      float64
	random      func() float64
}

func newBackoff(o Options) backoff {
	b := backoff{base: o.BaseDelay, limit: min(o.MaxDelay, MaxDelay), jitter: o.Jitter, random: o.Random}
	if b.base <= 0 {
		b.base = defaultBaseDelay
	}
	if b.limit <= 0 {
		b.limit = DefaultMaxDelay
	}
	switch {
	case b.jitter == 0:
		b.jitter = defaultJitter
	case b.jitter < 0:
		b.jitter = 0
	case b.jitter > 1:
		b.jitter = 1
	}
	if b.random == nil {
		b.random = rand.Float64
	}
	return b
}

// delay returns the delay after the given number of consecutive failures, which is at least 1.
func (b backoff) delay(failures uint32) time.Duration {
	d := b.base
	for n := uint32(1); n < failures && d < b.limit; n++ {
		d *= 2
	}
	d = min(d, b.limit)
	return d - time.Duration(b.jitter*b.random()*float64(d))
}
