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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
)

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
