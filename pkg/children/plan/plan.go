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
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Action is what is done with a child.
type Action string

// The actions.
const (
	// Create creates a child that is not there.
	Create Action = "Create"
	// Update changes a child in place.
	Update Action = "Update"
	// Recreate deletes a child; it is created again when it is gone.
	Recreate Action = "Recreate"
	// Delete deletes a child that is no longer desired.
	Delete Action = "Delete"
	// Leave does nothing.
	Leave Action = "Leave"
)

// Reason says why a child is left as it is.
type Reason string

// The reasons to leave a child.
const (
	// Same says that the child is as desired.
	Same Reason = "Same"
	// OnDelete says that the child differs, and that its update strategy does not allow to change it.
	OnDelete Reason = "OnDelete"
	// Deleting says that the child is being deleted.
	Deleting Reason = "Deleting"
	// Flapping says that the child differs again after many writes, is not there again after many creations, or is there again after many deletions, and
	// that nothing is tried for a while.
	Flapping Reason = "Flapping"
	// Stale says that the child changed after it was observed.
	Stale Reason = "Stale"
	// Untried says that the child would have to be deleted, but that all differences may be the API server's doing, of which neither an
	// update nor a creation, tried, tells.
	Untried Reason = "Untried"
)

// Step is what is done with one child. It has all that is needed to do it.
type Step struct {
	children.Key
	// Action is what is done.
	Action Action
	// Reason says why nothing is done, for Leave.
	Reason Reason
	// Resource is where the child is written.
	Resource schema.GroupVersionResource
	// Observed is the child as it is, nil if it is not there.
	Observed *object.Object
	// Body is what is sent, for Create and Update.
	Body json.RawMessage
	// Migration is a JSON patch that is sent before Body, or alone. It moves the ownership of fields to Manager and changes no
	// value. Nil: there is nothing to move.
	Migration json.RawMessage
	// Changed are the places at which the child differs from what is desired.
	Changed []Change
	// RecordOnly says that nothing differs but our own record of what was applied.
	RecordOnly bool
	// Doubtful says, of a child that is left as its method is OnDelete, that it may not differ at all: all that differs was applied before as it is
	// desired, and what the API server makes of it is not known.
	Doubtful bool
	// Manager is the field manager of a child that is written by server-side apply, and empty for one that is merged.
	Manager string
	// Large says that the child is written by server-side apply because the record of the merge strategy would be too long for an annotation.
	Large bool
	// Force says that server-side apply takes fields from other managers.
	Force bool
	// Cause is what the API server said about a child that is Stale, nil if it said nothing.
	Cause error
	// PausedUntil is when a flapping child may be written again, or one that is Untried is tried again. Report says that this pause is
	// not reported yet, or that the child is Untried.
	PausedUntil time.Time
	Report      bool
	// Refused are the places that differ and stay as they are: no update changes them, and no creation tells whether the API server or
	// the hook made them differ.
	Refused []string

	// What Records needs. desired is the hash of what is applied, shown what is applied in the form in which it is compared.
	desired Hash
	shown   map[string]any
	schema  merge.Schema
	epoch   int64
	// guesses says that the schema is not known because of an error.
	guesses bool
	// explained are the differences that stay, and the API server returned them in a trial if tried.
	explained []Returned
	tried     bool
	// moves says that Migration alone is sent, although values differ.
	moves bool
}

// Change is a place at which a child differs.
type Change struct {
	// Path is the place, such as spec.ports[53,UDP].name.
	Path string
	// Observed is the value there, nil if there is none.
	Observed any
	// Desired is the value wanted, nil if it is to be removed.
	Desired any
}

// Plan is what is to be done with the children of one parent.
type Plan struct {
	// Parent is the UID of the parent, and ParentName names it for people.
	Parent     types.UID
	ParentName string
	// Now is the time of the plan.
	Now time.Time
	// Steps are in order of group, version and kind; within a kind the deletes come first, then the others in the order
	// in which the hook returned them.
	Steps []Step
	// Failed are the children for which no step could be worked out.
	Failed []children.Key
	// Insists says that children of which several plans in a row were out of date are deleted, applied and merged as they are when that is done:
	// others change them faster than the hook responds.
	Insists bool
	// Kept are children that the plan does not deal with, and that are there.
	Kept []children.Key

	// input is what a plan that insists was made from, nil for others.
	input *Input
}

// Writes returns the number of steps that do something.
func (p Plan) Writes() int {
	count := 0
	for i := range p.Steps {
		if p.Steps[i].Action != Leave {
			count++
		}
	}
	return count
}

// Again returns the time after which to plan again, although nothing may have changed: a flapping child may be written, or one
// that could not be tried is looked at. It is 0 for never. A child that is Stale is the caller's matter.
func (p Plan) Again() time.Duration {
	var soonest time.Duration
	for i := range p.Steps {
		after := p.Steps[i].PausedUntil.Sub(p.Now)
		if after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	return soonest
}

// Make makes a plan. The error says that a desired child cannot be merged with the observed one, or could not be read or tried;
// the plan then has the steps for all other children.
func Make(in Input) (Plan, error) {
	observed := children.ByKey(in.Observed)
	p := Plan{Parent: in.Parent, ParentName: in.ParentName, Now: in.Now, Kept: in.Kept, Insists: in.Insists}
	if in.Insists {
		p.input = &in
	}
	var errs []error
	for _, d := range in.Desired {
		o := observed[d.Key]
		delete(observed, d.Key) // What is left is not wanted.
		step, err := in.step(d, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Key, err))
			p.Failed = append(p.Failed, d.Key)
			continue
		}
		p.Steps = append(p.Steps, step)
	}
	var deletions []Step
	for _, key := range slices.SortedFunc(maps.Keys(observed), children.Key.Compare) {
		if step := in.unwanted(key, observed[key]); step.Action == Delete {
			deletions = append(deletions, step)
		} else {
			p.Steps = append(p.Steps, step)
		}
	}
	p.Steps = append(deletions, p.Steps...)
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource.Version, b.Resource.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return p, errors.Join(errs...)
}

// Over returns the step of a plan that insists over its child as it was read since, with its managedFields if the step has a Migration.
func (p Plan) Over(s *Step, latest *object.Object) (Step, error) {
	in := *p.input
	if trial, tried := in.Trials[s.Key]; tried {
		// What the API server makes of the desired state is known; all else was about the child as it was.
		if trial.Stored = nil; s.Migration != nil {
			trial.Whole, trial.Result = latest, nil
		}
		in.Trials = maps.Clone(in.Trials)
		in.Trials[s.Key] = trial
	}
	at := slices.IndexFunc(in.Desired, func(d children.Desired) bool { return d.Key == s.Key })
	return in.step(in.Desired[at], latest)
}

func (in *Input) unwanted(key children.Key, o *object.Object) Step {
	rule, _ := in.Rules.For(key.GroupKind())
	step := Step{Key: key, Action: Delete, Resource: rule.ResourceIn(o.APIVersion()), Observed: o}
	if o.Deleting() {
		step.Action, step.Reason = Leave, Deleting
		return step
	}
	for _, key := range []children.Key{key, OfKind(key)} {
		known := in.Records.Get(key)
		if b := known.Breaker(); known.Contested() && step.Action != Leave {
			if until, paused := b.Paused(in.Now); paused {
				step.Action, step.Reason, step.PausedUntil, step.Report = Leave, Flapping, until, !b.Reported()
			}
		}
	}
	return step
}

func (in *Input) step(d children.Desired, o *object.Object) (Step, error) {
	c, err := in.child(d, o)
	if err != nil {
		return Step{}, err
	}
	if o == nil {
		err := c.create(d)
		return c.step, err
	}
	if done, err := c.look(d, o); done || err != nil {
		return c.step, err
	}
	f, err := c.compare(c.remembered())
	if err != nil {
		return c.step, err
	}
	if c.doubts(f) {
		if f, err = c.resolve(f); err != nil || c.step.Reason != "" {
			return c.step, err
		}
	}
	err = c.decide(f)
	return c.step, err
}

// Hidden stands for a value of a Secret.
const Hidden = "(hidden)"

// Secret reports whether values of the child are not to be shown.
func (s Step) Secret() bool { return s.Group == "" && s.Kind == "Secret" }

// ShownChanges returns Changed as people may see it: without values of Secrets.
func (s Step) ShownChanges() []Change {
	if !s.Secret() {
		return s.Changed
	}
	shown := make([]Change, len(s.Changed))
	for i, c := range s.Changed {
		shown[i].Path = c.Path
		if c.Observed != nil {
			shown[i].Observed = Hidden
		}
		if c.Desired != nil {
			shown[i].Desired = Hidden
		}
	}
	return shown
}

// Deletes reports whether a step deletes a child, to create it again or not.
func (s Step) Deletes() bool { return s.Action == Delete || s.Action == Recreate }

// HoldsDeletion reports whether a child that is not wanted is left for a while, because somebody makes it again after each deletion.
func (s Step) HoldsDeletion() bool { return s.Reason == Flapping && s.desired == 0 }

// Deletions returns the children that the plan deletes.
func (p Plan) Deletions() []types.UID {
	var all []types.UID
	for i := range p.Steps {
		if p.Steps[i].Deletes() {
			all = append(all, p.Steps[i].Observed.UID())
		}
	}
	return all
}

// WithoutDeletions returns the plan in which the children that it would delete are kept as they are.
func (p Plan) WithoutDeletions() Plan {
	p.Kept = slices.Clone(p.Kept)
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool {
		if s.Deletes() {
			p.Kept = append(p.Kept, s.Key)
		}
		return s.Deletes()
	})
	return p
}
