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
