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
	"fmt"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
)

func TestALongPauseFollowsTheSecondHalfOfARecreation(t *testing.T) {
	h := newHistory(t)
	type step struct {
		blamed loopguard.Cause
		held   bool
	}
	play := func(recreates bool) step {
		h.record(loopguard.Sync{Places: 1, Children: 1, Deleted: recreates, Recreates: recreates}, h.child)
		return step{h.cause, h.pause > 0}
	}
	for h.pause < 4*time.Second {
		if got := play(h.cause != loopguard.None); h.cause != loopguard.None && !got.held {
			t.Fatalf("a pause of less than 5 s is left out: %+v", got)
		}
	}
	for n, each := range []struct {
		recreates bool
		want      step
	}{
		{true, step{blamed: loopguard.Differs}},
		{false, step{held: true}}, // It was blamed for what the first half wrote.
		{true, step{blamed: loopguard.Differs}},
		{true, step{held: true}}, // One child is deleted whenever another one is created again.
		{true, step{blamed: loopguard.Differs}},
	} {
		if got := play(each.recreates); got != each.want {
			t.Errorf("step %d: got %+v, want %+v", n, got, each.want)
		}
	}
}

// TestAStatusOfWhatIsElsewhereIsNoLoopWhileAChildGoes has a hook report something new every 30 seconds, while the place of a child is not free that
// somebody else deleted, or this controller long ago.
func TestAStatusOfWhatIsElsewhereIsNoLoopWhileAChildGoes(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		h := newHistory(t)
		if deleted {
			h.record(loopguard.Sync{Places: 1, Children: 1, Deleted: true}, h.child)
			h.now = h.now.Add(2 * time.Minute)
		}
		h.state.Deleting, h.state.Leaving = 1, 1
		for n := range 30 {
			h.now = h.now.Add(30 * time.Second)
			if h.sync(2, 0, h.status); h.cause != loopguard.None {
				t.Fatalf("it is blamed for %d after %d writes", h.cause, n)
			}
			if !h.parent.Replaces(h.now) {
				h.parent.Rested(h.now)
			}
		}
	}
}

// TestRecreationsOfChildrenWithFinalizersAreHeldBack has a hook return other values each time for children that are deleted to be created again. Another
// controller takes its finalizer off one of them each moment, and may write those that are created.
func TestRecreationsOfChildrenWithFinalizersAreHeldBack(t *testing.T) {
	for _, many := range []int{1, 2, 30} {
		t.Run(fmt.Sprint(many), func(t *testing.T) { testRecreations(t, many, false) })
		t.Run(fmt.Sprintf("%d, written by others", many), func(t *testing.T) { testRecreations(t, many, true) })
	}
}

func testRecreations(t *testing.T, many int, overwrote bool) {
	const moment = 10 * time.Millisecond
	h := newHistory(t)
	var there, deleting []uint64
	created := false
	show := func() {
		h.state.Deleting, h.state.Leaving = 0, 0
		for _, child := range deleting {
			h.state.Deleting, h.state.Leaving = h.state.Deleting+child, h.state.Leaving+child
		}
	}
	asked, end := 0, h.now.Add(30*time.Minute)
	for h.now.Before(end) {
		if h.now = h.now.Add(moment); len(deleting) > 0 {
			deleting = deleting[1:]
			show()
		}
		if overwrote && created {
			h.state.Children, created = h.fresh(), false
		}
		if h.held() > 0 {
			continue
		}
		asked++
		s := loopguard.Sync{Places: uint64(len(there)), Children: len(there), Deleted: len(there) > 0, Overwrote: overwrote && len(there) > 0}
		gone := many - len(there) - len(deleting)
		if gone == 0 && !s.Deleted {
			if !h.parent.Replaces(h.now) {
				h.parent.Rested(h.now)
			}
			continue
		}
		deleting, there = append(deleting, there...), nil
		for range gone {
			there = append(there, h.fresh())
		}
		created = gone > 0
		h.pause = 0
		h.record(s, h.child)
		show()
		h.held() // The events of the writes ask.
	}
	if most := 600 + 60*many; asked > most {
		t.Errorf("the hook was asked %d times in half an hour, want at most %d times", asked, most)
	}
}
