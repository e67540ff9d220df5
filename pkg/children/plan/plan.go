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
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Input is what a plan is made from. All of it is facts: making a plan sends no request and changes nothing. Which of the last four
// facts are missing is what Missing says.
type Input struct {
	// Parent is the UID of the parent, and ParentName names it for people.
	Parent     types.UID
	ParentName string
	// Owner is the owner reference that new children get.
	Owner map[string]any
	// Rules are the declared kinds.
	Rules children.Rules
	// Observed are the children that the parent has, each once.
	Observed []*object.Object
	// Kept are children that the parent has, too, and that the plan does not deal with: their records stay.
	Kept []children.Key
	// Desired are the children that the hook wants.
	Desired []children.Desired
	// Manager is the field manager for the children of server-side rules.
	Manager string
	// Now is the time of the plan.
	Now time.Time
	// Records are what is remembered of the parent's children.
	Records Records
	// Comparing says that the input is for Unchanged: only what may turn its verdict is in doubt.
	Comparing bool
	// Insists says that several plans in a row were out of date when they were carried out: others change children faster than the hook responds. Those
	// are deleted, applied and merged as they are then.
	Insists bool

	// Keepers are the namespaces, by name, that own children which stay without the parent. UnknownKeepers says which are missing.
	Keepers map[string]Keeper
	// Epochs are those of schema and admission. They are read before anything is tried. A missing one is 0.
	Epochs map[schema.GroupKind]int64
	// Schemas are those of the kinds, nil for a kind that has none.
	Schemas map[schema.GroupVersionKind]merge.Schema
	// SchemaErrors say why the schema of a kind is not known. What is nil in Schemas without an error is known not to be there.
	SchemaErrors map[schema.GroupVersionKind]error
	// OtherVersions are children that the hook returned in another version than the one in which they are observed. One that is
	// missing is written in the version in which it is observed.
	OtherVersions map[children.Key]Reading
	// Trials are what came of dry runs.
	Trials map[children.Key]Trial
	// Compared are the children that Unchanged found to differ, and of which the API server was asked for that. It adds to them, if they are
	// not nil. Kept as records, they spare that in the syncs that follow: a rolling update has many, and moves few of them in each.
	Compared map[children.Key]Asked
}

// Keeper is a namespace that owns children which stay without their parent ([children.KeeperOf]).
type Keeper struct {
	// UID is that of the namespace.
	UID types.UID
	// Err says why it could not be read.
	Err error
}

// UnknownKeepers returns the namespaces that have to own desired children of in, where neither the observed child nor in shows their UIDs.
func UnknownKeepers(in Input) (names []string) {
	var observed map[children.Key]*object.Object
	for _, d := range in.Desired {
		if rule, _ := in.Rules.For(d.GroupKind()); !rule.Retain {
			continue
		}
		if observed == nil {
			observed = children.ByKey(in.Observed)
		}
		name := children.KeeperOf(d.Key)
		if _, known := in.Keepers[name]; known || slices.Contains(names, name) || in.isNamespace(name) {
			continue
		}
		if o := observed[d.Key]; o != nil {
			if _, kept := children.KeptBy(o); kept {
				continue
			}
		}
		names = append(names, name)
	}
	return names
}

// isNamespace reports whether the parent is a namespace. It keeps nothing that is in it: API servers refuse two references to one owner.
func (in *Input) isNamespace(name string) bool {
	return in.Owner["apiVersion"] == "v1" && in.Owner["kind"] == "Namespace" && in.Owner["name"] == name
}

// keeping returns what is applied of a child that stays without its parent: with the reference to its keeper, whatever reference to that the hook
// returned.
func (in *Input) keeping(content map[string]any, child children.Key, o *object.Object) (map[string]any, types.UID, error) {
	name := children.KeeperOf(child)
	if in.isNamespace(name) {
		return content, "", nil
	}
	var uid types.UID
	if o != nil {
		uid, _ = children.KeptBy(o)
	}
	if uid == "" {
		keeper, known := in.Keepers[name]
		if keeper.Err != nil || !known {
			return nil, "", fmt.Errorf("reading namespace %s, which has to own it so that it stays without its parent: %w", name, keeper.Err)
		}
		uid = keeper.UID
	}
	return withMetadata(content, func(metadata map[string]any) {
		owners, _ := metadata["ownerReferences"].([]any)
		owners = slices.DeleteFunc(slices.Clone(owners), func(o any) bool {
			owner, ok := o.(map[string]any)
			return ok && owner["uid"] == string(uid)
		})
		metadata["ownerReferences"] = append(owners, map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": string(uid)})
	}), uid, nil
}

// Reading is a child as it was read from the API server.
type Reading struct {
	// Object is the child, nil if it is gone.
	Object *object.Object
	// Err says why it could not be read.
	Err error
}

// Trial is what the API server would make of a child (a dry run).
type Trial struct {
	// Desired is the hash of the desired state that was tried. The trial counts for no other.
	Desired Hash
	// Result is the object that the API server would store, nil if the dry run is not possible or all of it is refused.
	Result *object.Object
	// Whole is the object with its managedFields, where a step has to change those: Result, or the object as it is.
	Whole *object.Object
	// Refused are the places of the changes that the API server refuses as invalid, and that were not tried therefore.
	Refused []string
	// Fresh is what the API server would make of a new child, where that was to be tried too: nil if it is refused as invalid, which
	// FreshRefused says, or cannot be tried. FreshTried says that it was to be tried.
	Fresh                    *object.Object
	FreshTried, FreshRefused bool
	// Stored is the child as it was read beside Fresh, nil if it was not. An informer may show it as it was before its definition changed:
	// without a field that is not declared then, under the same version.
	Stored *object.Object
	// Stale says that the child changed or went after it was observed, and Cause is what the API server said.
	Stale bool
	Cause error
	// Err says why it could not be tried.
	Err error
}

// Reads are the facts that a plan needs and does not have.
type Reads struct {
	// Schemas are the kinds whose schemas are missing.
	Schemas []schema.GroupVersionKind
	// Versions are the children to be read in another version, which Resource has.
	Versions []Step
	// Doubts are the children that need a trial before anything is done with them. They are known only when
	// the others are there.
	Doubts []Doubt
}

// Doubt is a child that differs, where it is not known whether the API server, or a change, is the reason: nothing is known of
// what it made of the values that were sent, as after a restart, or what is known may have changed since.
type Doubt struct {
	// Step is the child, where it is tried and by which manager.
	Step
	// Desired is the hash of the desired state.
	Desired Hash
	// Whole says that the result is needed with its managedFields.
	Whole bool
	// Fresh says that the creation of a child is to be tried: an update would change the one that is there, which for Recreate
	// means to delete it. Admission may do to new objects what it does not do to existing ones, and a new child would be the
	// same.
	Fresh bool
	// Insists says that an update is tried over the child as it is then, if others have changed it since.
	Insists bool
	// Read says that the child is to be read as well, since it would be deleted otherwise.
	Read bool
	// Paths are the places of the differences.
	Paths []string
	// Body returns the body of the dry run with the differences at some of Paths.
	Body func(paths []string) ([]byte, error)
}

// Missing returns the facts that are needed to make a plan from in and are not there.
func Missing(in Input) Reads {
	var missing Reads
	observed := children.ByKey(in.Observed)
	wanted := in.Desired
	if in.Comparing {
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(d children.Desired) bool { return in.differs(d, observed[d.Key]) })
	}
	for _, d := range wanted {
		kind := kindOf(d)
		if _, known := in.Schemas[kind]; !known && !slices.Contains(missing.Schemas, kind) {
			missing.Schemas = append(missing.Schemas, kind)
		}
		if step, ok := in.otherVersion(d, observed[d.Key]); ok {
			missing.Versions = append(missing.Versions, step)
		}
	}
	if len(missing.Schemas)+len(missing.Versions) > 0 {
		return missing
	}
	for _, d := range wanted {
		if doubt := in.doubt(d, observed[d.Key]); doubt != nil {
			missing.Doubts = append(missing.Doubts, *doubt)
		}
	}
	return missing
}

// epoch returns that of schema and admission of a child. Lists are merged by guessing without a schema, so what is learnt then counts
// only as long as it is not known.
func (in *Input) epoch(d children.Desired) int64 {
	epoch := in.Epochs[d.GroupKind()]
	if in.SchemaErrors[kindOf(d)] != nil {
		return ^epoch
	}
	return epoch
}

// otherVersion returns the version in which a child has to be read.
func (in *Input) otherVersion(d children.Desired, o *object.Object) (step Step, needed bool) {
	if o == nil || o.APIVersion() == d.APIVersion {
		return step, false
	}
	if _, read := in.reading(d); read {
		return step, false
	}
	c, err := in.child(d, o)
	if err != nil || c.needsNothing(o) {
		return step, false
	}
	c.step.Observed = o
	if _, waits := c.waits(); waits {
		return step, false
	}
	return c.step, true
}

// reading returns the child as it was read in the version of what is desired, false if it was not. During a rolling update the revisions of a
// parent may have it in several ones.
func (in *Input) reading(d children.Desired) (Reading, bool) {
	read, ok := in.OtherVersions[d.Key]
	if ok && read.Object != nil && read.Object.APIVersion() != d.APIVersion {
		return Reading{}, false
	}
	return read, ok
}

// doubt returns the doubt about a child, nil if there is none.
func (in *Input) doubt(d children.Desired, o *object.Object) *Doubt {
	if o == nil || o.Deleting() {
		return nil
	}
	rule, _ := in.Rules.For(d.GroupKind())
	if rule.Method == v1alpha1.ChildUpdateOnDelete || in.certain(d, o, rule) {
		return nil
	}
	c, f, done, err := in.examine(d, o)
	if done || err != nil || !c.doubts(f) {
		return nil
	}
	if _, waits := c.waits(); waits {
		return nil
	}
	if t, tried := in.Trials[d.Key]; tried && t.Desired == c.step.desired {
		return c.freshDoubt(f, t)
	}
	return &Doubt{
		Step: c.step, Desired: c.step.desired, Whole: f.migrate, Insists: in.Insists, Paths: paths(f.all()),
		Body: func(only []string) ([]byte, error) { return c.tryBody(f, only) },
	}
}

// certain reports whether there can be no doubt about a child, whatever is desired of it. It works out no step.
func (in *Input) certain(d children.Desired, o *object.Object, rule children.Rule) bool {
	known := in.Records.Get(d.Key)
	if !known.Current(in.epoch(d), in.Now) && (!known.Held(o.ResourceVersion()) || len(known.Returned()) > 0) {
		return false
	}
	if !rule.ServerSide {
		return surelyFits(d.Content, o)
	}
	_, recorded := o.Annotation(merge.Annotation)
	migrates := recorded || len(in.former(o)) > 0
	return !migrates && (in.Comparing || rule.Force || !Recreates(rule.Method))
}

// Unchanged reports whether applying d to o would change nothing but our own record of what was applied. The facts about d are
// needed as for Make. A child that cannot be merged counts as changed.
func (in *Input) Unchanged(d children.Desired, o *object.Object) bool {
	if in.differs(d, o) {
		return false
	}
	step, err := in.step(d, o)
	if err != nil {
		return false
	}
	if step.Action == Leave && step.Reason == Same || step.Action == Update && step.RecordOnly {
		return true
	}
	switch asked := o.APIVersion() != d.APIVersion || in.Trials[d.Key].Desired == step.desired; {
	case !asked || in.Compared == nil:
	case step.Action != Leave:
		in.Compared[d.Key] = Asked{Desired: step.desired, Version: o.ResourceVersion()}
	case step.Reason == Untried:
		in.Compared[d.Key] = step.untried()
	}
	return false
}

// differs reports whether an input for Unchanged is about a child of which it is known that it differs.
func (in *Input) differs(d children.Desired, o *object.Object) bool {
	if !in.Comparing || o == nil || in.Records.Get(d.Key).more().Compared.Version != o.ResourceVersion() {
		return false
	}
	c, err := in.child(d, o)
	return err == nil && c.known.more().Compared.counts(Asked{c.step.desired, o.ResourceVersion(), c.step.epoch, time.Time{}}, in.Now)
}

// Applied returns what was desired of an observed child when its record was made, as the child itself has it. It has not if it is written
// by server-side apply, which keeps what is owned and not what was sent, nor if it is a Secret.
func (in *Input) Applied(o *object.Object) (d children.Desired, ok bool) {
	text, _ := o.Annotation(merge.Annotation)
	content := merge.Decode(text)
	version, _ := content["apiVersion"].(string)
	d = children.Desired{Key: children.KeyOf(o), APIVersion: version, Content: content}
	known := in.Records.Get(d.Key)
	if known == nil || version == "" {
		return d, false
	}
	c, err := in.child(d, o)
	return d, err == nil && c.step.desired == known.Desired
}

func kindOf(d children.Desired) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.APIVersion, d.Kind)
}

// Recreates reports whether an update strategy deletes a child that differs, and creates it again.
func Recreates(method v1alpha1.ChildUpdateMethod) bool {
	return method == v1alpha1.ChildUpdateRecreate || method == v1alpha1.ChildUpdateRollingRecreate
}

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
	// not reported yet, or that the child is Untried and was compared.
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
type Change = merge.Difference

// Plan is what is to be done with the children of one parent, and what it was made from.
type Plan struct {
	Input

	// Steps are in order of group, version and kind; within a kind the deletes come first, then the others in the order
	// in which the hook returned them.
	Steps []Step
	// Failed are the children for which no step could be worked out.
	Failed []children.Key
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

// Waits reports whether a child is desired that cannot be there before the one of its name is gone, which is being deleted.
func (p Plan) Waits() bool {
	deleting := sets.Set[children.Key]{}
	for i := range p.Steps {
		if p.Steps[i].Reason == Deleting {
			deleting.Insert(p.Steps[i].Key)
		}
	}
	return len(deleting) > 0 && slices.ContainsFunc(p.Desired, func(d children.Desired) bool { return deleting.Has(d.Key) })
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
	p := Plan{Input: in}
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
	p.Steps = slices.Insert(p.Steps, 0, deletions...)
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource.Version, b.Resource.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return p, errors.Join(errs...)
}

// Over returns a step of the plan over its child as it was read since, with its managedFields if the step has a Migration.
func (p Plan) Over(s *Step, latest *object.Object) (Step, error) {
	in := p.Input
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

// examine looks at a desired child and compares it, unless that is done: nothing is left to be compared.
func (in *Input) examine(d children.Desired, o *object.Object) (c *child, f findings, done bool, err error) {
	if c, err = in.child(d, o); err != nil {
		return &child{}, f, true, err
	}
	if o == nil {
		err = c.create(d)
		return c, f, true, err
	}
	if done, err = c.look(d, o); !done && err == nil {
		f, err = c.compare(c.remembered())
	}
	return c, f, done, err
}

func (in *Input) step(d children.Desired, o *object.Object) (Step, error) {
	c, f, done, err := in.examine(d, o)
	if done || err != nil {
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
