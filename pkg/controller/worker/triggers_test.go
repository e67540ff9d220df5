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
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

// begin takes a key and begins to process it. It returns the reasons.
func begin(q *Queue[string]) (string, trigger.Begun) {
	key, _, _ := q.Get()
	begun := q.Begin(key)
	var reasons []string
	for _, t := range begun.Triggers.Kept() {
		reasons = append(reasons, string(t.Reason))
	}
	return strings.Join(reasons, " "), begun
}

func TestKeysCarryWhyTheyAreProcessed(t *testing.T) {
	spec, timer := trigger.Of(v1alpha1.SyncSpecChanged), trigger.Of(v1alpha1.SyncTimer)
	for name, tc := range map[string]struct {
		reason string
		act    func(q *Queue[string], clock *clocktesting.FakeClock)
		want   string
		waited time.Duration
	}{
		"Several": {
			"All that came until it begins count, and it waited for the first.",
			func(q *Queue[string], clock *clocktesting.FakeClock) {
				q.AddBecause("a", Live, spec)
				clock.Step(time.Second)
				q.AddBecause("a", Resync, timer)
			}, "SpecChanged Timer", time.Second,
		},
		"Held": {
			"A key that a worker may not process yet keeps them.",
			func(q *Queue[string], clock *clocktesting.FakeClock) {
				q.AddBecause("a", Live, spec)
				key, p, _ := q.Get()
				q.Hold(key, p)
				q.Done(key)
				clock.Step(time.Second)
				q.Release("a")
			}, "SpecChanged", time.Second,
		},
		"During": {
			"What comes during a sync is for the next one.",
			func(q *Queue[string], _ *clocktesting.FakeClock) {
				q.AddBecause("a", Live, timer)
				_, _ = begin(q)
				q.AddBecause("a", Live, spec)
				q.Done("a")
			}, "SpecChanged", 0,
		},
		"BeforeItBegins": {
			"A worker has the key, and has not begun.",
			func(q *Queue[string], _ *clocktesting.FakeClock) {
				q.AddBecause("a", Live, timer)
				key, p, _ := q.Get()
				q.Hold(key, p)
				q.AddBecause("a", Live, spec)
				q.Done(key)
			}, "Timer SpecChanged", 0,
		},
		"Removed": {
			"An object of the same name may follow.",
			func(q *Queue[string], _ *clocktesting.FakeClock) {
				q.AddBecause("a", Live, timer)
				q.Remove("a")
				q.AddBecause("a", Live, spec)
			}, "SpecChanged", 0,
		},
		"Unknown": {"Not every add says why.", func(q *Queue[string], _ *clocktesting.FakeClock) { q.Add("a", Live) }, "", 0},
		"Backoff": {
			"The time of a retry has come.",
			func(q *Queue[string], clock *clocktesting.FakeClock) {
				q.Add("a", Live)
				_, _ = begin(q)
				q.Fail("a", errors.New("failed"))
				q.Done("a")
				clock.Step(time.Minute)
				q.release()
			}, "Retry", 0,
		},
		"RetryFailed": {
			"What the key failed for is gone.",
			func(q *Queue[string], _ *clocktesting.FakeClock) {
				q.Add("a", Live)
				_, _ = begin(q)
				q.Fail("a", errors.New("failed"))
				q.Done("a")
				q.RetryFailed(nil)
			}, "Retry", 0,
		},
		"Timer": {
			"The time has come that a hook named.",
			func(q *Queue[string], clock *clocktesting.FakeClock) {
				q.AddAfter("a", time.Second, Live)
				clock.Step(time.Minute)
				q.release()
			}, "Timer", 0,
		},
		"NoTime": {"A time of zero is over.", func(q *Queue[string], _ *clocktesting.FakeClock) { q.AddAfter("a", 0, Live) }, "Timer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			q := newQueue[string](Options{Clock: clock, Triggers: true})
			tc.act(q, clock)
			if got, begun := begin(q); got != tc.want || begun.Waited != tc.waited {
				t.Errorf("%s The reasons are %q after %s, want %q after %s", tc.reason, got, begun.Waited, tc.want, tc.waited)
			}
			q.Done("a")
			if len(q.items) > 0 && q.items["a"].triggers != nil {
				t.Error("reasons are left")
			}
		})
	}
}

func TestReasonsAreNotKeptUnlessTheyAreWanted(t *testing.T) {
	q := newQueue[string](Options{})
	q.AddBecause("a", Live, trigger.Of(v1alpha1.SyncTimer))
	if _, begun := begin(q); begun.Triggers != nil || begun.Waited != 0 {
		t.Errorf("there is %+v", begun)
	}
}
