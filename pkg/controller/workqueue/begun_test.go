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
	"slices"
	"testing"
)

// syncOnce takes a key and ends its sync, which wrote children or did not.
func syncOnce(q *Queue[string], wrote bool, during func(key string)) popped {
	key, p, _ := q.Get()
	q.Begin(key)
	if during != nil {
		during(key)
	}
	q.Continue(key, wrote)
	q.Done(key)
	return popped{key, p}
}

func TestWhatWasBegunIsFinishedFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		wrote  bool
		// cause asks for the next sync of "begun", during the sync that wrote children or after it.
		during, after func(q *Queue[string])
		want          []popped
	}{
		"AfterItsEvents": {
			"The events of its children finish a parent.", true,
			nil, func(q *Queue[string]) { q.Add("begun", Live) },
			[]popped{{"begun", Begun}, {"new", Live}},
		},
		"EventsDuringTheSync": {
			"Events may be faster than the responses to the writes.", true,
			func(q *Queue[string]) { q.Add("begun", Live) }, nil,
			[]popped{{"begun", Begun}, {"new", Live}},
		},
		"HeldAndReleased": {
			"A parent that waits for its expectations keeps its urgency.", true,
			nil, func(q *Queue[string]) {
				q.Add("begun", Live)
				key, p, _ := q.Get()
				q.Hold(key, p)
				q.Done(key)
				q.Release("begun")
			},
			[]popped{{"begun", Begun}, {"new", Live}},
		},
		"NothingWritten": {
			"A parent that is finished is one of many.", false,
			nil, func(q *Queue[string]) { q.Add("begun", Live) },
			[]popped{{"new", Live}, {"begun", Live}},
		},
		"OnlyItsOwnStatus": {
			"For what the hook alone waits nobody else waits.", true,
			nil, func(q *Queue[string]) { q.Add("begun", SelfTriggered) },
			[]popped{{"new", Live}, {"begun", SelfTriggered}},
		},
		"Removed": {
			"A parent that comes again was not begun.", true,
			nil, func(q *Queue[string]) { q.Remove("begun"); q.Add("begun", Live) },
			[]popped{{"new", Live}, {"begun", Live}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := newTestQueue(t)
			q.Add("begun", Live)
			q.Add("new", Live)
			syncOnce(q, tc.wrote, func(string) {
				if tc.during != nil {
					tc.during(q)
				}
			})
			if tc.after != nil {
				tc.after(q)
			}
			if got := drain(q); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestAParentThatNeverEndsIsNotUrgentForever(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("loop", Live)
	var urgent int
	for range 3 * maxBegun {
		if got := syncOnce(q, true, func(key string) { q.Add(key, Live) }); got.Priority == Begun {
			urgent++
		}
	}
	if urgent != maxBegun {
		t.Errorf("it went before others %d times, want %d", urgent, maxBegun)
	}
	syncOnce(q, false, nil)
	q.Add("loop", Live)
	syncOnce(q, true, func(key string) { q.Add(key, Live) })
	if got := syncOnce(q, false, nil); got.Priority != Begun {
		t.Errorf("after it had come to an end, it goes at %v", got.Priority)
	}
}

// TestParentsThatNeverEndDoNotStarveOthers lets many parents loop: those that wait at Live before another one are synced once each.
func TestParentsThatNeverEndDoNotStarveOthers(t *testing.T) {
	q, _ := newTestQueue(t)
	for n := range 100 {
		q.Add(string(rune('A'+n)), Live)
	}
	loop := func(key string) { q.Add(key, Live) }
	for range 100 {
		syncOnce(q, true, loop)
	}
	limit := liveInterval * (q.lists[Live].len + 1)
	q.Add("other", Live)
	for range limit {
		if syncOnce(q, true, loop).Key == "other" {
			return
		}
	}
	t.Errorf("it did not have its turn among %d", limit)
}

func TestTake(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("queued", Live)
	q.Add("next", Live)
	if !q.Take("queued") || q.Take("queued") {
		t.Error("a key is taken never, or twice")
	}
	if got := q.Processing(); got != 1 {
		t.Errorf("%d keys are processed", got)
	}
	key, _, _ := q.Get()
	if key != "next" || q.Take("next") {
		t.Errorf("a worker got %q, and so did another one", key)
	}
	q.Done("next")
	q.Add("queued", Retry)
	q.Done("queued")
	if got, want := drain(q), []popped{{"queued", Live}}; !slices.Equal(got, want) {
		t.Errorf("what a taken key was queued for became %v, want %v", got, want)
	}
	if !q.Take("idle") {
		t.Error("a key that is not queued cannot be taken")
	}
	q.Done("idle")
	if len(q.items) != 0 {
		t.Errorf("%d keys are remembered", len(q.items))
	}
	q.Pause()
	q.Add("paused", Live)
	if !q.Take("paused") {
		t.Error("a pause keeps a key from being taken")
	}
	q.Done("paused")
}
