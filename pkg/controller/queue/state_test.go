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
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

func TestStateShowsWhereEveryKeyIs(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q byName)
		want   metrics.QueueState
	}{
		"Nothing": {reason: "An empty queue is quiet.", given: func(byName) {}},
		"Queued": {
			reason: "Each priority is shown.",
			given: func(q byName) {
				for _, p := range []Priority{Live, Retry, SelfTriggered, Resync} {
					q.Add(fmt.Sprint(p), p)
				}
			},
			want: metrics.QueueState{Live: 1, Retry: 1, SelfTriggered: 1, Resync: 1},
		},
		"Processing": {
			reason: "What is under way is not quiet.",
			given:  func(q byName) { q.Add("a", Live); q.Get() },
			want:   metrics.QueueState{Processing: 1, Unfinished: time.Second, Longest: time.Second},
		},
		"Again": {
			reason: "A change during a sync counts as depth.",
			given:  func(q byName) { q.Add("a", Live); q.Get(); q.Add("a", Live) },
			want:   metrics.QueueState{Processing: 1, Again: 1, Unfinished: time.Second, Longest: time.Second},
		},
		"Held": {
			reason: "A key that waits for a release is in no list.",
			given: func(q byName) {
				q.Add("a", Live)
				key, _ := q.Hold()
				q.Done(key)
			},
			want: metrics.QueueState{Held: 1},
		},
		"Retrying": {
			reason: "A key in backoff is going to be synced without a change.",
			given:  func(q byName) { q.Fail("a", errBroken); q.Fail("b", later{time.Hour}); q.Fail("c", &WaitError{}) },
			want:   metrics.QueueState{Retrying: 3, Failing: 1, Postponed: 1, Waiting: 1},
		},
		"Scheduled": {
			reason: "A resync that was asked for is no unrest.",
			given:  func(q byName) { q.AddAfter("a", time.Hour) },
			want:   metrics.QueueState{Scheduled: 1},
		},
		"Done": {
			reason: "A success leaves nothing.",
			given: func(q byName) {
				q.Fail("a", errBroken)
				q.Add("a", Live)
				q.Get()
				q.Succeed("a")
				q.Done("a")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(Config{})
				tc.given(byName{q, t.Context()})
				<-time.After(time.Second)
				if diff := cmp.Diff(tc.want, q.state()); diff != "" {
					t.Errorf("%s\nstate (-want +got):\n%s", tc.reason, diff)
				}
			})
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
func (q *Queue) Len() Lengths {
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
