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
	"container/heap"
	"context"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
)

const (
	// MaxBackoff is the longest delay after a failure, however many there were.
	MaxBackoff = 5 * time.Minute
	// firstBackoff is the delay after the first failure of a key; it doubles with every further one.
	firstBackoff = 5 * time.Millisecond
	// jitter is the part of the delay after a failure that is random.
	jitter = 0.2
	// maxDelay is the longest time that a key is delayed: a year and a thousand years are the same to a process.
	maxDelay = 365 * 24 * time.Hour

	// unset is the absence of a due time. Due times are counted from the queue's start and are at least 1.
	unset time.Duration = 0
	// notDelayed is the heap position of an item that has no due time.
	notDelayed = -1
)

// Earliest returns the smaller of two times that are given; zero or less stands for none.
func Earliest(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// backoff returns the delay after a number of consecutive failures, which is at least 1.
func backoff(failures uint32, random func() float64) time.Duration {
	d := firstBackoff
	for n := uint32(1); n < failures && d < MaxBackoff; n++ {
		d *= 2
	}
	d = min(d, MaxBackoff)
	return d - time.Duration(jitter*random()*float64(d))
}

// now is the time since the queue's start, plus one nanosecond so that it never is unset.
func (q *Queue) now() time.Duration { return time.Since(q.start) + 1 }

// after is the time d from now, maxDelay at most.
func (q *Queue) after(d time.Duration) time.Duration { return q.now() + min(max(d, 0), maxDelay) }

// addAfter is AddAfter at a priority, with the lock held.
func (q *Queue) addAfter(i *item, d time.Duration, p Priority) {
	if i.removed {
		return
	}
	at := q.after(d)
	if i.resyncAt == unset {
		i.resyncAt, i.resyncPriority = at, p
	} else {
		i.resyncAt, i.resyncPriority = min(i.resyncAt, at), min(i.resyncPriority, p)
	}
	q.schedule(i)
}

// schedule puts the item where it belongs in the heap of due times, and wakes the timekeeper if it is now the first. It is called with the lock
// held.
func (q *Queue) schedule(i *item) {
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

// keepTime queues delayed items when they are due, until ctx ends. One timer, set to the earliest due time, serves them all.
func (q *Queue) keepTime(ctx context.Context) {
	timer := time.NewTimer(maxDelay)
	defer timer.Stop()
	for {
		if next := q.due(); next != unset {
			timer.Reset(next - q.now())
		}
		select {
		case <-timer.C:
		case <-q.rearm:
		case <-ctx.Done():
			return
		}
	}
}

// due queues what is due and returns the next due time; unset when there is none.
func (q *Queue) due() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for len(q.delays) > 0 {
		i := q.delays[0]
		if i.due() > now {
			return i.due()
		}
		p, why := none, make([]history.Trigger, 0, 2)
		if i.retryAt != unset && i.retryAt <= now {
			p, i.retryAt, why = Retry, unset, append(why, history.Of(v1alpha1.SyncRetry))
		}
		if i.resyncAt != unset && i.resyncAt <= now {
			p, i.resyncAt, why = min(p, i.resyncPriority), unset, append(why, history.Of(v1alpha1.SyncTimer))
		}
		q.schedule(i)
		q.add(i, p, why...)
	}
	return unset
}

// due is the earliest time at which something is to be done; unset when there is none.
func (i *item) due() time.Duration { return Earliest(i.retryAt, i.resyncAt) }

// delays is a heap of items by due time, for container/heap.
type delays []*item

func (h delays) Len() int           { return len(h) }
func (h delays) Less(a, b int) bool { return h[a].due() < h[b].due() }

func (h delays) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].delayed, h[b].delayed = a, b
}

// Push appends x, which is an *item.
func (h *delays) Push(x any) {
	i := x.(*item) //nolint:forcetypeassert // Only schedule pushes.
	i.delayed = len(*h)
	*h = append(*h, i)
}

// Pop removes the last item.
func (h *delays) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	i.delayed = notDelayed
	return i
}
