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

package apply

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
)

// asks asks for a slot and reports on order when it is there.
func asks(t *testing.T, s *fairqueue.Budget, controller string, order chan<- string, releases chan<- func()) {
	t.Helper()
	go func() {
		if err := s.Acquire(t.Context(), controller, 1); err != nil {
			t.Errorf("%s: %v", controller, err)
			return
		}
		order <- controller
		releases <- func() { s.Release(controller, 1) }
	}()
	synctest.Wait() // So that they wait in this order.
}

func TestAControllerWithOneWriteDoesNotWaitForAllOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2, nil)
		order, releases := make(chan string, 100), make(chan func(), 100)
		for range 20 {
			asks(t, s, "noisy", order, releases)
		}
		asks(t, s, "quiet", order, releases)
		asks(t, s, "third", order, releases)
		var got []string
		for range 22 {
			synctest.Wait()
			got = append(got, <-order)
			(<-releases)()
		}
		at := map[string]int{}
		for n, controller := range got {
			if controller != "noisy" {
				at[controller] = n + 1
			}
		}
		// Two of the noisy controller's had the slots, and one more was the next.
		if at["quiet"] > 4 || at["third"] > 5 {
			t.Errorf("the order is %v", got)
		}
		if used, _ := s.Used(); used != 0 {
			t.Errorf("%d slots are used in the end", used)
		}
	})
}

func TestFewerWritesAreMadeWhileTheCachesAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var behind atomic.Bool
		behind.Store(true)
		s := newSlots(8, behind.Load)
		order, releases := make(chan string, 100), make(chan func(), 100)
		for n := range 12 {
			asks(t, s, string(rune('a'+n%2)), order, releases)
		}
		if len(order) != 2 {
			t.Errorf("%d writes at once, want 2", len(order))
		}
		behind.Store(false)
		(<-releases)()
		synctest.Wait()
		if len(order) != 9 {
			t.Errorf("%d writes were begun after one had ended, want 9", len(order))
		}
		for range 11 {
			(<-releases)()
			synctest.Wait()
		}
	})
}

func TestWritesThatHangLeaveSlotsForOtherControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(8, nil)
		hung, held := make(chan string, 100), make(chan func(), 100)
		for range 20 {
			asks(t, s, "hangs", hung, held)
		}
		if len(hung) != 6 {
			t.Errorf("%d writes of one controller at once, want three quarters of 8", len(hung))
		}
		order, releases := make(chan string, 100), make(chan func(), 100)
		for n := range 100 {
			asks(t, s, string(rune('a'+n%2)), order, releases)
			if len(order) == 0 {
				t.Fatalf("the write %d of another controller waits for those that hang", n)
			}
			<-order
			(<-releases)()
		}
		for range 20 {
			synctest.Wait()
			(<-held)()
		}
		if used, _ := s.Used(); used != 0 {
			t.Errorf("%d slots are used in the end", used)
		}
	})
}

func TestAWriteThatIsGivenUpTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, nil)
		if err := s.Acquire(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Acquire(ctx, "b", 1) }()
		synctest.Wait()
		giveUp()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a write that is given up ends with %v", err)
		}
		order, releases := make(chan string, 2), make(chan func(), 2)
		asks(t, s, "b", order, releases)
		if len(order) != 0 {
			t.Errorf("%s has the slot of another one", <-order)
		}
		s.Release("a", 1)
		(<-releases)()
		if used, _ := s.Used(); used != 0 {
			t.Errorf("%d slots are used in the end", used)
		}
	})
}

func TestSlotsAreNeverMoreThanTheLimitAndNeverLost(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			s := newSlots(3, nil)
			var used, ended atomic.Int64
			var running sync.WaitGroup
			for n := range uint64(100) {
				running.Go(func() {
					r := rand.New(rand.NewPCG(seed, n))
					ctx, giveUp := context.WithCancel(t.Context())
					defer giveUp()
					if r.IntN(3) == 0 {
						running.Go(giveUp)
					}
					controller := string(rune('a' + r.IntN(4)))
					if s.Acquire(ctx, controller, 1) != nil {
						return
					}
					defer s.Release(controller, 1)
					if now := used.Add(1); now > 3 {
						t.Errorf("%d writes at once", now)
					}
					ended.Add(1)
					used.Add(-1)
				})
			}
			running.Wait()
			if used, _ := s.Used(); used != 0 || ended.Load() == 0 {
				t.Errorf("seed %d: %d slots are used in the end, %d writes ended", seed, used, ended.Load())
			}
		})
	}
}
