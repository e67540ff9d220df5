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

package deletionguard

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

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

// Guard holds deletions of one controller. It is safe for concurrent use. Nil holds nothing.
type Guard struct {
	// children returns the number of children that the controller has.
	children func() int

	mu sync.Mutex
	// limit is spec.deletionGuard.maxDeletions, nil if there is none.
	limit *intstr.IntOrString
	// passed are the deletions of the last minute, before which there were so many children.
	passed []passed
	before int
	// doubtful are the deletions of each parent of which it is not known whether they were carried out.
	doubtful map[parent.Key]passed
	// held is how many deletions of each parent are held; empty if there is no hold. began is when the last hold began.
	held  map[parent.Key]int
	total int
	began time.Time
	// open is until when deletions are confirmed.
	open time.Time
}

// passed are the deletions of one sync.
type passed struct {
	at time.Time
	n  int
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

// Explain says what is held and how to confirm it, for the controller object that kubectl names so.
func (h Hold) Explain(controller string) string {
	return fmt.Sprintf("Deletions of children of %s are held since %s: more were to be deleted within a minute than spec.deletionGuard.maxDeletions "+
		"(%s) allows. Nothing is deleted until they are confirmed, or no hook wants them any more. If they are right: kubectl annotate "+
		"--overwrite %s %s=%s", controller, h.Confirmation, h.Limit, controller, v1alpha1.AnnotationConfirmDeletions, h.Confirmation)
}

// New returns a guard without a limit. The function returns how many children the controller has; it must not call the guard.
func New(children func() int) *Guard {
	return &Guard{children: children, doubtful: map[parent.Key]passed{}}
}

// Configure takes the limit, nil for none, and the confirmation on the controller object. It returns the parents whose deletions are no
// longer held for one of these reasons, which are to be synced.
func (g *Guard) Configure(limit *intstr.IntOrString, confirmation string, now time.Time) []parent.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	same := g.limit == limit || g.limit != nil && limit != nil && *g.limit == *limit
	g.limit = limit
	switch {
	case len(g.held) == 0:
		return nil
	case confirmation == g.confirmation():
		g.open = now.Add(confirmed)
	case same:
		return nil
	}
	released := make([]parent.Key, 0, len(g.held))
	for key := range g.held {
		released = append(released, key)
	}
	g.held, g.total = nil, 0
	return released
}

// Admit reports whether a sync of a parent may carry out all n deletions that it has planned; zero says that it wants none. If not, it must
// carry out none of them. First says that this begins a hold, and news that none of the parent's deletions was held before.
func (g *Guard) Admit(key parent.Key, n int, now time.Time) (admitted, first, news bool) {
	if g == nil {
		return true, false, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.held[key]
	if n == 0 || g.limit == nil || now.Before(g.open) {
		delete(g.doubtful, key)
		g.release(key)
		return true, false, false
	}
	g.expire(now)
	// What is held already is held until it is confirmed: it does not pass piece by piece, minute for minute.
	again := g.repeated(key, n, now)
	if len(g.held) == 0 && g.count()-again+n <= most(g.limit, g.before) {
		delete(g.doubtful, key)
		g.undo(again)
		g.passed = append(g.passed, passed{now, n})
		return true, false, false
	}
	if first = len(g.held) == 0; first {
		g.begin(now)
	}
	g.total += n - was
	g.held[key] = n
	return false, first, was == 0
}

// Undone says that so many deletions, which were admitted, were not carried out.
func (g *Guard) Undone(n int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.undo(n)
}

// Doubtful says that so many deletions of a parent were admitted of which it is not known whether they were carried out, since their
// responses were lost. They count, and if the parent's next ones may be the same, those do not count again.
func (g *Guard) Doubtful(key parent.Key, n int, now time.Time) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit != nil {
		g.doubtful[key] = passed{now, n}
	}
}

// Forget drops a parent that is gone, with its held deletions.
func (g *Guard) Forget(key parent.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(key)
	delete(g.doubtful, key)
}

// Held returns what is held, and whether anything is.
func (g *Guard) Held() (Hold, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held) == 0 || g.limit == nil {
		return Hold{}, false
	}
	return Hold{Deletions: g.total, Parents: len(g.held), Limit: g.limit.String(), Confirmation: g.confirmation()}, true
}

// HeldOf returns how many deletions of a parent are held.
func (g *Guard) HeldOf(key parent.Key) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[key]
}

// Would reports whether Admit would admit n deletions of a parent now. It changes nothing.
func (g *Guard) Would(key parent.Key, n int, now time.Time) bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n == 0 || g.limit == nil || now.Before(g.open) {
		return true
	}
	if len(g.held) > 0 {
		return false
	}
	count := 0
	for _, p := range g.passed {
		if now.Sub(p.at) < window {
			count += p.n
		}
	}
	before := g.before
	if g.limit.Type == intstr.String && (before == 0 || count == 0) {
		before = g.children()
	}
	return count-min(count, g.repeated(key, n, now))+n <= most(g.limit, before)
}

// The functions below are called with the lock held.

// begin begins a hold. No two of them have one time, by which they are confirmed.
func (g *Guard) begin(now time.Time) {
	at := now.Truncate(time.Millisecond)
	if !at.After(g.began) {
		at = g.began.Add(time.Millisecond)
	}
	g.began, g.held = at, map[parent.Key]int{}
}

func (g *Guard) confirmation() string { return g.began.UTC().Format(format) }

func (g *Guard) release(key parent.Key) {
	g.total -= g.held[key]
	delete(g.held, key)
}

// undo counts so many deletions no more, the latest ones first.
func (g *Guard) undo(n int) {
	for i := len(g.passed) - 1; i >= 0 && n > 0; i-- {
		back := min(n, g.passed[i].n)
		g.passed[i].n -= back
		n -= back
	}
}

// repeated returns how many of the next n deletions of a parent count already.
func (g *Guard) repeated(key parent.Key, n int, now time.Time) int {
	before := g.doubtful[key]
	if now.Sub(before.at) >= window {
		return 0
	}
	return min(before.n, n, g.count())
}

// expire forgets the deletions of more than a minute ago, and notes how many children there are before the next ones.
func (g *Guard) expire(now time.Time) {
	recent := 0
	for recent < len(g.passed) && now.Sub(g.passed[recent].at) >= window {
		recent++
	}
	if g.passed = g.passed[recent:]; g.limit.Type == intstr.String && (g.before == 0 || g.count() == 0 && len(g.held) == 0) {
		g.before = g.children()
	}
}

// count returns the number of deletions within the last minute.
func (g *Guard) count() int {
	n := 0
	for _, p := range g.passed {
		n += p.n
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
