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
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoffDoublesUpToTheLimit(t *testing.T) {
	cases := map[string]struct {
		reason   string
		options  Options
		failures uint32
		want     time.Duration
	}{
		"First":       {"The first failure is retried almost at once.", Options{Jitter: -1}, 1, 5 * time.Millisecond},
		"Second":      {"It doubles.", Options{Jitter: -1}, 2, 10 * time.Millisecond},
		"Tenth":       {"It doubles every time.", Options{Jitter: -1}, 10, 2560 * time.Millisecond},
		"Limit":       {"A broken hook is called every five minutes.", Options{Jitter: -1}, 30, 5 * time.Minute},
		"NoOverflow":  {"Years of failures must not wrap around.", Options{Jitter: -1}, 1 << 31, 5 * time.Minute},
		"Jitter":      {"Jitter takes off its part at most.", Options{Jitter: 0.5, Random: func() float64 { return 0.5 }}, 2, 7500 * time.Microsecond},
		"JitterAbove": {"A jitter above 1 counts as 1.", Options{Jitter: 7, Random: func() float64 { return 0.5 }}, 1, 2500 * time.Microsecond},
		"Default":     {"The default jitter is a fifth.", Options{Random: func() float64 { return 0.5 }}, 1, 4500 * time.Microsecond},
		"LimitAbove":  {"A limit too large to double counts as the largest delay.", Options{BaseDelay: time.Hour, MaxDelay: math.MaxInt64, Jitter: -1}, 60, MaxDelay},
		"Configured":  {"Base and limit can be set.", Options{BaseDelay: time.Second, MaxDelay: 3 * time.Second, Jitter: -1}, 3, 3 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newBackoff(tc.options).delay(tc.failures); got != tc.want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestFailedKeyComesBackAtPriorityRetry(t *testing.T) {
	q, c := newTestQueue(t)
	for n, want := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		if n == 0 {
			q.Add("a", Live)
		}
		key, _, _ := q.Get()
		if got := q.Fail(key, errBroken); got != want {
			t.Fatalf("failure %d: delay %s, want %s", n+1, got, want)
		}
		q.Done(key)
		if got := q.Len(); got != (Lengths{Delayed: 1}) {
			t.Fatalf("after failure %d: %+v, want one delayed key", n+1, got)
		}
		c.Step(want)
		eventually(func() bool { return q.Len() == Lengths{Retry: 1} })
	}
	key, _, _ := q.Get()
	q.Forget(key)
	q.Done(key)
	if len(q.items) != 0 {
		t.Errorf("after success: %d items, want none: neither failures nor errors are kept", len(q.items))
	}
}

func TestAddEndsTheBackoffAndKeepsTheFailures(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("a", Live)
	key, _, _ := q.Get()
	q.Fail(key, errBroken)
	q.Done(key)
	q.Add("a", Live)
	if got := q.Len(); got != (Lengths{Live: 1}) {
		t.Fatalf("a change while waiting: %+v, want one live key and no delay", got)
	}
	key, _, _ = q.Get()
	if got := q.Fail(key, errBroken); got != 10*time.Millisecond {
		t.Errorf("the next failure waits %s, want 10ms: the row of failures goes on", got)
	}
	q.Done(key)
}

func TestFailAfterAnAddDoesNotWait(t *testing.T) {
	q, _ := newTestQueue(t)
	q.Add("a", Live)
	key, _, _ := q.Get()
	q.Add("a", Live)
	if got := q.Fail(key, errBroken); got != 0 {
		t.Errorf("delay %s; want 0, for the key runs again after Done", got)
	}
	q.Done(key)
	if got := q.Len(); got != (Lengths{Live: 1}) {
		t.Errorf("%+v; want one live key", got)
	}
}

func TestAddAfter(t *testing.T) {
	cases := map[string]struct {
		reason string
		given  func(q *Queue[string])
		step   time.Duration
		then   Lengths
		want   []popped
	}{
		"KeepsTheEarliestTime": {
			reason: "A later time must not replace an earlier one (docs/reference/contract.md#s5.2).",
			given: func(q *Queue[string]) {
				q.AddAfter("a", 10*time.Second, Resync)
				q.AddAfter("a", 5*time.Second, Live)
				q.AddAfter("a", 20*time.Second, Retry)
			},
			step: 5 * time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"a", Live}},
		},
		"OutlivesASync": {
			reason: "A sync in between does not cancel resyncAfterSeconds.",
			given: func(q *Queue[string]) {
				q.AddAfter("a", 5*time.Second, Live)
				q.Add("a", Live)
				drain(q)
			},
			step: 5 * time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"a", Live}},
		},
		"ZeroIsNow": {
			reason: "A time of zero or before needs no timer.",
			given: func(q *Queue[string]) {
				q.AddAfter("a", 0, Retry)
				q.RetryAfter("b", -1, Retry, errBroken)
			},
			then: Lengths{Retry: 2},
			want: []popped{{"a", Retry}, {"b", Retry}},
		},
		"ComesInOrderOfTime": {
			reason: "One timer serves all keys in the order in which they are due.",
			given: func(q *Queue[string]) {
				q.AddAfter("c", 3*time.Second, Live)
				q.AddAfter("a", 1*time.Second, Live)
				q.AddAfter("b", 2*time.Second, Live)
				q.AddAfter("later", time.Hour, Live)
			},
			step: 3 * time.Second,
			then: Lengths{Live: 3, Delayed: 1},
			want: []popped{{"a", Live}, {"b", Live}, {"c", Live}},
		},
		"BackoffAndTimeBothCount": {
			reason: "A key may wait for its backoff and for its resync; the first comes first and the second stays.",
			given: func(q *Queue[string]) {
				q.AddAfter("a", time.Minute, Resync)
				q.RetryAfter("a", time.Second, Retry, errBroken)
			},
			step: time.Second,
			then: Lengths{Retry: 1, Delayed: 1},
			want: []popped{{"a", Retry}},
		},
		"RetryAfterReplacesAPause": {
			reason: "The newest Retry-After of a hook counts.",
			given: func(q *Queue[string]) {
				q.RetryAfter("a", time.Minute, Retry, errBroken)
				q.RetryAfter("a", time.Second, Retry, errBroken)
			},
			step: time.Second,
			then: Lengths{Retry: 1},
			want: []popped{{"a", Retry}},
		},
		"AddEndsAPause": {
			reason: "A signal that comes before the time leaves no second run behind.",
			given: func(q *Queue[string]) {
				q.RetryAfter("a", 10*time.Second, Live, errBroken)
				q.Add("a", Live)
			},
			step: 10 * time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"a", Live}},
		},
		"NeverIsNotNow": {
			reason: "A resync in a time too long to add must not become a hot loop.",
			given:  func(q *Queue[string]) { q.AddAfter("a", math.MaxInt64, Live) },
			step:   MaxDelay - time.Second,
			then:   Lengths{Delayed: 1},
		},
		"ALongRetryAfterIsNotNow": {
			reason: "A hook that asks for more patience than there are years must not be called at once.",
			given:  func(q *Queue[string]) { q.RetryAfter("a", math.MaxInt64, Retry, errBroken) },
			step:   MaxDelay - time.Second,
			then:   Lengths{Delayed: 1},
		},
		"ALongDelayIsAYear": {
			reason: "A delay is cut, not dropped.",
			given:  func(q *Queue[string]) { q.AddAfter("a", math.MaxInt64, Live) },
			step:   MaxDelay,
			then:   Lengths{Live: 1},
			want:   []popped{{"a", Live}},
		},
		"RemoveCancelsTimes": {
			reason: "A parent that is gone must not be synced later.",
			given: func(q *Queue[string]) {
				q.AddAfter("a", time.Second, Live)
				q.RetryAfter("a", time.Second, Live, errBroken)
				q.Remove("a")
				q.AddAfter("b", time.Second, Live)
			},
			step: time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"b", Live}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, c := newTestQueue(t)
			tc.given(q)
			c.Step(tc.step)
			eventually(func() bool { return q.Len() == tc.then })
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDelayDueWhileProcessedRunsAfterDone(t *testing.T) {
	q, c := newTestQueue(t)
	q.Add("a", Live)
	key, _, _ := q.Get()
	q.AddAfter("a", time.Second, Resync)
	c.Step(time.Second)
	eventually(func() bool { return q.Len() == Lengths{Processing: 1} })
	q.Done(key)
	if diff := cmp.Diff([]popped{{"a", Resync}}, drain(q)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestManyDelaysUseOneTimer(t *testing.T) {
	q, c := newTestQueue(t)
	for n := range 100 {
		q.AddAfter(string(rune('A'+n)), time.Duration(100-n)*time.Second, Live)
	}
	// The timekeeper sets its timer again for each earlier time; in between there is none.
	eventually(func() bool {
		timers := c.Waiters()
		if timers > 1 {
			t.Errorf("%d timers for 100 delayed keys, want 1", timers)
		}
		return timers == 1
	})
	c.Step(50 * time.Second)
	eventually(func() bool { return q.Len() == Lengths{Live: 50, Delayed: 50} })
	c.Step(50 * time.Second)
	eventually(func() bool { return q.Len() == Lengths{Live: 100} })
}

func TestRetryFailedEndsBackoffsOnly(t *testing.T) {
	q, c := newTestQueue(t)
	for range 10 {
		q.Fail("failed", errBroken)
	}
	q.Fail("postponed", errBroken)
	q.RetryAfter("postponed", time.Hour, Retry, errBroken)
	q.AddAfter("resync", time.Hour, Live)
	q.Fail("worked on", errBroken)
	q.Add("worked on", Live)
	if key, _, _ := q.Get(); key != "worked on" {
		t.Fatalf("got %q", key)
	}

	q.RetryFailed(nil)
	if got := drain(q); !slices.Equal(got, []popped{{"failed", Retry}}) {
		t.Errorf("ready are %v, want only the key in backoff: pauses and resyncs have their own times", got)
	}
	if n := q.items["failed"].failures; n != 10 {
		t.Errorf("%d failures are counted, want 10: it is not known yet whether the cause is gone", n)
	}
	q.Fail("worked on", errBroken)
	q.Done("worked on")
	if got := drain(q); !slices.Equal(got, []popped{{"worked on", Retry}}) {
		t.Errorf("ready are %v; a key that is failing while the cause goes must not wait for its backoff", got)
	}
	c.Step(time.Hour)
	eventually(func() bool { return q.Len().Ready() == 2 })
}

func TestRetryFailedEndsBackoffsOfMatchingErrors(t *testing.T) {
	errUnresolved := errors.New("kind is not served")
	cases := map[string]struct {
		reason string
		given  func(q *Queue[string])
		want   []popped
	}{
		"Matching": {
			"Its cause may be gone.",
			func(q *Queue[string]) { q.Fail("a", errUnresolved) },
			[]popped{{"a", Retry}},
		},
		"AnotherError": {
			"A flapping API service must not turn minutes of backoff into seconds.",
			func(q *Queue[string]) { q.Fail("a", errBroken) },
			nil,
		},
		"TheLastErrorCounts": {
			"What failed before that is not what it waits for.",
			func(q *Queue[string]) { q.Fail("a", errUnresolved); q.Fail("a", errBroken) },
			nil,
		},
		"AfterSuccess": {
			"A success ends what was remembered.",
			func(q *Queue[string]) { q.Fail("a", errUnresolved); q.Forget("a"); q.Fail("a", errBroken) },
			nil,
		},
		"Removed": {
			"So does the end of the object.",
			func(q *Queue[string]) { q.Fail("a", errUnresolved); q.Remove("a") },
			nil,
		},
		"Postponed": {
			"A hook that asked to be called later is called later.",
			func(q *Queue[string]) { q.Fail("a", errBroken); q.RetryAfter("a", time.Hour, Retry, errUnresolved) },
			nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, _ := newTestQueue(t)
			tc.given(q)
			q.RetryFailed(func(err error) bool { return errors.Is(err, errUnresolved) })
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
