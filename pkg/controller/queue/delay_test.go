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
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

func TestBackoffDoublesUpToTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		failures uint32
		random   float64
		want     time.Duration
	}{
		"First":      {"The first failure is retried almost at once.", 1, 0, 5 * time.Millisecond},
		"Second":     {"It doubles.", 2, 0, 10 * time.Millisecond},
		"Tenth":      {"It doubles every time.", 10, 0, 2560 * time.Millisecond},
		"Limit":      {"A broken hook is called every five minutes.", 30, 0, 5 * time.Minute},
		"NoOverflow": {"Years of failures must not wrap around.", 1 << 31, 0, 5 * time.Minute},
		"Jitter":     {"Jitter takes off a fifth at most.", 1, 0.5, 4500 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backoff(tc.failures, func() float64 { return tc.random }); got != tc.want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestFailedKeyComesBackAtPriorityRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		q.Add("a", Live)
		for n, want := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
			key, _ := q.Get()
			if got := q.Fail(key, errBroken); got != want {
				t.Fatalf("failure %d: delay %s, want %s", n+1, got, want)
			}
			q.Done(key)
			if got := q.Len(); got != (Lengths{Delayed: 1}) {
				t.Fatalf("after failure %d: %+v, want one delayed key", n+1, got)
			}
			if pass(want); q.Len() != (Lengths{Retry: 1}) {
				t.Fatalf("after %s: %+v, want one key", want, q.Len())
			}
		}
		key, _ := q.Get()
		q.Succeed(key)
		q.Done(key)
		if len(q.items) != 0 {
			t.Errorf("after success: %d items, want none: neither failures nor errors are kept", len(q.items))
		}
	})
}

func TestAddEndsTheBackoffAndKeepsTheFailures(t *testing.T) {
	q := newTestQueue(t)
	q.Add("a", Live)
	key, _ := q.Get()
	q.Fail(key, errBroken)
	q.Done(key)
	q.Add("a", Live)
	if got := q.Len(); got != (Lengths{Live: 1}) {
		t.Fatalf("a change while waiting: %+v, want one live key and no delay", got)
	}
	key, _ = q.Get()
	if got := q.Fail(key, errBroken); got != 10*time.Millisecond {
		t.Errorf("the next failure waits %s, want 10ms: the row of failures goes on", got)
	}
	q.Done(key)
}

func TestFailAfterAnAddDoesNotWait(t *testing.T) {
	q := newTestQueue(t)
	q.Add("a", Live)
	key, _ := q.Get()
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
		given  func(q byName)
		step   time.Duration
		then   Lengths
		want   []popped
	}{
		"KeepsTheEarliestTime": {
			reason: "A later time must not replace an earlier one (docs/reference/contract.md#s5.2).",
			given: func(q byName) {
				q.AddAfter("a", 10*time.Second)
				q.AddAfter("a", 5*time.Second)
				q.AddAfter("a", 20*time.Second)
			},
			step: 5 * time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"a", Live}},
		},
		"OutlivesASync": {
			reason: "A sync in between does not cancel resyncAfterSeconds.",
			given: func(q byName) {
				q.AddAfter("a", 5*time.Second)
				q.Add("a", Live)
				drain(q)
			},
			step: 5 * time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"a", Live}},
		},
		"ZeroIsNow": {
			reason: "A time of zero or before is over.",
			given: func(q byName) {
				q.AddAfter("a", 0)
				q.AddAfter("b", math.MinInt64)
			},
			then: Lengths{Live: 2},
			want: []popped{{"a", Live}, {"b", Live}},
		},
		"ComesInOrderOfTime": {
			reason: "One timer serves all keys in the order in which they are due.",
			given: func(q byName) {
				q.AddAfter("c", 3*time.Second)
				q.AddAfter("a", 1*time.Second)
				q.AddAfter("b", 2*time.Second)
				q.AddAfter("later", time.Hour)
			},
			step: 3 * time.Second,
			then: Lengths{Live: 3, Delayed: 1},
			want: []popped{{"a", Live}, {"b", Live}, {"c", Live}},
		},
		"BackoffAndTimeBothCount": {
			reason: "A key may wait for its backoff and for its resync; the first comes first and the second stays.",
			given: func(q byName) {
				q.AddAfter("a", time.Minute)
				q.Fail("a", later{time.Second})
			},
			step: time.Second,
			then: Lengths{Retry: 1, Delayed: 1},
			want: []popped{{"a", Retry}},
		},
		"RetryAfterReplacesAPause": {
			reason: "The newest Retry-After of a hook counts.",
			given: func(q byName) {
				q.Fail("a", later{time.Minute})
				q.Fail("a", later{time.Second})
			},
			step: time.Second,
			then: Lengths{Retry: 1},
			want: []popped{{"a", Retry}},
		},
		"AddEndsAPause": {
			reason: "A signal that comes before the time leaves no second run behind.",
			given: func(q byName) {
				q.Fail("a", later{10 * time.Second})
				q.Add("a", Live)
			},
			step: 10 * time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"a", Live}},
		},
		"NeverIsNotNow": {
			reason: "A resync in a time too long to add must not become a hot loop.",
			given:  func(q byName) { q.AddAfter("a", math.MaxInt64) },
			step:   maxDelay - time.Second,
			then:   Lengths{Delayed: 1},
		},
		"ALongRetryAfterIsNotNow": {
			reason: "A hook that asks for more patience than there are years must not be called at once.",
			given:  func(q byName) { q.Fail("a", later{math.MaxInt64}) },
			step:   maxDelay - time.Second,
			then:   Lengths{Delayed: 1},
		},
		"ALongDelayIsAYear": {
			reason: "A delay is cut, not dropped.",
			given:  func(q byName) { q.AddAfter("a", math.MaxInt64) },
			step:   maxDelay,
			then:   Lengths{Live: 1},
			want:   []popped{{"a", Live}},
		},
		"ForgetCancelsTimes": {
			reason: "A parent that is gone must not be synced later.",
			given: func(q byName) {
				q.AddAfter("a", time.Second)
				q.Fail("a", later{time.Second})
				q.Forget("a")
				q.AddAfter("b", time.Second)
			},
			step: time.Second,
			then: Lengths{Live: 1},
			want: []popped{{"b", Live}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newTestQueue(t)
				tc.given(q)
				pass(tc.step)
				if diff := cmp.Diff(tc.then, q.Len()); diff != "" {
					t.Errorf("%s\nlengths (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
					t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestDelayDueWhileProcessedRunsAfterDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		q.Add("a", Resync)
		key, _ := q.Get()
		q.AddAfter("a", time.Second)
		if pass(time.Second); q.Len() != (Lengths{Processing: 1}) {
			t.Errorf("there are %+v; want the key with its worker", q.Len())
		}
		q.Done(key)
		if diff := cmp.Diff([]popped{{"a", Live}}, drain(q)); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
	})
}

func TestEachOfManyDelaysEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		for n := range 100 { // Each is earlier than all before.
			q.AddAfter(string(rune('A'+n)), time.Duration(100-n)*time.Second)
		}
		for n := range 100 {
			if pass(time.Second); q.Len() != (Lengths{Live: n + 1, Delayed: 99 - n}) {
				t.Fatalf("after %d seconds there are %+v", n+1, q.Len())
			}
		}
	})
}

func TestRetryFailedEndsBackoffsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		for range 10 {
			q.Fail("failed", errBroken)
		}
		q.Fail("postponed", errBroken)
		q.Fail("postponed", later{time.Hour})
		q.AddAfter("resync", time.Hour)
		q.Fail("worked on", errBroken)
		q.Add("worked on", Live)
		if key, _ := q.Get(); key != "worked on" {
			t.Fatalf("got %q", key)
		}

		q.RetryFailed(nil)
		if got := drain(q); !slices.Equal(got, []popped{{"failed", Retry}}) {
			t.Errorf("ready are %v, want only the key in backoff: pauses and resyncs have their own times", got)
		}
		if n := q.Look(key("failed")).Retries; n != 10 {
			t.Errorf("%d failures are counted, want 10: it is not known yet whether the cause is gone", n)
		}
		q.Fail("worked on", errBroken)
		q.Done("worked on")
		if got := drain(q); !slices.Equal(got, []popped{{"worked on", Retry}}) {
			t.Errorf("ready are %v; a key that is failing while the cause goes must not wait for its backoff", got)
		}
		if pass(time.Hour); q.Len().Ready() != 2 {
			t.Errorf("%d keys are ready after an hour, want both that wait for a time", q.Len().Ready())
		}
	})
}

func TestRetryFailedEndsBackoffsOfMatchingErrors(t *testing.T) {
	errUnresolved := errors.New("kind is not served")
	cases := map[string]struct {
		reason string
		given  func(q byName)
		want   []popped
	}{
		"Matching": {
			"Its cause may be gone.",
			func(q byName) { q.Fail("a", errUnresolved) },
			[]popped{{"a", Retry}},
		},
		"AnotherError": {
			"A flapping API service must not turn minutes of backoff into seconds.",
			func(q byName) { q.Fail("a", errBroken) },
			nil,
		},
		"TheLastErrorCounts": {
			"What failed before that is not what it waits for.",
			func(q byName) { q.Fail("a", errUnresolved); q.Fail("a", errBroken) },
			nil,
		},
		"AfterSuccess": {
			"A success ends what was remembered.",
			func(q byName) { q.Fail("a", errUnresolved); q.Succeed("a"); q.Fail("a", errBroken) },
			nil,
		},
		"Removed": {
			"So does the end of the object.",
			func(q byName) { q.Fail("a", errUnresolved); q.Forget("a") },
			nil,
		},
		"Postponed": {
			"A hook that asked to be called later is called later.",
			func(q byName) { q.Fail("a", errors.Join(errUnresolved, later{time.Hour})) },
			nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			tc.given(q)
			q.RetryFailed(func(err error) bool { return errors.Is(err, errUnresolved) })
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// begin begins to sync the next key. It returns the reasons.
func begin(q byName) (string, history.Begun) {
	name, _ := q.Hold()
	begun := q.Begin(name)
	var reasons []string
	for _, t := range begun.Triggers.Kept() {
		reasons = append(reasons, string(t.Reason))
	}
	return strings.Join(reasons, " "), begun
}

func TestKeysCarryWhyTheyAreProcessed(t *testing.T) {
	spec, timer := history.Of(v1alpha1.SyncSpecChanged), history.Of(v1alpha1.SyncTimer)
	for name, tc := range map[string]struct {
		reason string
		act    func(q byName)
		want   string
		waited time.Duration
	}{
		"Several": {
			"All that came until it begins count, and it waited for the first.",
			func(q byName) {
				q.Add("a", Live, spec)
				pass(time.Second)
				q.Add("a", Resync, timer)
			}, "SpecChanged Timer", time.Second,
		},
		"Held": {
			"A key that a worker may not process yet keeps them.",
			func(q byName) {
				q.Add("a", Live, spec)
				key, _ := q.Hold()
				q.Done(key)
				pass(time.Second)
				q.Release("a")
			}, "SpecChanged", time.Second,
		},
		"During": {
			"What comes during a sync is for the next one.",
			func(q byName) {
				q.Add("a", Live, timer)
				_, _ = begin(q)
				q.Add("a", Live, spec)
				q.Done("a")
			}, "SpecChanged", 0,
		},
		"BeforeItBegins": {
			"A worker has the key, and has not begun.",
			func(q byName) {
				q.Add("a", Live, timer)
				key, _ := q.Hold()
				q.Add("a", Live, spec)
				q.Done(key)
			}, "Timer SpecChanged", 0,
		},
		"Removed": {
			"An object of the same name may follow.",
			func(q byName) {
				q.Add("a", Live, timer)
				q.Forget("a")
				q.Add("a", Live, spec)
			}, "SpecChanged", 0,
		},
		"Unknown": {"Not every add says why.", func(q byName) { q.Add("a", Live) }, "", 0},
		"Backoff": {
			"The time of a retry has come.",
			func(q byName) {
				q.Add("a", Live)
				_, _ = begin(q)
				q.Fail("a", errBroken)
				q.Done("a")
				pass(firstBackoff)
			}, "Retry", 0,
		},
		"RetryFailed": {
			"What the key failed for is gone.",
			func(q byName) {
				q.Add("a", Live)
				_, _ = begin(q)
				q.Fail("a", errBroken)
				q.Done("a")
				q.RetryFailed(nil)
			}, "Retry", 0,
		},
		"Timer": {
			"The time has come that a hook named.",
			func(q byName) {
				q.AddAfter("a", time.Second)
				pass(time.Second)
			}, "Timer", 0,
		},
		"NoTime": {"A time of zero is over.", func(q byName) { q.AddAfter("a", 0); pass(0) }, "Timer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newTestQueue(t)
				tc.act(q)
				if got, begun := begin(q); got != tc.want || begun.Waited != tc.waited {
					t.Errorf("%s The reasons are %q after %s, want %q after %s", tc.reason, got, begun.Waited, tc.want, tc.waited)
				}
				q.Done("a")
				if i := q.items[key("a")]; i != nil && i.triggers != nil {
					t.Error("reasons are left")
				}
			})
		})
	}
}

func TestReasonsAreNotKeptUnlessTheyAreWanted(t *testing.T) {
	q := byName{New(Config{}), t.Context()}
	q.Add("a", Live, history.Of(v1alpha1.SyncTimer))
	if _, begun := begin(q); begun.Triggers != nil || begun.Waited != 0 {
		t.Errorf("there is %+v", begun)
	}
}

func TestErrorsOfHooksHaveReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"Call":        {&webhook.CallError{Err: errors.New("refused")}, metrics.ReasonHook},
		"Status":      {&webhook.StatusError{Code: 500}, metrics.ReasonHook},
		"Credentials": {&webhook.CredentialsError{Err: errors.New("no such Secret")}, metrics.ReasonHook},
		"Rejected":    {&hook.RejectedError{Detail: "no list"}, metrics.ReasonResponse},
		"Other":       {errors.New("other"), metrics.ReasonOther},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, fmt.Errorf("sync hook: %w", tc.err), errors.Join(tc.err, errors.New("other"))} {
				if f := classify(err); f.result != metrics.Failed || f.reason != tc.want {
					t.Errorf("%v is classified %v %q, want %q", err, f.result, f.reason, tc.want)
				}
			}
		})
	}
}

func TestAWorkerGoesOnWithWhatIsAskedForMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		during func(q byName)
		goesOn bool
		// rest is what is queued when the worker is done.
		rest []popped
	}{
		"Live": {
			"The children that a sync wrote are a reason for the next one.",
			func(q byName) { q.Add("a", Live, history.Of(v1alpha1.SyncChildChanged)) }, true, nil,
		},
		"Nothing": {
			"Nobody asked for another sync.", func(byName) {}, false, nil,
		},
		"OnlyItsOwnStatus": {
			"For what the hook alone waits nobody else waits.",
			func(q byName) { q.Add("a", SelfTriggered) }, false,
			[]popped{{"a", SelfTriggered}},
		},
		"Removed": {
			"A parent that left has no next sync.",
			func(q byName) { q.Add("a", Live); q.Forget("a") }, false, nil,
		},
		"RemovedAndBack": {
			"One that came again is one of many.",
			func(q byName) { q.Forget("a"); q.Add("a", Live) }, true, nil,
		},
		"Paused": {
			"A pause holds for the next sync, too.",
			func(q byName) { q.Add("a", Live); q.Pause() }, false,
			[]popped{{"a", Live}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			q.Add("a", Live)
			q.Get()
			tc.during(q)
			why, goesOn := q.GoOn(key("a"))
			if goesOn != tc.goesOn {
				t.Errorf("it goes on: %t: %s", goesOn, tc.reason)
			}
			if name == "Live" && len(why.Triggers.Kept()) != 1 {
				t.Errorf("the triggers of the next sync are %v", why.Triggers.Kept())
			}
			if _, again := q.GoOn(key("a")); again && goesOn {
				t.Error("it goes on twice for one reason")
			}
			q.Done("a")
			q.Resume()
			if rest := drain(q); !slices.Equal(rest, tc.rest) {
				t.Errorf("%v is queued, want %v: %s", rest, tc.rest, tc.reason)
			}
		})
	}
}

func TestTake(t *testing.T) {
	q := newTestQueue(t)
	q.Add("queued", Live)
	q.Add("next", Live)
	if !q.Take("queued") || q.Take("queued") {
		t.Error("a key is taken never, or twice")
	}
	if got := q.UnderWay(); got != 1 {
		t.Errorf("%d keys are processed", got)
	}
	key, _ := q.Get()
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
