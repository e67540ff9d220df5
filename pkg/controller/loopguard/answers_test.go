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

package loopguard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Two parents are related to each other, and the hook of both returns something new with each call.
func TestWhatEndsThePauseOfParentsThatAnswerEachOther(t *testing.T) {
	const outside = 1 << 40
	for _, test := range []struct {
		why    string
		change func(*history)
		// held is for how long it is held back still, at most; 0: it is not.
		held time.Duration
	}{
		{"nothing", func(*history) {}, time.Minute},
		{"an answer", func(h *history) { h.parent.Related(h.fresh()) }, time.Minute},
		{"an answer whose response has not come", func(h *history) { h.parent.Related(outside) }, time.Second / 4},
		{"and that comes in the meantime", func(h *history) {
			h.parent.Related(outside)
			h.held()
			h.tracker.Answers = func(parent.Key, uint64) bool { return true }
		}, time.Minute},
		{"a change by another client", func(h *history) {
			h.parent.Related(outside)
			h.held()
			h.now = h.now.Add(time.Second / 4)
		}, 0},
		{"a change of the parent's spec", func(h *history) { h.state.Content = h.fresh() }, 0},
		{"a change of a child", func(h *history) { h.state.Children = h.fresh() }, 0},
		{"a child that is being deleted and changes", func(h *history) { h.state.Deleting = h.fresh() }, 0},
	} {
		t.Run(test.why, func(t *testing.T) {
			h := newHistory(t)
			h.tracker.Answers = func(_ parent.Key, version uint64) bool { return version < outside }
			for h.cause != loopguard.Restless || h.pause < 10*time.Second {
				h.parent.Related(h.fresh())
				h.record(loopguard.Sync{Places: 2, Children: 1, Related: 1}, h.status)
			}
			test.change(h)
			held := h.held()
			if held > test.held || test.held > 0 && held <= 0 || test.held > time.Second && held < time.Second {
				t.Errorf("held back for %v, want at most %v", held, test.held)
			}
		})
	}
}

// What a sync writes because of its own last writes has the causes of those: another parent that answers it answers them.
func TestWhatASyncIsCausedByHoldsForTheSyncsThatFollowFromIt(t *testing.T) {
	for name, test := range map[string]struct {
		play func(*history)
		want []uint64
	}{
		"a related object changed":   {func(*history) {}, []uint64{7}},
		"its sync wrote":             {func(h *history) { h.sync(1, 1, h.child) }, []uint64{7}},
		"and the one after it":       {func(h *history) { h.sync(1, 1, h.child); h.sync(1, 1, h.child) }, []uint64{7}},
		"it wrote, and another came": {func(h *history) { h.sync(1, 1, h.child); h.parent.Related(8) }, []uint64{8}},
		"it wrote, and rested":       {func(h *history) { h.sync(1, 1, h.child); h.parent.Rested(h.now) }, nil},
		"it wrote, and an object changed that no hook of this process wrote": {func(h *history) {
			h.sync(1, 1, h.child)
			h.parent.Outside(h.now)
		}, nil},
		"it wrote, and a user changed the parent": {func(h *history) {
			h.sync(1, 1, h.child)
			h.state.Content = h.fresh()
			h.sync(1, 1, h.child)
		}, nil},
		"a user wrote the related object": {func(h *history) {
			h.parent.Related(9)
			h.sync(1, 1, h.child)
			h.sync(1, 1, h.child)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.tracker.Answers = func(_ parent.Key, version uint64) bool { return version != 9 }
			h.sync(1, 1, h.child)
			h.parent.Related(7)
			test.play(h)
			if got := h.parent.Because(); !slices.Equal(got, test.want) {
				t.Errorf("the next sync is because of %v, want %v", got, test.want)
			}
		})
	}
}
