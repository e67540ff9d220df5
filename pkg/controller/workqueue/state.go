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
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Lengths are the numbers of keys in a queue. A key that is processed or delayed may be counted there as well as in one
// of the priorities.
type Lengths struct {
	// Live, Retry, SelfTriggered and Resync are the keys ready to be processed, by priority.
	Live, Retry, SelfTriggered, Resync int
	// Delayed are the keys that wait for a time.
	Delayed int
	// Processing are the keys that workers have.
	Processing int
}

// Ready is the number of keys ready to be processed.
func (l Lengths) Ready() int { return l.Live + l.Retry + l.SelfTriggered + l.Resync }

// Len returns how many keys there are.
func (q *Queue[K]) Len() Lengths {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.len()
}

func (q *Queue[K]) len() Lengths {
	return Lengths{
		Live:          q.lists[Live].len,
		Retry:         q.lists[Retry].len,
		SelfTriggered: q.lists[SelfTriggered].len,
		Resync:        q.lists[Resync].len,
		Delayed:       len(q.delays),
		Processing:    q.processing,
	}
}

// State returns the state of the queue for its metrics. The last error of each key whose last sync had one is given to visit,
// which must not block nor call the queue. It takes time in proportion to the number of keys.
func (q *Queue[K]) State(visit func(error)) metrics.QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.len()
	s := metrics.QueueState{
		Live: l.Live, Retry: l.Retry, SelfTriggered: l.SelfTriggered, Resync: l.Resync, Processing: l.Processing,
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
