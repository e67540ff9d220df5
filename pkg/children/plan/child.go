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
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// child is one desired child whose step is being worked out.
type child struct {
	in    *Input
	rule  children.Rule
	known *Record
	step  Step
	// keeper is the owner that lets the child stay without its parent, empty if none is to be set or taken off.
	keeper types.UID
	// content is what is applied, and text its record in the annotation, for one that is merged.
	content map[string]any
	text    string

	// observed is the observed child in the version of the step, decoded. It is nil if the child holds what was applied last, and
	// that is what is desired.
	observed map[string]any
	holds    bool
	// last is what was applied last: recorded says that it is in the annotation, fresh that it is what is to be applied now, and
	// owned that a field manager owns it, so that defaults may be among it.
	last                   map[string]any
	recorded, fresh, owned bool
	// places is what returned returns, nil before its first call.
	places map[Hash]sets.Set[Hash]
}

// findings are how an observed child differs from what is desired.
type findings struct {
	// values are the places where the object differs, and ownership those where our field manager does not own what is there.
	values, ownership []merge.Difference
	// explained are differences that are known to be the API server's doing.
	explained []Returned
	// record is the place of our own record, if that is not up to date.
	record string
	// migrate says that the ownership of fields has to be moved to our field manager.
	migrate bool
	// merged is the observed object with the values put right, for a child that is merged.
	merged map[string]any
}

func (f *findings) all() []merge.Difference { return slices.Concat(f.values, f.ownership) }

func (f *findings) none() bool { return len(f.values)+len(f.ownership) == 0 && f.record == "" }

// child begins to work out the step of a desired child, which is observed as o, nil if it is not there.
func (in *Input) child(d children.Desired, o *object.Object) (*child, error) {
	rule, _ := in.Rules.For(d.GroupKind())
	c := &child{in: in, rule: rule, known: in.Records.Get(d.Key), content: in.applicable(d.Content)}
	c.step = Step{Key: d.Key, Resource: rule.ResourceIn(d.APIVersion), epoch: in.epoch(d), guesses: in.SchemaErrors[kindOf(d)] != nil}
	var err error
	if rule.Retain {
		if c.content, c.keeper, err = in.keeping(c.content, d.Key, o); err != nil {
			return nil, err
		}
	}
	if !rule.ServerSide {
		c.step.shown = observable(c.content)
		if c.text, err = merge.Encode(c.content); err != nil {
			return nil, err
		}
		if c.step.Large = !recordFits(c.text, c.content, o); c.step.Large {
			// Merging takes fields from others, too.
			c.rule.ServerSide, c.rule.Force = true, true
		}
	}
	if c.rule.ServerSide {
		c.step.Manager, c.step.Force = in.Manager, c.rule.Force
		c.content = in.owning(c.content)
		c.step.shown = applicableTo(c.content)
		if c.text, err = merge.Encode(c.content); err != nil {
			return nil, err
		}
	}
	c.step.schema = in.schemaOf(kindOf(d), c.rule)
	c.step.desired = HashText(c.step.Manager, c.text)
	return c, nil
}

func (c *child) needsNothing(o *object.Object) bool {
	return c.known.NeedsNothing(c.step.desired, o.ResourceVersion(), c.in.Now) != StateUnknown
}

// remembered are the places at which the API server is known to return something else than it is sent.
func (c *child) remembered() []Returned {
	if !c.current() {
		return nil
	}
	return c.known.Returned()
}

func (c *child) current() bool { return c.known.Current(c.step.epoch, c.in.Now) }

// look takes the observed child. It is done if nothing has to be done with the child, which the step then says.
func (c *child) look(d children.Desired, o *object.Object) (done bool, err error) {
	c.step.Observed, c.step.Action = o, Leave
	if o.Deleting() {
		c.step.Reason = Deleting
		return true, nil
	}
	if c.needsNothing(o) {
		c.step.Reason = Same
		if c.known.State == StateOnDelete {
			c.step.Reason = OnDelete
		}
		return true, nil
	}
	if o.APIVersion() != d.APIVersion {
		if o, err = c.inVersion(d, o); o == nil {
			return true, err
		}
	}
	// The child as it was read, if it was, before it would be deleted.
	if read := c.trial().Stored; read != nil {
		o = c.read(o, read)
	}
	if o == nil {
		return true, nil
	}
	if err = c.readRecord(); err != nil {
		return false, err
	}
	if c.rule.ServerSide && c.last != nil {
		// A field that was null is not ours under server-side apply, so nothing is dropped when it is not applied any more.
		c.last, _ = withoutNulls(c.last).(map[string]any)
	}
	if c.holds = c.fresh && !c.rule.ServerSide && o.Holds(c.step.shown); c.holds {
		return false, nil
	}
	if c.observed, err = o.Decode(); err != nil {
		return false, err
	}
	if !c.recorded && !c.rule.ServerSide {
		c.last, err = c.appliedBefore(whole)
	}
	return false, err
}

// inVersion returns the observed child in the version of the step, nil if it is gone meanwhile, could not be read, or is not to be tried yet.
func (c *child) inVersion(d children.Desired, o *object.Object) (*object.Object, error) {
	read, ok := c.in.reading(d)
	switch {
	case !ok:
		if until, waits := c.waits(); waits {
			c.step.Reason, c.step.PausedUntil = Untried, until
			return nil, nil
		}
		c.step.Resource, c.step.schema = c.rule.ResourceIn(o.APIVersion()), c.in.schemaOf(o.GroupVersionKind(), c.rule)
		return o, nil
	case read.Err != nil:
		return nil, fmt.Errorf("reading it in version %s: %w", c.step.Resource.Version, read.Err)
	case read.Object == nil || read.Object.UID() != o.UID() || read.Object.Deleting():
		c.step.Reason = Deleting
		return nil, nil
	}
	return c.read(o, read.Object), nil
}

// read takes the child as it was read for the observed one; nil if it changed meanwhile. It was claimed as it was: it may be somebody else's since.
func (c *child) read(observed, read *object.Object) *object.Object {
	same := read.UID() == observed.UID() && read.ResourceVersion() == observed.ResourceVersion()
	if same = same || c.in.Insists && children.Stays(observed, read, c.in.Parent); !same {
		c.step.Reason = Stale
		return nil
	}
	c.step.Observed = read
	return read
}

// compare returns how the child differs, apart from what the API server is known to return.
func (c *child) compare(returned []Returned) (findings, error) {
	if c.rule.ServerSide {
		return c.compareApplied(returned)
	}
	return c.compareMerged(returned)
}

// note returns what sorts differences: those that the API server is known to return stay.
func (f *findings) note(into *[]merge.Difference, returned []Returned) merge.Keep {
	known := sets.New(returned...)
	return func(d merge.Difference) bool {
		if ofSystem(d.Path) {
			return true
		}
		if pair := pairOf(d); known.Has(pair) {
			f.explained = append(f.explained, pair)
			return true
		}
		*into = append(*into, d)
		return false
	}
}

// pairOf returns what is remembered of a difference.
func pairOf(d merge.Difference) Returned {
	pair := Returned{Path: HashText(d.Path)}
	if !d.Removed {
		pair.Sent = HashOf(d.Desired)
	}
	if d.Present {
		pair.Got = HashOf(d.Observed)
	}
	return pair
}

// create completes the step for a child that is not there.
func (c *child) create(d children.Desired) (err error) {
	if c.paused() && c.known.Breaker().creation {
		c.pause()
		return nil
	}
	c.step.Action = Create
	if c.rule.ServerSide {
		c.step.Body, err = json.Marshal(c.content)
	} else {
		c.step.Body, err = c.in.createBody(c.content, d.Content["status"], c.text)
	}
	return err
}

// change puts the places of findings into the step.
func (c *child) change(f findings) {
	s := &c.step
	s.Changed = f.all()
	if f.record != "" {
		s.Changed = append(s.Changed, Change{Path: f.record})
	}
}

// decide completes the step for a child that was compared.
func (c *child) decide(f findings) error {
	s := &c.step
	s.explained = f.explained
	if f.none() {
		s.Reason = Same
		return nil
	}
	c.change(f)
	s.RecordOnly = len(f.values) == 0
	switch c.rule.Method {
	case v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateRollingRecreate:
		s.Action = Recreate
		if s.moves = !s.RecordOnly && c.movesFirst(f); s.moves || s.RecordOnly {
			// No child is deleted for our own record.
			s.Action = Update
		}
	case v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRollingInPlace:
		s.Action = Update
	case v1alpha1.ChildUpdateOnDelete:
		if c.keeper != "" && s.RecordOnly && len(f.ownership) > 0 && !c.rule.ServerSide {
			// It has all that is desired of it, and but for its keeper nothing changes.
			s.Action = Update
			break
		}
		s.Reason = OnDelete
		s.Doubtful = !slices.ContainsFunc(f.values, func(d merge.Difference) bool { return !d.Applied || !c.doubtful(d) })
		return nil
	default:
		return fmt.Errorf("invalid update strategy for %s: unknown method %s", s.Kind, c.rule.Method)
	}
	if c.paused() {
		c.pause()
		return nil
	}
	if s.Action == Recreate {
		return nil
	}
	if err := c.updateBody(f); err != nil {
		return fmt.Errorf("encoding the changed object: %w", err)
	}
	return nil
}

// paused reports whether the child was written too often for its present desired state.
func (c *child) paused() bool {
	if c.known == nil || c.known.Desired != c.step.desired {
		return false
	}
	_, paused := c.known.Breaker().Paused(c.in.Now)
	return paused
}

// pause leaves the child alone for a while.
func (c *child) pause() {
	b := c.known.Breaker()
	c.step.Action, c.step.Reason, c.step.Report = Leave, Flapping, !b.Reported()
	c.step.PausedUntil, _ = b.Paused(c.in.Now)
}

func (c *child) updateBody(f findings) (err error) {
	s := &c.step
	if !c.rule.ServerSide {
		s.Body, err = json.Marshal(withAnnotation(f.merged, c.text))
		return err
	}
	trial := c.trial()
	if f.migrate {
		// A reference to the parent in another version is a value that has to be written, though no child is deleted for it.
		exact := len(f.all()) == 0 && trial.Result != nil
		if exact {
			hides, err := hidesOwned(c.observed, trial.Whole, s.Manager)
			if err != nil {
				return err
			}
			exact = !hides
		}
		if s.Migration, err = migration(s.Observed, trial.Whole, s.Manager, exact, c.in.Now); err != nil {
			return err
		}
		if s.Migration != nil && (exact || Recreates(c.rule.Method) && (s.moves || trial.Result == nil)) {
			return nil
		}
	}
	differing := sets.New(paths(f.all())...)
	content, err := c.applyWith(slices.DeleteFunc(slices.Clone(trial.Refused), differing.Has))
	if err != nil {
		return err
	}
	s.Body, err = c.applyBody(content)
	return err
}

func paths(differences []merge.Difference) []string {
	list := make([]string, len(differences))
	for i := range differences {
		list[i] = differences[i].Path
	}
	return list
}

// doubts reports whether the child needs a trial before anything is done with it.
func (c *child) doubts(f findings) bool {
	switch {
	case c.rule.Method == v1alpha1.ChildUpdateOnDelete, c.paused():
		return false
	case f.migrate:
		// The API server says what our manager will own.
		return true
	case Recreates(c.rule.Method) && len(f.values) > 0 && c.rule.ServerSide && !c.rule.Force && !c.in.Comparing:
		// A child is not deleted for what others own.
		return true
	case Recreates(c.rule.Method):
		// One real change recreates it whatever the others are.
		return c.inDoubt(f.values)
	}
	return slices.ContainsFunc(f.all(), c.doubtful)
}

// doubtful reports whether a difference may be the API server's doing: what is desired there was applied before, as far as that is
// known. Where the child is known to have held another desired state in this version, only the places at which the API server
// returned something else are in doubt; the others differ because the hook changed what it wants.
func (c *child) doubtful(d merge.Difference) bool {
	switch {
	case c.current():
		return false
	case c.known.Held(c.step.Observed.ResourceVersion()) && c.known.Desired != c.step.desired:
		return c.returned()[HashText(d.Path)] != nil
	}
	return d.Applied || c.fresh || c.owned || c.rule.ServerSide
}

// sentBefore reports whether it is known that what is desired at a difference was sent before, and stored as it is now. Without a record
// server-side apply shows what is owned and not what was sent, so that it is known of nothing.
func (c *child) sentBefore(d merge.Difference) bool {
	switch {
	case c.known.Held(c.step.Observed.ResourceVersion()) && c.known.Desired != c.step.desired:
		pair := pairOf(d)
		return c.returned()[pair.Path].Has(pair.Sent)
	case c.known != nil && c.known.Desired == c.step.desired && c.known.LearntAt != 0:
		return true
	}
	return c.fresh || d.Applied && !c.rule.ServerSide
}

// returned returns where the API server is known to return something else for the child than it was sent, and what was sent there.
func (c *child) returned() map[Hash]sets.Set[Hash] {
	if c.places == nil {
		c.places = map[Hash]sets.Set[Hash]{}
		for _, pair := range c.known.Returned() {
			if c.places[pair.Path] == nil {
				c.places[pair.Path] = sets.Set[Hash]{}
			}
			c.places[pair.Path].Insert(pair.Sent)
		}
	}
	return c.places
}

// inDoubt reports whether there are differences, and all of them may be the API server's doing. Where it is not recorded what was
// applied, all may be.
func (c *child) inDoubt(values []merge.Difference) bool {
	if !c.recorded && !c.rule.ServerSide && !c.current() && !c.known.Held(c.step.Observed.ResourceVersion()) {
		return len(values) > 0
	}
	return len(values) > 0 && !slices.ContainsFunc(values, func(d merge.Difference) bool { return !c.doubtful(d) })
}

// untriedRetry is after how long a child is tried again that could not be tried. No event says that it can be.
const untriedRetry = 10 * time.Minute

// waits returns until when the child is not to be tried because it could not be, lately.
func (c *child) waits() (until time.Time, waits bool) {
	return c.known.Waits(c.step.untried(), c.in.Now)
}

// untried is what is remembered of the step's child if it cannot be tried.
func (s Step) untried() Asked {
	return Asked{Desired: s.desired, Version: s.Observed.ResourceVersion(), Epoch: s.epoch, Until: s.PausedUntil}
}

// trial returns what came of the dry run for the present desired state, the zero Trial if there was none.
func (c *child) trial() Trial {
	if t := c.in.Trials[c.step.Key]; t.Desired == c.step.desired {
		return t
	}
	return Trial{}
}

// resolve returns the findings that are left when it is known what the API server would make of the child. It sets the reason of
// the step if the child has to be left as it is.
func (c *child) resolve(f findings) (findings, error) {
	t := c.trial()
	switch {
	case t.Err != nil:
		return f, fmt.Errorf("trying whether a write would change it: %w", t.Err)
	case t.Stale:
		c.step.Reason, c.step.Cause = Stale, t.Cause
		return f, nil
	}
	returned, err := c.returnedBy(t, f)
	if err != nil {
		return f, err
	}
	if c.step.tried = t.Result != nil || len(t.Refused) > 0; c.step.tried {
		returned = append(returned, c.remembered()...)
		if f, err = c.compare(returned); err != nil {
			return f, err
		}
	}
	recreated, refused := Recreates(c.rule.Method), c.refusedInDoubt(t, f)
	unsure := len(refused) > 0
	if recreated {
		unsure = c.inDoubt(f.values)
	}
	if !unsure || c.movesFirst(f) {
		return f, nil
	}
	switch {
	case t.Fresh != nil:
		return c.resolveFresh(f, t.Fresh, returned)
	case !recreated && t.FreshTried:
		for _, d := range refused {
			c.step.Refused = append(c.step.Refused, d.Path)
			returned = append(returned, pairOf(d))
		}
		return c.compare(returned)
	case c.step.tried && t.FreshRefused && len(refused) == 0:
		// An update would put it right.
	default:
		// No child is deleted in doubt.
		c.step.Reason, c.step.Report = Untried, true
		var waits bool
		if c.step.PausedUntil, waits = c.waits(); !waits {
			c.step.PausedUntil = c.in.Now.Add(untriedRetry)
		}
		c.change(f)
	}
	return f, nil
}

// refusedInDoubt returns the values that an update cannot change and of which only a creation tells whether the API server or the hook made
// them differ.
func (c *child) refusedInDoubt(t Trial, f findings) []merge.Difference {
	refused := sets.New(t.Refused...)
	return slices.DeleteFunc(slices.Clone(f.values), func(d merge.Difference) bool {
		return !refused.Has(d.Path) || !c.doubtful(d)
	})
}

// returnedBy returns what the API server would return for an update of the child.
func (c *child) returnedBy(t Trial, f findings) ([]Returned, error) {
	var returned []Returned
	notTried, refused := sets.New(t.Refused...), sets.New[Hash]()
	for i, d := range f.all() {
		if !notTried.Has(d.Path) {
			continue
		}
		pair := pairOf(d)
		refused.Insert(pair.Path)
		if ofValues := i < len(f.values); c.doubtful(d) && (!ofValues || c.sentBefore(d)) {
			// No client can have changed it since, and a new child would get the same value, or be refused.
			returned = append(returned, pair)
		}
	}
	if t.Result == nil {
		return returned, nil
	}
	content, err := t.Result.Decode()
	if err != nil {
		return nil, err
	}
	for _, pair := range c.step.differences(t.Result, content, c.applied()) {
		// What the hook dropped stays in a dry run that was made before the fields belong to our manager.
		if dropped := f.migrate && pair.Sent == 0; !dropped && !refused.Has(pair.Path) {
			returned = append(returned, pair)
		}
	}
	return returned, nil
}

// resolveFresh returns the findings that are left when it is known, too, what the API server would make of a new child.
func (c *child) resolveFresh(f findings, o *object.Object, returned []Returned) (findings, error) {
	content, err := o.Decode()
	if err != nil {
		return f, err
	}
	c.step.tried = true
	fresh := sets.New(c.step.differences(o, content, c.step.shown)...)
	for _, d := range f.values {
		if pair := pairOf(d); fresh.Has(pair) {
			returned = append(returned, pair)
		}
	}
	return c.compare(returned)
}

// movesFirst reports whether nothing but the ownership of fields is to be moved, before the child is looked at again: with those
// of other managers among them it is not known yet what differs.
func (c *child) movesFirst(f findings) bool {
	t := c.trial()
	return f.migrate && Recreates(c.rule.Method) && !c.rule.Force && t.Result == nil && t.Whole != nil
}

// freshDoubt returns the doubt whether a child that would be deleted would only come back as it is, or whether the API server makes the
// values of any child what an update cannot change; nil if there is none.
func (c *child) freshDoubt(f findings, t Trial) *Doubt {
	if t.FreshTried {
		return nil
	}
	if _, err := c.resolve(f); err != nil || c.step.Reason != Untried {
		return nil
	}
	return &Doubt{Step: c.step, Desired: c.step.desired, Fresh: true, Read: Recreates(c.rule.Method), Body: c.freshBody}
}

// generated is how much longer than a prefix that ends in a hyphen the names are that an API server generates.
const generated = 5

// freshBody returns the body that tries to create the child, under another name, which is not longer if that can be: some kinds allow few
// characters.
func (c *child) freshBody([]string) ([]byte, error) {
	prefix := c.step.Name[:max(1, len(c.step.Name)-generated-1)]
	content := withMetadata(c.content, func(metadata map[string]any) {
		delete(metadata, "name")
		metadata["generateName"] = strings.TrimRight(prefix, "-.") + "-"
	})
	if c.rule.ServerSide {
		return json.Marshal(content)
	}
	return c.in.createBody(content, nil, c.text)
}

// tryBody returns the body of a dry run with the findings at some places.
func (c *child) tryBody(f findings, only []string) ([]byte, error) {
	tried := sets.New(only...)
	if c.rule.ServerSide {
		content, err := c.applyWith(slices.DeleteFunc(paths(f.all()), tried.Has))
		if err != nil {
			return nil, err
		}
		return c.applyBody(content)
	}
	result, err := merge.Objects(c.observed, observable(c.last), c.step.shown, c.step.schema, func(d merge.Difference) bool {
		return !tried.Has(d.Path)
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(withAnnotation(result, c.text))
}
