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
	// doubt is how long a change of a related object may be an answer whose writer has no response yet: its event may come before.
	doubt = 250 * time.Millisecond
	// maxRelated bounds the changes of related objects that are kept until the next sync of a parent.
	maxRelated = 16
	// firstPause and lastPause are for how long a parent is held back, at first and at most; it doubles.
	firstPause, lastPause = time.Second, 5 * time.Minute
	// lastRestlessPause is the longest one of a parent whose children others write as well: they may be what the hook responds to.
	lastRestlessPause = time.Minute
	// absence is for how long at most a child stays away that was deleted to be created again.
	absence = 5 * time.Second
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
	// Written stands for what syncs may write to the parent: status, labels, annotations. Marks stands for its labels and annotations alone.
	Written, Marks uint64
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
	// Recreates says that children which it deleted are gone, and created again by the next sync. Recreated says that it did nothing but create such
	// ones. If they are those of the sync before, that one is blamed.
	Recreates, Recreated bool
	// Ends says that no sync follows from what it wrote.
	Ends bool
	// Rolling says that it is a step of a rolling update, which is no reason to hold the parent back.
	Rolling bool
	// Again is after which time the hook wants to be called again, zero for never. The parent is not held back for longer.
	Again time.Duration
}

// entry is what is known of a parent. There may be one for each, for a minute after a start.
type entry struct {
	// left is what the last sync that wrote left, at a time; seen and seenMarks are what it saw of Written and Marks, and places what it wrote.
	left            State
	at              time.Time
	seen, seenMarks uint64
	places          uint64
	// loops counts the syncs in a row that were caused by nothing but the one before, and same those of them that wrote the same places.
	// children is the most children that there were meanwhile.
	loops, same, children int32
	// most is the most children and related objects that there were since the first of the steps.
	most int32
	// ends counts the pauses that shorten ended, lately at a time. Owed says that it shortened the last one, and that a whole one is to follow.
	ends      int32
	owed      bool
	shortened time.Time
	// reverts counts how often in a row what was written to the parent was changed back.
	reverts int32
	// steps counts the syncs since a time that wrote over what others wrote while the parent stayed as it is, or were held back until others wrote, and
	// restless says that there were too many.
	steps int32
	// strips counts how often in a row another client took the finalizer off, lately at a time.
	strips          int32
	since, stripped time.Time
	// until is the end of a pause, zero for none.
	until    time.Time
	pause    time.Duration
	cause    Cause
	restless bool
	// marks says that the labels and annotations are changed back, while others write the status.
	marks bool
	// answers says that the last of the steps was caused by what other parents of this process answered.
	answers bool
	// failed says that a sync followed that wrote nothing and failed.
	failed bool
	// based says that Deleting and Leaving of left are those of after the sync.
	based bool
	// recreated is when no pause followed a sync lately because the next one creates again what it deleted, and replacing when a sync deleted children
	// lately, or created such ones again.
	recreated, replacing time.Time
	// related are changes of related objects since the last sync that wrote, and because those that caused the last sync that they caused: the syncs
	// that follow from its writes have the same causes.
	related, because []uint64
	// doubtful are changes that seemed to be from outside when a sync wrote. The response to the write that made one may have come since. Doubted is since
	// when one of them or of related seems so in a pause.
	doubtful []uint64
	doubted  time.Time
}

// outside counts anew because of an input from outside.
func (e *entry) outside() {
	e.cause, e.steps, e.restless, e.answers, e.related, e.because, e.doubtful, e.doubted = None, 0, false, false, nil, nil, nil, time.Time{}
	e.interrupt()
}

// interrupt counts anew but for steps.
func (e *entry) interrupt() {
	e.loops, e.same, e.children, e.reverts = 0, 0, 0, 0
	if !e.restless {
		e.pause, e.until, e.ends, e.owed = 0, time.Time{}, 0, false
	}
}

// shorten ends a pause because a child goes, which this controller may have deleted. So it ends a few at once. Of those that follow without a minute
// between them each lasts longer, up to absence, and the sync that takes the place is followed by a whole one.
func (e *entry) shorten(at time.Time) {
	few := maxSame + maxPerChild*max(e.children, e.most, 1)
	switch {
	case e.owed:
		return
	case e.ends < few:
		e.until = time.Time{}
	default:
		if at.Sub(e.shortened) > memory {
			e.ends = few
		}
		if soon := e.at.Add(min(firstPause<<min(e.ends-few, 3), absence)); soon.Before(e.until) {
			e.until = soon
		}
		e.owed, e.shortened = true, at
	}
	e.ends++
}

// step counts a sync of a parent that is as the last one left it, and that wrote over what others wrote, or because of what others of this process
// wrote.
func (e *entry) step(s Sync, now time.Time) {
	if e.steps == 0 {
		e.since, e.most = now, 0
	}
	e.most = max(e.most, int32(min(s.Children+s.Related, 1<<20))) //nolint:gosec // It fits.
	if e.steps++; e.restless || e.steps < maxSteps+maxPerChild*e.most {
		return
	}
	if e.restless = now.Sub(e.since) < time.Duration(e.steps)*stepTime; !e.restless {
		e.steps = 0
	}
}

// wrote reports whether what syncs may write to the parent is as the last one left it, or as the other client does that changes it back.
func (e *entry) wrote(present State) bool {
	if e.cause == ChangedBack && e.marks {
		return present.Marks == e.left.Marks || present.Marks == e.seenMarks
	}
	return present.Written == e.left.Written || e.cause == ChangedBack && present.Written == e.seen
}

// fought reports whether another client takes the finalizer off, as far as is known.
func (e *entry) fought(now time.Time) bool {
	return e.strips > maxReverts && now.Sub(e.stripped) <= memory
}

// expired reports whether nothing that is known of the parent counts any more.
func (e *entry) expired(now time.Time) bool { return now.Sub(e.at) > memory+e.pause }

// Tracker is what the parents of one controller have in common. It is safe for concurrent use; the zero value is ready.
type Tracker struct {
	// Answers reports whether this process wrote the version of an object for which Related was called, because of what a sync of the parent had written
	// before. Nil: none was. It is set before the first call, and must not call the Tracker.
	Answers func(key parent.Key, version uint64) bool

	// known is the number of parents of which something is known, and sweepAt from how many on it is looked for those that need not be remembered any more.
	known, sweepAt atomic.Int64
}

// Parent is what is known of one parent. It is safe for concurrent use. The zero value is one of which nothing is remembered.
type Parent struct {
	key *parent.Key

	mu sync.Mutex
	// of is nil if nothing is to be remembered.
	of *Tracker
	// entry is nil if nothing is known.
	entry *entry
}

// Remember has what is known of a parent remembered from now on. The key must not change.
func (t *Tracker) Remember(p *Parent, key *parent.Key) { p.of, p.key = t, key }

// Sweep forgets what does not count any more, once so much is known that it is worth to look at all parents.
func (t *Tracker) Sweep(at time.Time, all func(yield func(*Parent) bool)) {
	if t.known.Load() < max(t.sweepAt.Load(), sweepFrom) {
		return
	}
	for p := range all {
		p.with(func(e *entry) {
			if e.expired(at) {
				p.drop()
			}
		})
	}
	t.sweepAt.Store(2 * t.known.Load())
}

// Unsettled returns how many parents do not settle now, by the two causes.
func (t *Tracker) Unsettled(at time.Time, all func(yield func(*Parent) bool)) (differing, changedBack int) {
	if t.known.Load() == 0 {
		return 0, 0
	}
	for p := range all {
		switch p.cause(at) {
		case None:
		case Differs, Restless:
			differing++
		case ChangedBack, Stripped:
			changedBack++
		}
	}
	return differing, changedBack
}

// with calls f with what is known of a parent, if anything is.
func (p *Parent) with(f func(*entry)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entry != nil {
		f(p.entry)
	}
}

// cause returns why a parent does not settle now.
func (p *Parent) cause(at time.Time) (cause Cause) {
	p.with(func(e *entry) {
		if cause = e.cause; cause != None && e.expired(at) {
			p.drop()
			cause = None
		}
	})
	return cause
}

// Wrote takes note of a sync that wrote something. If the parent does not settle, it returns why, unless it returned that for the sync before, and for how
// long the parent is held back now. Of a recreation only the second half is followed by a long pause.
func (p *Parent) Wrote(s Sync, now time.Time) (Cause, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry
	first := e == nil
	if first {
		e = &entry{left: s.After, at: now, seen: s.Before.Written, seenMarks: s.Before.Marks, places: s.Places, based: !s.Deleted}
		p.put(e)
	}
	if s.Deleted || s.Recreated {
		e.replacing = now
	}
	if first {
		return None, 0
	}
	answered := p.answered(true)
	cause := e.count(s, answered, now)
	if cause != None || e.cause != Stripped || !e.fought(now) {
		e.cause = cause
	}
	e.caused(s)
	begun := s.Recreated && s.Places == e.places || e.owed || e.recreated.Equal(e.at)
	e.left, e.at, e.seen, e.seenMarks = s.After, now, s.Before.Written, s.Before.Marks
	e.places, e.failed, e.based, e.owed = s.Places, false, !s.Deleted, false
	if cause == None {
		return None, 0
	}
	pause := min(max(2*e.pause, firstPause), lastPause)
	if cause == Restless {
		pause = min(pause, lastRestlessPause)
	}
	if s.Again > 0 {
		pause = max(min(pause, s.Again), firstPause)
	}
	if s.Recreates && pause > absence && now.Sub(e.recreated) > pause/2 {
		e.recreated = now
		return cause, 0
	}
	if e.pause, e.until = pause, now.Add(pause); begun {
		cause = None
	}
	return cause, pause
}

// caused takes note of what caused a sync that wrote.
func (e *entry) caused(s Sync) {
	switch {
	case s.Before.Content != e.left.Content:
		e.because = nil
	case len(e.related) > 0:
		e.because = append(e.because[:0], e.related...)
	}
	e.related = e.related[:0]
}

// answered reports whether related objects changed since the last sync that wrote, all of them by writes of this process that answered writes for the
// parent. Every other change is an input from outside, for a sync that wrote if it still seems so at the next one.
func (p *Parent) answered(wrote bool) bool {
	e := p.entry
	if slices.ContainsFunc(e.doubtful, p.foreign) || !wrote && slices.ContainsFunc(e.related, p.foreign) {
		related := e.related
		if e.outside(); !wrote {
			return false
		}
		e.related = related
	}
	e.doubtful = slices.DeleteFunc(slices.Clone(e.related), p.answers)
	return len(e.related) > 0
}

func (p *Parent) foreign(version uint64) bool { return !p.answers(version) }

// doubts returns for how long it is in doubt whether changes of related objects are from outside.
func (p *Parent) doubts(at time.Time) time.Duration {
	e := p.entry
	switch {
	case !slices.ContainsFunc(e.doubtful, p.foreign) && !slices.ContainsFunc(e.related, p.foreign):
		e.doubted = time.Time{}
		return 0
	case e.doubted.IsZero():
		e.doubted = at
	}
	return e.doubted.Add(doubt).Sub(at)
}

func (p *Parent) answers(version uint64) bool {
	return p.of.Answers != nil && p.of.Answers(*p.key, version)
}

// count counts a sync, and returns why the parent does not settle. answered says that syncs of other parents, which answer those of this one, caused it.
func (e *entry) count(s Sync, answered bool, now time.Time) Cause {
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
	case unchanged && e.failed && now.Sub(e.at) >= excuse:
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
		e.reverts, e.marks = e.reverts+1, false
	case same && s.WroteParent && s.Before.Marks != e.left.Marks && s.Before.Marks == e.seenMarks && s.After.Marks == e.left.Marks:
		e.reverts, e.marks = e.reverts+1, true
	default:
		e.interrupt()
	}
	switch {
	case e.restless && (s.Overwrote || answered || e.owed):
		return Restless
	case e.same >= maxSame, e.loops >= maxSame+maxPerChild*e.children:
		return Differs
	case e.reverts >= maxReverts:
		return ChangedBack
	}
	return None
}

// Stored takes note that the API server has what the last sync left of Written, and how it stores that: the sync did not write it itself.
func (p *Parent) Stored(left, stored uint64) {
	p.with(func(e *entry) {
		if e.left.Written == left {
			e.left.Written = stored
		}
	})
}

// Stripped takes note that another client has taken the finalizer off a parent. It reports whether that happens so often that the parent is held
// back, since each sync puts it on again.
func (p *Parent) Stripped(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entry == nil {
		p.put(&entry{})
	}
	e := p.entry
	if e == nil {
		return false
	}
	if now.Sub(e.stripped) > memory {
		if e.strips = 0; e.cause == Stripped {
			e.cause = None
		}
	}
	e.strips++
	e.stripped, e.at = now, now
	if !e.fought(now) {
		return false
	}
	if e.cause == None {
		e.cause = Stripped
	}
	if until := now.Add(strippedPause); until.After(e.until) {
		e.until = until
	}
	return true
}

// Contended reports whether it was changed back often, or nearly so, what syncs write to a parent.
func (p *Parent) Contended() (often bool) {
	p.with(func(e *entry) { often = e.reverts >= maxReverts-1 })
	return often
}

// Rested takes note of a sync that wrote nothing: responses come to an end. What another client changes back is seen by the next one.
func (p *Parent) Rested(at time.Time) {
	p.with(func(e *entry) {
		e.related, e.because = e.related[:0], nil
		switch {
		case e.expired(at):
			p.drop()
		case e.answers:
			// It rests until the next answer.
			e.loops, e.same = 0, 0
		case e.cause == ChangedBack:
			e.loops, e.same, e.until = 0, 0, time.Time{}
		case e.cause == Differs, e.cause == Restless:
			e.outside()
		default:
			e.loops, e.same, e.steps = 0, 0, 0
		}
	})
}

// Replaces reports whether syncs deleted children lately, or created such ones again. One that waits for the place of such a child then says nothing of
// whether responses come to an end: the next response is carried out when the place is free.
func (p *Parent) Replaces(at time.Time) (lately bool) {
	p.with(func(e *entry) { lately = at.Sub(e.replacing) <= memory })
	return lately
}

// Failed takes note of a sync that failed and wrote nothing: whether responses come to an end is not known, and the sync that follows may be made
// because of the failure alone.
func (p *Parent) Failed() { p.with(func(e *entry) { e.failed = true }) }

// Outside says that something changed that a hook is shown and no State shows. It reports whether the parent was held back.
func (p *Parent) Outside(at time.Time) (held bool) {
	p.with(func(e *entry) {
		held = at.Before(e.until)
		e.outside()
	})
	return held
}

// Because returns the versions of related objects that cause a sync of a parent: those since the last one that wrote, or else those that caused that one.
func (p *Parent) Because() (versions []uint64) {
	p.with(func(e *entry) {
		if versions = slices.Clone(e.related); len(versions) == 0 {
			versions = slices.Clone(e.because)
		}
	})
	return versions
}

// Related says that a related object of a parent has a version now. Where another parent of this process wrote it because of this one, the syncs that
// follow from one another are counted.
func (p *Parent) Related(version uint64) {
	p.with(func(e *entry) {
		switch {
		case len(e.related) < maxRelated:
			e.related = append(e.related, version)
		case !p.answers(e.related[0]):
			e.outside()
		default:
			// It counts as the one of which it takes the place: of so many changes each is as good as any.
			e.related = append(e.related[1:], version)
		}
	})
}

// Forget drops what is known. Nothing is remembered afterwards.
func (p *Parent) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entry != nil {
		p.drop()
	}
	p.of = nil
}

// Held returns for how long a parent is to be held back still, zero for not at all. State returns what a sync of it would see now, false
// if that is not known; it is called for parents that are held back only. One that differs from what the last sync left, other than
// by what is changed back, ends the pause.
func (p *Parent) Held(at time.Time, state func() (State, bool)) time.Duration {
	wait, cause := p.waits(at)
	if wait == 0 || cause == Stripped {
		return wait
	}
	present, known := state()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry
	if e == nil || !at.Before(e.until) {
		return 0
	}
	until := e.until
	if doubted := p.doubts(at); doubted > 0 && e.cause == Restless {
		if soon := at.Add(doubted); soon.Before(until) {
			until = soon
		}
	} else if answered := p.answered(false); e.cause == None {
		return 0
	} else if answered && e.cause != Restless {
		e.cause = None
		e.interrupt()
		return 0
	}
	if !known || present.Content != e.left.Content || !e.wrote(present) {
		e.outside()
		return 0
	}
	// Others write the children of a parent that is restless because of them.
	restless := e.cause == Restless && !e.answers
	if present.Children != e.left.Children && !restless {
		// Their own controllers may answer what the syncs wrote, so that these are counted on: as steps.
		e.cause = None
		if e.steps == 0 {
			e.since, e.most = at, 0
		}
		e.steps += e.loops
		e.interrupt()
		return 0
	}
	if !e.based {
		e.left.Deleting, e.left.Leaving, e.based = present.Deleting, present.Leaving, true
	}
	if present.Leaving != e.left.Leaving || !restless && present.Deleting != e.left.Deleting {
		// The hook is shown a child that goes, or its place is free. What was counted stays: the controller itself may have deleted it.
		e.left.Deleting, e.left.Leaving = present.Deleting, present.Leaving
		if e.shorten(at); e.until.Before(until) {
			until = e.until
		}
		return max(0, until.Sub(at))
	}
	return until.Sub(at)
}

// waits returns for how long a parent is held back, zero for not at all, and why.
func (p *Parent) waits(at time.Time) (wait time.Duration, cause Cause) {
	p.with(func(e *entry) { wait, cause = max(0, e.until.Sub(at)), e.cause })
	return wait, cause
}

// Waits returns for how long a parent is held back, zero for not at all.
func (p *Parent) Waits(at time.Time) time.Duration {
	wait, _ := p.waits(at)
	return wait
}

// Known reports whether anything is known.
func (p *Parent) Known() (known bool) {
	p.with(func(*entry) { known = true })
	return known
}

// The functions below are called with the lock held.

func (p *Parent) put(e *entry) {
	if p.of != nil {
		p.entry = e
		p.of.known.Add(1)
	}
}

func (p *Parent) drop() {
	p.entry = nil
	p.of.known.Add(-1)
}
