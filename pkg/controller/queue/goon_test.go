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
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
)

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
