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
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// bench is a guard whose time a test moves.
type bench struct {
	*loopguard.DeletionGuard

	mu       sync.Mutex
	held     map[parent.Key]*loopguard.Held
	t        *testing.T
	now      time.Time
	children int
	// named counts the children that were named.
	named atomic.Int64
}

func newBench(t *testing.T, limit intstr.IntOrString) *bench {
	t.Helper()
	b := &bench{t: t, held: map[parent.Key]*loopguard.Held{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), children: 50}
	b.DeletionGuard = loopguard.NewDeletionGuard(func() int { return b.children })
	b.configure(&limit, "")
	return b
}

// of returns what is held of a parent.
func (b *bench) of(name string) *loopguard.Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := parent.Key{Name: name}
	if b.held[key] == nil {
		b.held[key] = new(loopguard.Held)
	}
	return b.held[key]
}

func (b *bench) configure(limit *intstr.IntOrString, confirmation string) []parent.Key {
	return b.Configure(limit, confirmation, maps.All(b.held))
}

// some returns n children that were never named before.
func (b *bench) some(n int) []types.UID {
	all := make([]types.UID, n)
	for i := range all {
		all[i] = types.UID(fmt.Sprint(b.named.Add(1)))
	}
	return all
}

// want asks for the deletion of n children of a parent, and returns them.
func (b *bench) want(name string, n int, admitted bool) []types.UID {
	b.t.Helper()
	deletions := b.some(n)
	b.wantThese(name, deletions, admitted)
	return deletions
}

// wantThese asks for the deletion of certain children of a parent.
func (b *bench) wantThese(name string, deletions []types.UID, admitted bool) {
	b.t.Helper()
	if got := b.Would(deletions, b.now); got != admitted {
		b.t.Errorf("%s: %d deletions of %s would be admitted: %v, want %v", b.now.Format(time.TimeOnly), len(deletions), name, got, admitted)
	}
	if got, _, _ := b.Admit(b.of(name), deletions, b.now); got != admitted {
		b.t.Errorf("%s: %d deletions of %s are admitted: %v, want %v", b.now.Format(time.TimeOnly), len(deletions), name, got, admitted)
	}
}

func (b *bench) undone(deletions []types.UID) {
	for _, child := range deletions {
		b.Undone(child, b.now)
	}
}

func (b *bench) done(deletions []types.UID) {
	for _, child := range deletions {
		b.Done(child)
	}
}

// holds compares what is held.
func (b *bench) holds(deletions, parents int) loopguard.Hold {
	b.t.Helper()
	held, ok := b.Held()
	if ok != (deletions > 0) || held.Deletions != deletions || held.Parents != parents {
		b.t.Errorf("%s: %d deletions of %d parents are held, want %d of %d", b.now.Format(time.TimeOnly), held.Deletions, held.Parents, deletions, parents)
	}
	return held
}

func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		limit    intstr.IntOrString
		children int
		// most is how many deletions pass.
		most int
	}{
		"a number":                        {intstr.FromInt32(3), 50, 3},
		"none without a confirmation":     {intstr.FromInt32(0), 50, 0},
		"a share":                         {intstr.FromString("10%"), 50, 5},
		"a share, rounded down":           {intstr.FromString("10%"), 59, 5},
		"a share of few":                  {intstr.FromString("1%"), 50, 1},
		"a share of what is not seen yet": {intstr.FromString("10%"), 0, 1},
		"no share":                        {intstr.FromString("0%"), 50, 0},
		"all":                             {intstr.FromString("100%"), 50, 50},
		"what validation refuses":         {intstr.FromString("many"), 50, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.limit)
			b.children = tc.children
			for range tc.most {
				b.want("a", 1, true)
			}
			b.want("a", 1, false)
			b = newBench(t, tc.limit)
			b.children = tc.children
			b.want("a", tc.most+1, false)
			b.want("a", 0, true)
			if tc.most > 0 {
				b.want("b", tc.most, true)
			}
		})
	}
}

func TestWithoutALimitNothingIsHeld(t *testing.T) {
	b := newBench(t, intstr.FromInt32(0))
	b.configure(nil, "")
	b.want("a", 1000, true)
	b.holds(0, 0)
	var none *loopguard.DeletionGuard
	if admitted, _, _ := none.Admit(nil, b.some(1000), b.now); !admitted {
		t.Error("no guard holds deletions")
	}
	none.Undone("1", b.now)
	none.Done("1")
}

func TestDeletionsAreCountedOverAMinute(t *testing.T) {
	b := newBench(t, intstr.FromInt32(3))
	b.want("a", 2, true)
	b.now = b.now.Add(59 * time.Second)
	b.want("b", 1, true)
	b.now = b.now.Add(time.Second)
	b.want("c", 2, true)
	b.want("d", 1, false)
}

func TestWhatIsHeldStaysHeldUntilNobodyWantsIt(t *testing.T) {
	b := newBench(t, intstr.FromInt32(3))
	b.want("a", 5, false)
	b.now = b.now.Add(time.Hour)
	b.want("a", 5, false)
	b.want("a", 1, false) // It would pass piece by piece.
	b.want("b", 2, false)
	b.holds(3, 2)
	b.want("a", 0, true)
	b.holds(2, 1)
	b.Forget(b.of("b"))
	b.holds(0, 0)
	b.want("c", 3, true)
}

func TestTwoParentsAtTheEdgeAtTheSameTime(t *testing.T) {
	for range 100 {
		b := newBench(t, intstr.FromInt32(10))
		var asking sync.WaitGroup
		var admitted, first atomic.Int64
		for n := range 8 {
			asking.Go(func() {
				passed, begins, _ := b.Admit(b.of(fmt.Sprint(n)), b.some(4), b.now)
				if passed {
					admitted.Add(1)
				}
				if begins {
					first.Add(1)
				}
			})
		}
		asking.Wait()
		if admitted.Load() != 2 || first.Load() != 1 {
			t.Fatalf("%d of 8 parents with 4 deletions each passed a limit of 10, and %d began a hold", admitted.Load(), first.Load())
		}
		b.holds(24, 6)
	}
}

func TestAConfirmationIsForOneHold(t *testing.T) {
	b := newBench(t, intstr.FromInt32(1))
	b.want("a", 5, false)
	b.want("b", 2, false)
	held := b.holds(7, 2)
	limit := intstr.FromInt32(1)
	for _, wrong := range []string{"", "true", b.now.Add(time.Second).Format("2006-01-02T15:04:05.000Z")} {
		if released := b.configure(&limit, wrong); released != nil {
			t.Errorf("%q confirms the deletions of %v", wrong, released)
		}
	}
	b.holds(7, 2)
	if released := b.configure(&limit, held.Confirmation); len(released) != 2 {
		t.Errorf("confirmed, the deletions of %v may go on, want those of two parents", released)
	}
	b.holds(0, 0)
	b.want("a", 5, true)
	b.want("b", 2, true)
	b.want("c", 100, true) // The hook's mistake, if it is one, is confirmed for a while.
	b.now = b.now.Add(10 * time.Minute)
	b.want("d", 1, true)
	b.want("d", 1, false)
	if again := b.holds(1, 1); again.Confirmation == held.Confirmation {
		t.Errorf("%s confirms two holds", again.Confirmation)
	}
	if released := b.configure(&limit, held.Confirmation); released != nil {
		t.Errorf("a confirmation of before confirms the deletions of %v", released)
	}
}

// TestAConfirmationWaitsUntilSomethingIsSynced confirms deletions while the controller is paused, for example.
func TestAConfirmationWaitsUntilSomethingIsSynced(t *testing.T) {
	b := newBench(t, intstr.FromInt32(1))
	b.want("a", 5, false)
	limit := intstr.FromInt32(1)
	b.configure(&limit, b.holds(5, 1).Confirmation)
	b.now = b.now.Add(time.Hour)
	b.want("a", 5, true)
	b.now = b.now.Add(10*time.Minute - 1)
	b.want("b", 5, true)
	b.now = b.now.Add(1)
	b.want("c", 5, false)
}

func TestEachHoldHasItsOwnTime(t *testing.T) {
	b := newBench(t, intstr.FromInt32(0))
	seen := map[string]bool{}
	for range 5 {
		b.want("a", 1, false)
		held := b.holds(1, 1)
		if seen[held.Confirmation] {
			t.Errorf("%s confirms two holds", held.Confirmation)
		}
		seen[held.Confirmation] = true
		b.want("a", 0, true)
	}
}

func TestAnotherLimitEndsAHold(t *testing.T) {
	b := newBench(t, intstr.FromInt32(1))
	b.want("a", 5, false)
	same, more := intstr.FromInt32(1), intstr.FromString("10%")
	if released := b.configure(&same, ""); released != nil {
		t.Errorf("the same limit lets the deletions of %v go on", released)
	}
	if released := b.configure(&more, ""); len(released) != 1 {
		t.Errorf("a new limit lets the deletions of %v be looked at again", released)
	}
	b.want("a", 5, true)
	b.want("a", 1, false)
	if released := b.configure(nil, ""); len(released) != 1 {
		t.Errorf("no limit lets the deletions of %v go on", released)
	}
}

func TestWhatWasNotDoneDoesNotCount(t *testing.T) {
	b := newBench(t, intstr.FromInt32(4))
	for range 100 { // A deletion that is refused is tried again and again.
		b.undone(b.want("a", 2, true))
	}
	b.undone(b.want("b", 3, true)[:1])
	b.want("c", 2, true)
	b.want("d", 1, false)
}

func TestWhatWasNotCountedIsNotTakenBack(t *testing.T) {
	b := newBench(t, intstr.FromInt32(1))
	b.want("a", 1, true)
	b.undone(b.some(1)) // It was admitted while deletions were confirmed.
	b.want("b", 1, false)
}

func TestWhatMayHaveBeenDoneCountsOnce(t *testing.T) {
	b := newBench(t, intstr.FromInt32(2))
	two := b.some(2)
	for range 100 { // A deletion whose response is lost is tried again and again.
		b.wantThese("a", two, true)
		b.done(two)
	}
	b.want("b", 1, false) // One of these may have been done, and both.
	b.want("b", 0, true)
	b.wantThese("a", two[:1], true) // The other one was done.
	b.want("b", 1, false)
	b.want("b", 0, true)
	b.want("a", 1, false) // It is another child.
}

func TestWhatMayHaveBeenDoneCountsUntilAMinuteAfterTheLastTrial(t *testing.T) {
	b := newBench(t, intstr.FromInt32(1))
	one := b.want("a", 1, true)
	b.done(one)
	b.now = b.now.Add(40 * time.Second)
	b.wantThese("a", one, true)
	b.now = b.now.Add(40 * time.Second)
	b.want("b", 1, false)
	b.want("b", 0, true)
	b.now = b.now.Add(20 * time.Second)
	b.want("b", 1, true)
}

func TestWhatWasDoneCountsFromThenOnThoughItIsNotDoneAgainLater(t *testing.T) {
	for name, tc := range map[string]struct {
		later    time.Duration
		admitted bool
	}{
		"WithinTheMinute": {40 * time.Second, false},
		"AfterIt":         {60 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, intstr.FromInt32(1))
			one := b.want("a", 1, true)
			b.done(one)
			b.now = b.now.Add(30 * time.Second)
			b.wantThese("a", one, true)
			b.undone(one)
			b.now = b.now.Add(tc.later - 30*time.Second)
			b.want("b", 1, tc.admitted)
		})
	}
}

func TestOneEventForEachParentThatIsHeld(t *testing.T) {
	b := newBench(t, intstr.FromInt32(0))
	for n, want := range []struct {
		parent      string
		n           int
		first, news bool
	}{{"a", 1, true, true}, {"a", 2, false, false}, {"b", 1, false, true}, {"a", 1, false, false}} {
		if _, first, news := b.Admit(b.of(want.parent), b.some(want.n), b.now); first != want.first || news != want.news {
			t.Errorf("%d: first %v, news %v", n, first, news)
		}
	}
}

func TestWhatIsHeldIsCounted(t *testing.T) {
	for n, want := range map[int]string{1: "1 deletion of a child is", 2: "2 deletions of children are"} {
		if got := loopguard.CountDeletions(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for want, hold := range map[string]loopguard.Hold{
		"1 deletion, of 1 parent. ":   {Deletions: 1, Parents: 1},
		"3 deletions, of 1 parent. ":  {Deletions: 3, Parents: 1},
		"4 deletions, of 2 parents. ": {Deletions: 4, Parents: 2},
	} {
		if got := hold.Summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheExplanationHasTheCommand(t *testing.T) {
	b := newBench(t, intstr.FromString("10%"))
	b.want("a", 6, false)
	text := b.holds(6, 1).Explain("compositecontroller/hello")
	for _, part := range []string{
		"(10%)", "kubectl annotate --overwrite compositecontroller/hello metacontroller.k8s.io/confirm-deletions=2026-01-02T03:04:05.000Z",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

func TestAShareIsOfTheChildrenBeforeTheFirstDeletionOfTheMinute(t *testing.T) {
	for name, tc := range map[string]struct {
		// children is how many are left in the end, and most how many may be deleted then, after one.
		children, most int
	}{
		"OfFewerThanThereWere": {10, 0},
		"OfMoreThanThereWere":  {500, 49},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, intstr.FromString("10%"))
			for range 5 { // No minute is without a deletion.
				b.want("a", 1, true)
				b.now = b.now.Add(50 * time.Second)
			}
			b.children = tc.children
			b.now = b.now.Add(5 * time.Second)
			b.want("a", 1, true) // The one before counts, of the 50.
			b.now = b.now.Add(5 * time.Second)
			b.want("a", tc.most+1, false)
			b.want("a", 0, true)
			b.want("a", tc.most, true)
		})
	}
	t.Run("AfterANumber", func(t *testing.T) {
		b := newBench(t, intstr.FromString("10%"))
		b.want("a", 1, true)
		number, share := intstr.FromInt32(3), intstr.FromString("10%")
		b.configure(&number, "")
		for range 2 {
			b.now = b.now.Add(50 * time.Second)
			b.want("a", 1, true)
		}
		b.children = 10
		b.configure(&share, "")
		b.want("a", 1, false)
	})
}

func TestNoSyncWaitsWhileTheChildrenAreCounted(t *testing.T) {
	for name, ask := range map[string]func(b *bench) bool{
		"to admit deletions": func(b *bench) bool {
			admitted, _, _ := b.Admit(b.of("a"), b.some(1), b.now)
			return admitted
		},
		"to say what would be admitted": func(b *bench) bool { return b.Would(b.some(1), b.now) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, intstr.FromInt32(0))
			counted := 0
			b.DeletionGuard = loopguard.NewDeletionGuard(func() int {
				counted++
				others := make(chan struct{})
				go func() {
					defer close(others)
					b.Admit(b.of("b"), nil, b.now)
					b.Held()
				}()
				select {
				case <-others:
				case <-time.After(10 * time.Second):
					t.Error("another sync waits until the children are counted")
				}
				return 50
			})
			share := intstr.FromString("10%")
			b.configure(&share, "")
			for range 3 {
				if !ask(b) {
					t.Error("a deletion of 50 is held")
				}
			}
			if counted != 1 {
				t.Errorf("the children were counted %d times in one moment", counted)
			}
		})
	}
}
