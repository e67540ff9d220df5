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

package plan

import (
	"maps"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Outcome is what happened to one child.
type Outcome struct {
	Step
	// Written is the child as the API server returned it, after Create and Update that succeeded.
	Written *object.Object
	// Moved is the child after Migration, if Body did not follow: the write of that failed, or the step is stale. Nil if Migration did
	// not change the child.
	Moved *object.Object
	// Gone is the child as it was when a Delete or Recreate deleted it, if the response says that it is gone, and Left the child as that left
	// it, if it is there until its finalizers or its grace period have ended. Nil for neither: the response did not say.
	Gone, Left *object.Object
	// Done says that the step changed the cluster. An Update does not if the API server finds nothing to change.
	Done bool
	// Stale says that the step was made from a state that is past: the child changed, went or came meanwhile. That is no
	// error (docs/reference/contract.md#s11); the change that was overlooked wakes the parent. Cause says
	// what the API server said.
	Stale bool
	// Unknown says that it is not known whether the API server did the step: the response was lost, for one.
	Unknown bool
	// Existing is the object that has the name of a child to be created, and the same parent. The step is stale then, if the object
	// is a child of this controller.
	Existing *object.Object
	// Warnings are what the API server said about the write, beside doing it.
	Warnings []string
}

// Next returns the records of the parent's children after a plan was carried out, for which f is the fingerprint of the response
// that it was made for, zero for none. It changes none of before. Children that the plan does not
// deal with have none, unless they are kept.
func (p Plan) Next(before Records, outcomes []Outcome, f Fingerprint) Records {
	happened := make(map[children.Key]*Outcome, len(outcomes))
	for i := range outcomes {
		happened[outcomes[i].Key] = &outcomes[i]
	}
	var next Records
	desired := len(p.Failed)
	for i := range p.Steps {
		if p.Steps[i].desired != 0 {
			desired++
		}
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.desired == 0 {
			continue
		}
		known := before.Get(step.Key)
		now := p.next(step, known, happened[step.Key])
		if now != nil && f != 0 && now.Desired == step.desired && (now.Fingerprint != f || int(now.Siblings) != desired) {
			if now == known {
				now = known.For(step.Key, step.desired)
			}
			// A child whose write failed may be known in another desired state still: that one is not the response's.
			now.Fingerprint, now.Siblings = f, int32(desired) //nolint:gosec // A response has not that many children.
		}
		if now != nil {
			next = append(next, now)
		}
	}
	for _, key := range slices.Concat(p.Failed, p.Kept) {
		if known := before.Get(key); known != nil && !known.Contested() {
			// It is there still.
			next = append(next, known)
		}
	}
	next = append(next, p.contested(before, next, happened)...)
	next.Sort()
	if slices.Equal(next, before) {
		return before
	}
	return next
}

// contested returns the records of children that no response wants and that were deleted although this process did not make them, and of their kinds; and
// those of before that count still. Next has the others.
func (p Plan) contested(before, next Records, happened map[children.Key]*Outcome) Records {
	counted := map[children.Key]*Record{}
	for _, known := range before {
		if known.Contested() && !known.Over(p.Now) {
			counted[known.Key] = known
		}
	}
	if len(counted) == 0 && !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Action == Delete }) {
		return nil
	}
	there, deleted := map[children.Key]int{}, map[children.Key]int{}
	for _, key := range p.Kept {
		there[OfKind(key)]++
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		kind := OfKind(step.Key)
		there[kind]++
		if step.desired != 0 || before.Get(step.Key) != nil && !before.Get(step.Key).Contested() {
			continue
		}
		o := happened[step.Key]
		switch {
		case o != nil && o.Done:
			deleted[kind]++
			of := counted[step.Key].Contend(step.Key)
			of.Counted(of.Breaker().Count(false, p.Now))
			counted[step.Key] = of
		case step.HoldsDeletion() && step.Report:
			for _, key := range []children.Key{step.Key, kind} {
				if _, paused := counted[key].Breaker().Paused(p.Now); paused {
					of := counted[key].Contend(key)
					of.Counted(of.Breaker().Report())
					counted[key] = of
				}
			}
		}
	}
	for kind, n := range deleted {
		of := counted[kind].Contend(kind)
		of.Counted(of.Breaker().CountOf(n, there[kind], p.Now))
		counted[kind] = of
	}
	for _, known := range next {
		delete(counted, known.Key)
	}
	return slices.Collect(maps.Values(counted))
}

// next returns the record of a child after its step; it may be the known one, or nil.
func (p Plan) next(step *Step, known *Record, o *Outcome) *Record {
	switch {
	case o == nil:
		return p.left(step, known)
	case o.Written != nil && !step.moves:
		next := known.For(step.Key, step.desired)
		next.Learnt(step.learn(o.Written), step.epoch, p.Now)
		if step.Manager == "" && !step.tried && len(step.explained) > 0 {
			// In place of what stays the observed values were sent: nothing new is known of the desired ones.
			next.Epoch, next.LearntAt = known.Epoch, known.LearntAt
		}
		version, reason := o.Written.ResourceVersion(), StateSame
		if step.guesses {
			version, reason = "", StateUnknown
		}
		next.NeededNothing(version, reason)
		if o.Done && (step.Action != Create || known.Taken()) {
			next.Counted(next.Breaker().Count(step.Action == Create, p.Now))
		}
		return next
	case o.Done:
		next := known.For(step.Key, step.desired)
		next.Counted(next.Breaker().Count(false, p.Now))
		if o.Written == nil {
			next.Gone()
		}
		return next
	case o.Unknown && (step.Action == Create || step.Action == Update):
		// If it was done, the API server may have made something else of what it was sent.
		return known.Doubted()
	}
	return known
}

// left returns the record of a child that was left as it is.
func (p Plan) left(step *Step, known *Record) *Record {
	switch {
	case step.Action != Leave && step.tried:
		// It was only looked at: what is known now decides about the plan that is carried out.
		next := known.For(step.Key, step.desired)
		next.Learnt(step.explained, step.epoch, p.Now)
		next.NeededNothing("", StateUnknown)
		return next
	case step.Action != Leave:
	case step.Reason == Flapping && step.Report:
		next := known.For(step.Key, step.desired)
		next.Counted(next.Breaker().Report())
		return next
	case step.Reason == Untried:
		return known.NotTried(step.Key, step.untried())
	case step.Reason == OnDelete || step.Reason == Same:
		reason := StateSame
		if step.Reason == OnDelete {
			reason = StateOnDelete
		}
		version := step.Observed.ResourceVersion()
		if known.NeedsNothing(step.desired, version, p.Now) == reason {
			return known
		}
		next := known.For(step.Key, step.desired)
		if reason == StateOnDelete || !step.guesses {
			next.NeededNothing(version, reason)
		}
		if reason == StateSame && (step.tried || !known.Current(step.epoch, p.Now)) {
			next.Learnt(step.explained, step.epoch, p.Now)
		}
		return next
	}
	return known
}
