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
