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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

const (
	// maxSame is how many syncs in a row may write the same places, and each be caused by nothing but the one before, and maxReverts how
	// often in a row another client may change back what syncs write to the parent.
	maxSame, maxReverts = 10, 10
	// maxPerChild is how many such syncs there may be for each child if they write other places each time: each child may be created,
	// updated and deleted by a sync of its own.
	maxPerChild = 3
	// maxSteps is how many syncs may write over what others have made of children since, or because of what this process wrote to related objects, while the
	// parent stays as it is, if there is more than one in stepTime; there may be maxPerChild more for each child and related object.
	maxSteps, stepTime = 60, 500 * time.Millisecond
	// excuse is how long after a write a failure may have caused the next one: a back-off, of which the first of a hook is a second, has grown by then.
	excuse = 2 * time.Second
	// maxRelated bounds the changes of related objects that are kept until the next sync of a parent.
	maxRelated = 16
	// firstPause and lastPause are for how long a parent is held back, at first and at most; it doubles.
	firstPause, lastPause = time.Second, 5 * time.Minute
	// lastRestlessPause is the longest one of a parent whose children others write as well: they may be what the hook responds to.
	lastRestlessPause = time.Minute
	// strippedPause is for how long a parent is held back of which another client takes the finalizer off again and again: as long the hook would
	// not be asked before the parent goes.
	strippedPause = 5 * time.Second
	// memory is for how long it counts what syncs wrote, beyond a pause.
	memory = time.Minute
	// sweepFrom is the least number of parents from which those are looked for that need not be remembered any more.
	sweepFrom = 1024
)

// Cause says why a parent does not settle.
type Cause uint8

// The causes.
const (
	// None: it settles, as far as is known.
	None Cause = iota
	// Differs: each response differs from the one before.
	Differs
	// ChangedBack: another client changes back what is written to the parent.
	ChangedBack
	// Restless: children are written again and again, while nothing but they changes. Their own controllers write them as well, so that the hook is
	// shown something new each time.
	Restless
	// Stripped: another client takes the finalizer off the parent again and again.
	Stripped
)

// State stands for a parent with its children, as a hook is shown them. Equal numbers stand for equal values.
type State struct {
	// Written stands for what syncs may write to the parent: status, labels, annotations.
	Written uint64
	// Content stands for the rest of the parent.
	Content uint64
	// Children stands for the children with their versions. Those that are being deleted are not among them.
	Children uint64
	// Deleting stands for the children that are being deleted, with their versions, and Leaving for the same ones without. Both are those of before
	// the sync where it deletes children, of which it is not known what they are like afterwards.
	Deleting, Leaving uint64
}

// Sync is a sync that wrote something.
type Sync struct {
	// Before is what it saw, and After what it left.
	Before, After State
	// Places stands for the children and the parts of the parent that it wrote.
	Places uint64
	// Children is how many children there are that are not being deleted, and Related how many related objects.
	Children, Related int
	// WroteParent says that it wrote to the parent. Overwrote says that it wrote children which others had written since this controller did, and
	// Deleted that it deleted children.
	WroteParent, Overwrote, Deleted bool
	// Ends says that no sync follows from what it wrote.
	Ends bool
	// Rolling says that it is a step of a rolling update, which is no reason to hold the parent back.
	Rolling bool
	// Again is after which time the hook wants to be called again, zero for never. The parent is not held back for longer.
	Again time.Duration
}

// entry is what is known of a parent. There may be one for each, for a minute after a start. Times are counted from the tracker's start.
type entry struct {
	// left is what the last sync that wrote left, at a time; seen is what it saw of Written, and places what it wrote.
	left   State
	at     time.Duration
	seen   uint64
	places uint64
	// loops counts the syncs in a row that were caused by nothing but the one before, and same those of them that wrote the same places.
	// children is the most children that there were meanwhile.
	loops, same, children int32
	// most is the most children and related objects that there were since the first of the steps.
	most int32
	// reverts counts how often in a row what was written to the parent was changed back.
	reverts int32
	// steps counts the syncs since a time that wrote over what others wrote while the parent stayed as it is, and restless says that there were too many.
	steps int32
	// strips counts how often in a row another client took the finalizer off, lately at a time.
	strips          int32
	since, stripped time.Duration
	// until is the end of a pause, zero for none.
	pause, until time.Duration
	cause        Cause
	restless     bool
	// answers says that the last of the steps was caused by what other parents of this process answered.
	answers bool
	// failed says that a sync followed that wrote nothing and failed.
	failed bool
	// based says that Deleting and Leaving of left are those of after the sync.
	based bool
	// related are changes of related objects since the last sync that wrote.
	related []uint64
}

// start counts anew. The cause is set by blame.
func (e *entry) start() {
	e.steps, e.restless, e.answers, e.related = 0, false, false, nil
	e.interrupt()
}

// interrupt counts anew but for steps.
func (e *entry) interrupt() {
	e.loops, e.same, e.children, e.reverts = 0, 0, 0, 0
	if !e.restless {
		e.pause, e.until = 0, 0
	}
}

// step counts a sync of a parent that is as the last one left it, and that wrote over what others wrote, or because of what others of this process
// wrote.
func (e *entry) step(s Sync, now time.Duration) {
	if e.steps == 0 {
		e.since, e.most = now, 0
	}
	e.most = max(e.most, int32(min(s.Children+s.Related, 1<<20))) //nolint:gosec // It fits.
	if e.steps++; e.restless || e.steps < maxSteps+maxPerChild*e.most {
		return
	}
	if e.restless = now-e.since < time.Duration(e.steps)*stepTime; !e.restless {
		e.steps = 0
	}
}

// fought reports whether another client takes the finalizer off, as far as is known.
func (e *entry) fought(now time.Duration) bool {
	return e.strips > maxReverts && now-e.stripped <= memory
}

// expired reports whether nothing that is known of the parent counts any more.
func (e *entry) expired(now time.Duration) bool { return now-e.at > memory+e.pause }

// Tracker is what is known of the parents of one controller. It is safe for concurrent use; the zero value is ready.
type Tracker struct {
	// Answers reports whether this process wrote the version of an object for which Related was called, because of what a sync of the parent had written
	// before. Nil: none was. It is set before the first call, and must not call the Tracker.
	Answers func(key parent.Key, version uint64) bool

	// unsettled is the number of entries with a cause, so that it costs nothing to ask for others.
	unsettled atomic.Int64

	mu      sync.Mutex
	entries map[parent.Key]*entry
	sweepAt int
	// start is the first time that it was given.
	start time.Time
}

// since returns the time since the tracker's start, which is not negative. It is called with the lock held.
func (t *Tracker) since(at time.Time) time.Duration {
	if t.start.IsZero() {
		t.start = at
	}
	return max(0, at.Sub(t.start))
}

// Wrote takes note of a sync that wrote something. If the parent does not settle, it returns why, and for how long the parent is held
// back now.
func (t *Tracker) Wrote(key parent.Key, s Sync, at time.Time) (Cause, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.since(at)
	e, known := t.entries[key]
	if !known {
		t.put(key, &entry{left: s.After, at: now, seen: s.Before.Written, places: s.Places, based: !s.Deleted}, now)
		return None, 0
	}
	answered := t.answered(key, e)
	cause := e.count(s, answered, now)
	if cause != None || e.cause != Stripped || !e.fought(now) {
		t.blame(e, cause)
	}
	e.related = e.related[:0]
	e.left, e.at, e.seen, e.places, e.failed, e.based = s.After, now, s.Before.Written, s.Places, false, !s.Deleted
	if cause == None {
		return None, 0
	}
	e.pause = min(max(2*e.pause, firstPause), lastPause)
	if cause == Restless {
		e.pause = min(e.pause, lastRestlessPause)
	}
	if s.Again > 0 {
		e.pause = max(min(e.pause, s.Again), firstPause)
	}
	e.until = now + e.pause
	return cause, e.pause
}

// answered reports whether related objects changed since the last sync that wrote, all of them by writes of this process that answered writes for the
// parent. Every other change is an input from outside.
func (t *Tracker) answered(key parent.Key, e *entry) bool {
	if len(e.related) == 0 {
		return false
	}
	if t.Answers == nil || slices.ContainsFunc(e.related, func(version uint64) bool { return !t.Answers(key, version) }) {
		t.blame(e, None)
		e.start()
		return false
	}
	return true
}

// count counts a sync, and returns why the parent does not settle. answered says that syncs of other parents, which answer those of this one, caused it.
func (e *entry) count(s Sync, answered bool, now time.Duration) Cause {
	alone := s.Before.Content == e.left.Content && !s.Rolling && !e.expired(now)
	switch {
	case !alone || s.Before.Written != e.left.Written:
		e.steps, e.restless, e.answers = 0, false, false
	case s.Overwrote || answered:
		e.answers = answered
		e.step(s, now)
	}
	same := alone && s.Before.Children == e.left.Children
	unchanged := same && s.Before.Written == e.left.Written
	switch {
	case answered, unchanged && s.Ends:
		e.interrupt()
	case unchanged && e.failed && now-e.at >= excuse:
		// The failure may have caused it, and back-off sees to those.
	case unchanged && e.based && s.Before.Deleting != e.left.Deleting:
		// Children that go may have caused it, which the controller itself may have deleted.
	case unchanged:
		e.loops++
		e.children = max(e.children, int32(min(s.Children, 1<<20))) //nolint:gosec // It fits.
		if s.Places == e.places {
			e.same++
		} else {
			e.same = 0
		}
	case same && s.WroteParent && s.Before.Written == e.seen && s.After.Written == e.left.Written:
		e.reverts++
	default:
		e.interrupt()
	}
	switch {
	case e.restless && (s.Overwrote || answered):
		return Restless
	case e.same >= maxSame, e.loops >= maxSame+maxPerChild*e.children:
		return Differs
	case e.reverts >= maxReverts:
		return ChangedBack
	}
	return None
}

// Stored takes note that the API server has what the last sync left of Written, and how it stores that: the sync did not write it itself.
func (t *Tracker) Stored(key parent.Key, left, stored uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok && e.left.Written == left {
		e.left.Written = stored
	}
}

// Stripped takes note that another client has taken the finalizer off a parent. It reports whether that happens so often that the parent is held
// back, since each sync puts it on again.
func (t *Tracker) Stripped(key parent.Key, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.since(at)
	e, known := t.entries[key]
	if !known {
		e = &entry{}
		t.put(key, e, now)
	}
	if now-e.stripped > memory {
		if e.strips = 0; e.cause == Stripped {
			t.blame(e, None)
		}
	}
	e.strips++
	e.stripped, e.at = now, now
	if !e.fought(now) {
		return false
	}
	if e.cause == None {
		t.blame(e, Stripped)
	}
	e.until = max(e.until, now+strippedPause)
	return true
}

// Contended reports whether it was changed back often, or nearly so, what syncs write to a parent.
func (t *Tracker) Contended(key parent.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[key]
	return ok && e.reverts >= maxReverts-1
}

// Rested takes note of a sync that wrote nothing: responses come to an end. What another client changes back is seen by the next one.
func (t *Tracker) Rested(key parent.Key, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[key]
	if ok {
		e.related = e.related[:0]
	}
	switch {
	case !ok:
	case e.expired(t.since(at)):
		t.drop(key, e)
	case e.answers:
		// It rests until the next answer.
		e.loops, e.same = 0, 0
	case e.cause == ChangedBack:
		e.loops, e.same, e.until = 0, 0, 0
	case e.cause == Differs, e.cause == Restless:
		t.blame(e, None)
		e.start()
	default:
		e.loops, e.same, e.steps = 0, 0, 0
	}
}

// Failed takes note of a sync that failed and wrote nothing: whether responses come to an end is not known, and the sync that follows may be made
// because of the failure alone.
func (t *Tracker) Failed(key parent.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		e.failed = true
	}
}

// Outside says that something changed that a hook is shown and no State shows.
func (t *Tracker) Outside(key parent.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		t.blame(e, None)
		e.start()
	}
}

// Because returns the versions of related objects since the last sync of a parent that wrote.
func (t *Tracker) Because(key parent.Key) []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		return slices.Clone(e.related)
	}
	return nil
}

// Related says that a related object of a parent has a version now. Where another parent of this process wrote it because of this one, the syncs that
// follow from one another are counted.
func (t *Tracker) Related(key parent.Key, version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[key]
	switch {
	case !ok:
	case len(e.related) < maxRelated:
		e.related = append(e.related, version)
	case t.Answers == nil || !t.Answers(key, e.related[0]):
		t.blame(e, None)
		e.start()
	default:
		// It counts as the one of which it takes the place: of so many changes each is as good as any.
		e.related = append(e.related[1:], version)
	}
}

// AllOutside says so of all parents, and returns those that were held back.
func (t *Tracker) AllOutside(at time.Time) (held []parent.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.since(at)
	for key, e := range t.entries {
		if now < e.until {
			held = append(held, key)
		}
		t.blame(e, None)
		e.start()
	}
	return held
}

// Forget drops what is known of a parent that is gone.
func (t *Tracker) Forget(key parent.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		t.drop(key, e)
	}
}

// Held returns for how long a parent is to be held back still, zero for not at all. State returns what a sync of it would see now, false
// if that is not known; it is called for parents that are held back only. One that differs from what the last sync left, other than
// by what is changed back, ends the pause.
func (t *Tracker) Held(key parent.Key, at time.Time, state func() (State, bool)) time.Duration {
	if t.unsettled.Load() == 0 {
		return 0
	}
	t.mu.Lock()
	now := t.since(at)
	e, ok := t.entries[key]
	held := ok && now < e.until
	if held && e.cause == Stripped {
		defer t.mu.Unlock()
		return e.until - now
	}
	t.mu.Unlock()
	if !held {
		return 0
	}
	present, known := state()
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok = t.entries[key]; !ok || now >= e.until {
		return 0
	}
	if answered := t.answered(key, e); e.cause == None {
		return 0
	} else if answered && e.cause != Restless {
		t.blame(e, None)
		e.interrupt()
		return 0
	}
	if !known || present.Content != e.left.Content || present.Children != e.left.Children && e.cause != Restless ||
		present.Written != e.left.Written && (e.cause != ChangedBack || present.Written != e.seen) {
		t.blame(e, None)
		e.start()
		return 0
	}
	if !e.based {
		e.left.Deleting, e.left.Leaving, e.based = present.Deleting, present.Leaving, true
	}
	if present.Leaving != e.left.Leaving || e.cause != Restless && present.Deleting != e.left.Deleting {
		// The hook is shown a child that goes, or its place is free. What was counted stays: the controller itself may have deleted it.
		e.left.Deleting, e.left.Leaving, e.until = present.Deleting, present.Leaving, 0
		return 0
	}
	return e.until - now
}

// HeldUntil returns until when a parent is held back, zero for not at all.
func (t *Tracker) HeldUntil(key parent.Key, at time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok && t.since(at) < e.until {
		return at.Add(e.until - t.since(at)) // By the present clock, which may have been set since the start.
	}
	return time.Time{}
}

// Unsettled returns how many parents do not settle now, by the two causes.
func (t *Tracker) Unsettled(at time.Time) (differing, changedBack int) {
	if t.unsettled.Load() == 0 {
		return 0, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.since(at)
	for key, e := range t.entries {
		switch {
		case e.cause == None:
		case e.expired(now):
			t.drop(key, e)
		case e.cause == Differs, e.cause == Restless:
			differing++
		case e.cause == ChangedBack, e.cause == Stripped:
			changedBack++
		}
	}
	return differing, changedBack
}

// Len returns of how many parents something is known.
func (t *Tracker) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

// put is called with the lock held, as are the functions below.
func (t *Tracker) put(key parent.Key, e *entry, now time.Duration) {
	if t.entries == nil {
		t.entries = map[parent.Key]*entry{}
	}
	if len(t.entries) >= max(t.sweepAt, sweepFrom) {
		for key, e := range t.entries {
			if e.expired(now) {
				t.drop(key, e)
			}
		}
		t.sweepAt = 2 * len(t.entries)
	}
	t.entries[key] = e
}

func (t *Tracker) drop(key parent.Key, e *entry) {
	t.blame(e, None)
	delete(t.entries, key)
}

// blame sets why a parent does not settle.
func (t *Tracker) blame(e *entry, cause Cause) {
	switch {
	case e.cause == None && cause != None:
		t.unsettled.Add(1)
	case e.cause != None && cause == None:
		t.unsettled.Add(-1)
	}
	e.cause = cause
}
