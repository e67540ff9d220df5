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
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// take takes a key, which must be there.
func take(q *Queue[string]) {
	key, p, _ := q.Get()
	q.Hold(key, p)
	q.Begin(key)
}

func TestStateShowsWhereEveryKeyIs(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q *Queue[string])
		want   metrics.QueueState
		errors int
	}{
		"Nothing": {reason: "An empty queue is quiet.", given: func(*Queue[string]) {}},
		"Queued": {
			reason: "Each priority is shown.",
			given: func(q *Queue[string]) {
				for _, p := range []Priority{Live, Retry, SelfTriggered, Resync} {
					q.Add(fmt.Sprint(p), p)
				}
			},
			want: metrics.QueueState{Live: 1, Retry: 1, SelfTriggered: 1, Resync: 1},
		},
		"Processing": {
			reason: "What is under way is not quiet.",
			given:  func(q *Queue[string]) { q.Add("a", Live); take(q) },
			want:   metrics.QueueState{Processing: 1, Unfinished: time.Second, Longest: time.Second},
		},
		"Again": {
			reason: "A change during a sync counts as depth.",
			given:  func(q *Queue[string]) { q.Add("a", Live); take(q); q.Add("a", Live) },
			want:   metrics.QueueState{Processing: 1, Again: 1, Unfinished: time.Second, Longest: time.Second},
		},
		"Held": {
			reason: "A key that waits for a release is in no list.",
			given: func(q *Queue[string]) {
				q.Add("a", Live)
				key, p, _ := q.Get()
				q.Hold(key, p)
				q.Done(key)
			},
			want: metrics.QueueState{Held: 1},
		},
		"Retrying": {
			reason: "A key in backoff is going to be synced without a change.",
			given:  func(q *Queue[string]) { q.RetryAfter("a", time.Hour, Retry, errBroken) },
			want:   metrics.QueueState{Retrying: 1}, errors: 1,
		},
		"Scheduled": {
			reason: "A resync that was asked for is no unrest.",
			given:  func(q *Queue[string]) { q.AddAfter("a", time.Hour, Live) },
			want:   metrics.QueueState{Scheduled: 1},
		},
		"Done": {
			reason: "A success leaves nothing.",
			given: func(q *Queue[string]) {
				q.Fail("a", errBroken)
				q.Add("a", Live)
				take(q)
				q.Forget("a")
				q.Done("a")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, c := newTestQueue(t)
			tc.given(q)
			c.Step(time.Second)
			failing := 0
			if diff := cmp.Diff(tc.want, q.State(func(error) { failing++ })); diff != "" || failing != tc.errors {
				t.Errorf("%s\n%d errors, want %d; state (-want +got):\n%s", tc.reason, failing, tc.errors, diff)
			}
		})
	}
}

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
	return Lengths{
		Live:          q.lists[Live].len,
		Retry:         q.lists[Retry].len,
		SelfTriggered: q.lists[SelfTriggered].len,
		Resync:        q.lists[Resync].len,
		Delayed:       len(q.delays),
		Processing:    q.processing,
	}
}
