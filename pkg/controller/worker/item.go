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
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

// unset is the absence of a due time. Due times are counted from the queue's start and are at least 1.
const unset time.Duration = 0

// notDelayed is the heap position of an item that has no due time.
const notDelayed = -1

// item is all that the queue knows about one key. It exists as long as there is something to know.
type item[K comparable] struct {
	key        K
	prev, next *item[K]

	// retryAt is when the key is added at retryPriority unless it is added before: backoff and pauses.
	retryAt time.Duration
	// resyncAt is when the key is added at resyncPriority in any case: AddAfter.
	resyncAt time.Duration
	// addedAt is when the key was queued, or was to be queued again after Done. takenAt is when a worker got it.
	addedAt, takenAt time.Duration
	// err is the error of the last sync, unless it succeeded.
	err error
	// triggers are why the key is to be processed; nil if that is not known.
	triggers *trigger.Set
	// delayed is the position in the heap of due times.
	delayed  int
	failures uint32

	retryPriority, resyncPriority Priority
	// queued is the list that the item is in; none when it is in no list.
	queued Priority
	// again is the priority of adds while a worker has the key; none without such adds.
	again Priority
	// held is the most urgent priority at which a worker got the key and has not begun to process it; none without such.
	held       Priority
	processing bool
	// taken says that Take gave the key away, and not Get.
	taken bool
	// removed says that the key was removed while a worker has it: what the worker asks for at the end does not count.
	removed bool
	// backsOff says that retryAt is a backoff, not a pause that a hook asked for.
	backsOff bool
}

// due is the earliest time at which something is to be done; unset when there is none.
func (i *item[K]) due() time.Duration {
	switch {
	case i.retryAt == unset:
		return i.resyncAt
	case i.resyncAt == unset:
		return i.retryAt
	default:
		return min(i.retryAt, i.resyncAt)
	}
}

// idle tells that the item carries no information and can go.
func (i *item[K]) idle() bool {
	return i.queued == none && i.held == none && i.delayed == notDelayed && !i.processing && i.failures == 0 && i.err == nil
}

// fifo is a doubly linked list through the items themselves; an item is in one list at most.
type fifo[K comparable] struct {
	head, tail *item[K]
	len        int
}

func (l *fifo[K]) push(i *item[K]) {
	i.prev, i.next = l.tail, nil
	if l.tail == nil {
		l.head = i
	} else {
		l.tail.next = i
	}
	l.tail = i
	l.len++
}

func (l *fifo[K]) remove(i *item[K]) {
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

// delays is a heap of items by due time, for container/heap.
type delays[K comparable] []*item[K]

func (h delays[K]) Len() int           { return len(h) }
func (h delays[K]) Less(a, b int) bool { return h[a].due() < h[b].due() }

func (h delays[K]) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].delayed, h[b].delayed = a, b
}

// Push appends x, which is an *item[K].
func (h *delays[K]) Push(x any) {
	i, ok := x.(*item[K])
	if !ok {
		return
	}
	i.delayed = len(*h)
	*h = append(*h, i)
}

// Pop removes the last item.
func (h *delays[K]) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	i.delayed = notDelayed
	return i
}

// Priority says how urgent a key is. The smaller value goes first.
type Priority int8

const (
	// Live is for a change of others than the controller: of a parent, a child, a related object or a definition.
	Live Priority = iota
	// Retry is for a sync that failed before and whose backoff has ended.
	Retry
	// SelfTriggered is for a sync whose only cause is what the sync before it wrote: only the hook waits for it.
	SelfTriggered
	// Resync is for syncs without a known change: periodic resyncs and the initial list after a start.
	Resync

	priorities = 4

	// none marks the absence of a priority. It is larger than every priority, so that min works.
	none Priority = priorities
)

// known maps values outside of the priorities to Resync, so that a wrong value costs urgency and nothing else.
func (p Priority) known() Priority {
	if p < Live || p > Resync {
		return Resync
	}
	return p
}
