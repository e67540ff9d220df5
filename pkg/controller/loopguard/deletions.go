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

package loopguard

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

const (
	// window is the time over which deletions are counted.
	window = time.Minute
	// confirmed is how long deletions pass once they are confirmed.
	confirmed = 10 * time.Minute
	// format is RFC 3339 with milliseconds: a server restarts within a second.
	format = "2006-01-02T15:04:05.000Z07:00"
)

// DeletionGuard holds deletions of one controller. It is safe for concurrent use. Nil holds nothing.
type DeletionGuard struct {
	// children returns the number of children that the controller has.
	children func() int

	mu sync.Mutex
	// limit is spec.deletionGuard.maxDeletions, nil if there is none.
	limit *intstr.IntOrString
	// counted are the children that were deleted within the last minute. A child that is deleted again, because it is not known whether it
	// was, or not seen yet, counts once.
	counted map[types.UID]deletion
	// admitted are the deletions in the order of their admission. One that is not counted with the same time is out of date.
	admitted []admission
	// holding is how many parents have deletions that are held, zero if there is no hold, and total how many deletions they have. began is when the
	// last hold began.
	holding, total int
	began          time.Time
	// opening says that deletions are confirmed and none was asked for since: the time begins then, not while the controller is paused or may
	// not sync anything. open is until when deletions are confirmed.
	opening bool
	open    time.Time
	// present is how many children there were at the time presentAt.
	present   int
	presentAt time.Time
}

// deletion is that of one child: at is when it was admitted last, and done, zero if never, when one was that was carried out, or may have been.
// Before is how many children there were before it, 0 if they were not counted, since the limit was no share of them.
type deletion struct {
	at, done time.Time
	before   int
}

type admission struct {
	child types.UID
	at    time.Time
}

// Hold is what a guard holds.
type Hold struct {
	// Deletions is how many deletions are held, and Parents of how many parents.
	Deletions, Parents int
	// Limit is spec.deletionGuard.maxDeletions.
	Limit string
	// Confirmation is the value of the annotation that confirms them.
	Confirmation string
}

// Summary is a sentence with what is held, as in "2 deletions, of 1 parent. ".
func (h Hold) Summary() string {
	plural := func(n int, one string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %ss", n, one)
	}
	return plural(h.Deletions, "deletion") + ", of " + plural(h.Parents, "parent") + ". "
}

// Explain says what is held and how to confirm it, for the controller object that kubectl names so.
func (h Hold) Explain(controller string) string {
	return fmt.Sprintf("Deletions of children of %s are held since %s: more were to be deleted within a minute than spec.deletionGuard.maxDeletions "+
		"(%s) allows. Nothing is deleted until they are confirmed, or no hook wants them any more. If they are right: kubectl annotate "+
		"--overwrite %s %s=%s", controller, h.Confirmation, h.Limit, controller, v1alpha1.AnnotationConfirmDeletions, h.Confirmation)
}

// CountDeletions begins a sentence about deletions of children: "1 deletion of a child is", "2 deletions of children are".
func CountDeletions(deletions int) string {
	if deletions == 1 {
		return "1 deletion of a child is"
	}
	return fmt.Sprintf("%d deletions of children are", deletions)
}

// NewDeletionGuard returns a guard without a limit. The function returns how many children the controller has; it must not call the guard.
func NewDeletionGuard(children func() int) *DeletionGuard {
	return &DeletionGuard{children: children, counted: map[types.UID]deletion{}}
}

// Held is how many deletions of one parent a guard holds. It belongs to the guard.
type Held int

// Configure takes the limit, nil for none, and the confirmation on the controller object. It returns those of the parents whose deletions are no
// longer held for one of these reasons, which are to be synced.
func (g *DeletionGuard) Configure(limit *intstr.IntOrString, confirmation string, parents iter.Seq2[parent.Key, *Held]) (released []parent.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	same := g.limit == limit || g.limit != nil && limit != nil && *g.limit == *limit
	g.limit = limit
	switch {
	case g.holding == 0:
		return nil
	case confirmation == g.confirmation():
		g.opening = true
	case same:
		return nil
	}
	for key, held := range parents {
		if *held > 0 {
			released = append(released, key)
			g.release(held)
		}
	}
	return released
}

// Admit reports whether a sync of a parent may carry out all the deletions of children that it has planned; none says that it wants none. If
// not, it must carry out none of them. First says that this begins a hold, and news that none of the parent's deletions was held before.
func (g *DeletionGuard) Admit(held *Held, deletions []types.UID, now time.Time) (admitted, first, news bool) {
	if g == nil {
		return true, false, false
	}
	g.lockFor(deletions, now)
	defer g.mu.Unlock()
	if g.opening {
		g.opening, g.open = false, now.Add(confirmed)
	}
	was, n := *held, len(deletions)
	if n == 0 || g.limit == nil || now.Before(g.open) {
		g.release(held)
		return true, false, false
	}
	if g.fits(deletions) {
		before := g.share()
		for _, child := range deletions {
			g.count(child, deletion{at: now, done: g.counted[child].done, before: before})
		}
		return true, false, false
	}
	if first = g.holding == 0; first {
		// No two holds have one time, by which they are confirmed.
		next := g.began.Add(time.Millisecond)
		if g.began = now.Truncate(time.Millisecond); g.began.Before(next) {
			g.began = next
		}
	}
	g.release(held)
	g.holding++
	g.total += n
	*held = Held(n)
	return false, first, was == 0
}

// Undone says that the deletion of a child, which was admitted, was not carried out. One before it may have been: the child is deleted again
// while an informer still shows it, and is not there.
func (g *DeletionGuard) Undone(child types.UID, now time.Time) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.counted[child]
	if now.Sub(d.done) >= window {
		delete(g.counted, child)
		return
	}
	d.at = d.done // There is an admission with this time.
	g.counted[child] = d
}

// Done says that the deletion of a child, which was admitted, was carried out, or that this is not known, since its response was lost. It
// counts, and does not count again when it is tried again.
func (g *DeletionGuard) Done(child types.UID) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if d, ok := g.counted[child]; ok {
		d.done = d.at
		g.counted[child] = d
	}
}

// Forget drops the held deletions of a parent that is gone.
func (g *DeletionGuard) Forget(held *Held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(held)
}

// Len returns how many children are counted, and parents with deletions that are held.
func (g *DeletionGuard) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.counted) + g.holding
}

// Held returns what is held, and whether anything is.
func (g *DeletionGuard) Held() (Hold, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holding == 0 || g.limit == nil {
		return Hold{}, false
	}
	return Hold{Deletions: g.total, Parents: g.holding, Limit: g.limit.String(), Confirmation: g.confirmation()}, true
}

// HeldOf returns how many deletions of a parent are held.
func (g *DeletionGuard) HeldOf(held *Held) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int(*held)
}

// Would reports whether Admit would admit deletions now. It admits none.
func (g *DeletionGuard) Would(deletions []types.UID, now time.Time) bool {
	if g == nil {
		return true
	}
	g.lockFor(deletions, now)
	defer g.mu.Unlock()
	return len(deletions) == 0 || g.limit == nil || g.opening || now.Before(g.open) || g.fits(deletions)
}

// lockFor takes the lock, with the deletions forgotten that do not count any more, and the children counted if deletions are asked for of which a share
// of them is allowed. They are counted without the lock, for which every sync of the controller waits: it takes time where there are many.
func (g *DeletionGuard) lockFor(deletions []types.UID, now time.Time) {
	g.mu.Lock()
	g.expire(now)
	for len(deletions) > 0 && g.outdated(now) {
		g.mu.Unlock()
		present := g.children()
		g.mu.Lock()
		g.present, g.presentAt = present, now
	}
}

// The functions below are called with the lock held.

// fits reports whether the limit allows deletions. What is held already is held until it is confirmed: it does not pass piece by piece, minute for
// minute.
func (g *DeletionGuard) fits(deletions []types.UID) bool {
	return g.holding == 0 && len(g.counted)+g.uncounted(deletions) <= most(g.limit, g.before())
}

// outdated reports whether it depends on the number of children what is admitted, and they were not counted for that: now, if no deletion
// counts, or else a moment ago.
func (g *DeletionGuard) outdated(now time.Time) bool {
	if g.limit == nil || g.limit.Type == intstr.Int || g.opening || now.Before(g.open) || g.holding > 0 || g.presentAt.Equal(now) {
		return false
	}
	return g.beforeCounted() == 0 || now.Sub(g.presentAt) >= time.Second
}

func (g *DeletionGuard) confirmation() string { return g.began.UTC().Format(format) }

func (g *DeletionGuard) release(held *Held) {
	if *held > 0 {
		g.holding--
		g.total -= int(*held)
		*held = 0
	}
}

// expire forgets the deletions of more than a minute ago.
func (g *DeletionGuard) expire(now time.Time) {
	old := 0
	for ; old < len(g.admitted) && now.Sub(g.admitted[old].at) >= window; old++ {
		if a := g.admitted[old]; g.counted[a.child].at.Equal(a.at) {
			delete(g.counted, a.child)
		}
	}
	g.admitted = g.admitted[old:]
}

// before returns how many children there were before the first of the deletions that count, and how many there are if none does. It is 0
// where the limit is no share of them.
func (g *DeletionGuard) before() int {
	if before := g.beforeCounted(); before > 0 && g.limit.Type != intstr.Int {
		return before
	}
	return g.share()
}

// beforeCounted returns how many children there were before the first of the deletions that count, 0 if none does.
func (g *DeletionGuard) beforeCounted() int {
	for _, a := range g.admitted {
		if d := g.counted[a.child]; d.before > 0 && d.at.Equal(a.at) {
			return d.before
		}
	}
	return 0
}

// share returns how many children there are, or were a moment ago. It is 0 where the limit is no share of them.
func (g *DeletionGuard) share() int {
	if g.limit.Type == intstr.Int {
		return 0
	}
	return g.present
}

func (g *DeletionGuard) count(child types.UID, d deletion) {
	child = types.UID(strings.Clone(string(child))) // It may be a part of the whole object.
	g.counted[child] = d
	g.admitted = append(g.admitted, admission{child, d.at})
}

// uncounted returns how many of these deletions do not count yet.
func (g *DeletionGuard) uncounted(deletions []types.UID) int {
	n := 0
	for _, child := range deletions {
		if _, counted := g.counted[child]; !counted {
			n++
		}
	}
	return n
}

// most returns how many deletions a minute may have that began with so many children. A limit that cannot be read, which validation
// refuses, allows none.
func most(limit *intstr.IntOrString, before int) int {
	if limit.Type == intstr.Int {
		return limit.IntValue()
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(limit.StrVal, "%"))
	if err != nil || percent <= 0 {
		return 0
	}
	return max(1, before*percent/100)
}
