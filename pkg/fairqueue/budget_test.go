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

package fairqueue

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// granted reports whether a request that entered a budget has room.
func granted(w *waiter) bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// A script is a sequence of requests to a budget, whose answers are known at once.
type script struct {
	*Budget

	t *testing.T
}

func newScript(t *testing.T, bytes int64, controllers ...string) script {
	t.Helper()
	b := Bytes(bytes)
	for _, c := range controllers {
		b.Join(c)
	}
	return script{b, t}
}

// ask asks for bytes for a controller, and expects that there is room or not.
func (s script) ask(controller string, bytes int64, room bool) *waiter {
	s.t.Helper()
	w := s.enter(controller, bytes)
	if granted(w) != room {
		s.t.Errorf("%s asks for %d, with %d of %d in use: it gets them at once: %t, want %t", controller, bytes, s.used, s.limit, !room, room)
	}
	return w
}

// expect expects that some of those that have waited have room now, and no others.
func (s script) expect(after string, waiters map[string]*waiter, room ...string) {
	s.t.Helper()
	want := map[string]bool{}
	for _, name := range room {
		want[name] = true
	}
	for name, w := range waiters {
		if granted(w) != want[name] {
			s.t.Errorf("%s: %s has room: %t, want %t", after, name, !want[name], want[name])
		}
	}
}

func TestAControllerAloneMayUseAllOfABudget(t *testing.T) {
	s := newScript(t, 8, "greedy")
	s.ask("greedy", 4, true)
	s.ask("greedy", 4, true)
	waits := s.ask("greedy", 1, false)
	s.Release("greedy", 4)
	if !granted(waits) {
		t.Error("what is free is not given to the one that waits")
	}
}

func TestAControllerThatHoldsMuchLeavesRoomForOneThatHoldsNothing(t *testing.T) {
	s := newScript(t, 8, "greedy", "other", "third")
	s.ask("greedy", 4, true)
	s.ask("greedy", 2, true)
	more := s.ask("greedy", 1, false)
	s.ask("other", 1, true)
	again := s.ask("other", 1, false)
	s.ask("third", 1, true)
	s.Release("third", 1)
	s.Release("other", 1)
	s.expect("with a quarter free", map[string]*waiter{"greedy": more, "other": again}, "other")
	// As long as it holds nothing, a controller may take all that is there.
	s.Release("other", 1)
	s.Release("greedy", 6)
	if !granted(more) {
		t.Error("there is room for the one that waits")
	}
	s.Release("greedy", 1)
	s.ask("greedy", 8, true)
}

func TestTheControllerThatHoldsLeastIsNext(t *testing.T) {
	s := newScript(t, 8, "a", "b", "c")
	s.ask("a", 5, true)
	s.ask("b", 3, true)
	waiters := map[string]*waiter{"a": s.ask("a", 1, false), "b": s.ask("b", 1, false), "c": s.ask("c", 2, false), "c again": s.ask("c", 1, false)}
	s.Release("a", 1)
	s.expect("with 1 free", waiters)
	s.Release("a", 1)
	s.expect("with 2 free", waiters, "c")
	s.Release("a", 3)
	s.expect("with 3 free", waiters, "c", "a")
}

func TestWhoGivesUpHoldsNobodyUp(t *testing.T) {
	s := newScript(t, 8, "a", "b", "c")
	s.ask("a", 6, true)
	large, small := s.ask("b", 4, false), s.ask("c", 1, false)
	if !s.abandon("b", large) {
		t.Error("the wait has not ended")
	}
	s.expect("after the large one gave up", map[string]*waiter{"c": small}, "c")
	if s.abandon("c", small) {
		t.Error("what was granted has been given back by the end of waiting")
	}
}

func TestABudgetForgetsControllersThatAreGone(t *testing.T) {
	b := Bytes(8)
	leave, other := b.Join("a"), b.Join("b")
	s := script{b, t}
	s.ask("a", 6, true)
	waits := s.ask("a", 1, false)
	other()
	if !granted(waits) {
		t.Error("the controller that is left alone may use all")
	}
	s.Release("a", 7)
	leave()
	if used, _ := b.Used(); used != 0 || len(b.users) != 0 {
		t.Errorf("%d bytes are used by %v", used, b.users)
	}
}

// TestABudgetIsNeverExceededAndNobodyWaitsForEver asks and gives back at random.
func TestABudgetIsNeverExceededAndNobodyWaitsForEver(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		b := Bytes(100)
		type request struct {
			controller string
			*waiter
		}
		var open []request
		for step := range 2000 {
			controller := fmt.Sprintf("c%d", random.IntN(4))
			switch n := random.IntN(3); {
			case n == 0 && step < 1500:
				open = append(open, request{controller, b.enter(controller, 1+random.Int64N(100))})
			case len(open) > 0:
				i := random.IntN(len(open))
				r := open[i]
				switch {
				case granted(r.waiter):
					b.Release(r.controller, r.weight)
				case n == 1:
					if !b.abandon(r.controller, r.waiter) {
						t.Fatal("a wait that has not ended cannot be ended")
					}
				default:
					continue
				}
				open = append(open[:i], open[i+1:]...)
			}
			if used, limit := b.Used(); used < 0 || used > limit {
				t.Fatalf("seed %d: %d of %d bytes are used", seed, used, limit)
			}
			if used, _ := b.Used(); used == 0 && len(open) > 0 {
				t.Fatalf("seed %d: %d wait though all is free", seed, len(open))
			}
		}
	}
}
