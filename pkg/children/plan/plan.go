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
	"hash/maphash"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Action is what is done with a child.
type Action string

// The actions.
const (
	// Create makes a child that is not there.
	Create Action = "Create"
	// Update changes a child in place.
	Update Action = "Update"
	// Recreate deletes a child; it is made anew when it is gone.
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
	// Flapping says that the child differs again after many writes, and that nothing is tried for a while.
	Flapping Reason = "Flapping"
)

// Step is what is done with one child.
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
	// Body is what is sent, for Create and Update. For Recreate it is there when it is not known what the API server made of
	// the values that were applied: if an update with this body would change nothing, the child is as desired.
	Body []byte
	// Changed are the first places at which the child differs.
	Changed []string
	// Manager is the field manager of a child that is written by server-side apply, and empty for one that is merged.
	Manager string
	// Force says that server-side apply takes fields from other managers.
	Force bool
	// Doubt says, for Recreate, that this process does not know what the API server made of the values that were applied last.
	Doubt bool
	// Migrate says that what was applied in another way has to be moved over to Manager first.
	Migrate bool

	// desired is the hash of what is applied, content is what is applied, and returned is what the API server is taken to
	// have made of it.
	desired  uint64
	content  map[string]any
	returned *baseline
	// recordOnly says that nothing differs but the record of what was applied last.
	recordOnly bool
}

// Plan is what is to be done with the children of one parent.
type Plan struct {
	// Steps are in order of group, version and kind; within a kind the deletes come first, then the others in the order
	// in which the hook returned them.
	Steps []Step
	// News are the steps that leave a flapping child for the first time in its present pause.
	News []Step

	// failed are the children for which no step could be worked out.
	failed []children.Key
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

// Input is what a plan is made from.
type Input struct {
	// Parent is the UID of the parent.
	Parent types.UID
	// Owner is the owner reference that new children get.
	Owner map[string]any
	// Rules are the declared kinds.
	Rules children.Rules
	// Observed are the children that the parent has.
	Observed []*object.Object
	// Desired are the children that the hook wants.
	Desired []children.Desired
	// Schema returns the schema of a kind, nil if there is none. It may be nil itself.
	Schema func(schema.GroupVersionKind) merge.Schema
	// Read returns a child in another version than the one in which it is observed, nil if it is gone. It is asked for
	// children that the hook returns in another version than their rule's. Without it, such a child is written in the
	// version in which it is observed.
	Read func(resource schema.GroupVersionResource, namespace, name string) (*object.Object, error)
	// Manager is the field manager for the children of server-side rules.
	Manager string
	// Memory is what is remembered of former plans.
	Memory *Memory
}

// Make makes a plan. The error says that a desired child cannot be merged with the observed one; the plan then has the
// steps for all other children.
func Make(in Input) (Plan, error) {
	observed := make(map[children.Key]*object.Object, len(in.Observed))
	for _, o := range in.Observed {
		observed[KeyOf(o)] = o
	}
	var p Plan
	var errs []error
	wanted := make(map[children.Key]struct{}, len(in.Desired))
	for _, d := range in.Desired {
		wanted[d.Key] = struct{}{}
		step, err := in.step(d, observed[d.Key])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Key, err))
			p.failed = append(p.failed, d.Key)
			continue
		}
		if step.Reason == Flapping && in.Memory.announce(in.Parent, step.Key) {
			p.News = append(p.News, step)
		}
		p.Steps = append(p.Steps, step)
	}
	for _, key := range slices.SortedFunc(maps.Keys(observed), children.Key.Compare) {
		if _, ok := wanted[key]; !ok {
			p.Steps = append(p.Steps, in.unwanted(key, observed[key]))
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource.Version, b.Resource.Version),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(rank(a), rank(b)))
	})
	return p, errors.Join(errs...)
}

// KeyOf returns the identity of an observed child.
func KeyOf(o *object.Object) children.Key {
	kind := o.GroupVersionKind()
	return children.Key{Group: kind.Group, Kind: kind.Kind, Namespace: o.Namespace(), Name: o.Name()}
}

func rank(s Step) int {
	if s.Action == Delete {
		return 0
	}
	return 1
}

func (in Input) unwanted(key children.Key, o *object.Object) Step {
	rule, _ := in.Rules.For(key.GroupKind())
	step := Step{Key: key, Action: Delete, Resource: rule.ResourceIn(o.APIVersion()), Observed: o}
	if o.Deleting() {
		step.Action, step.Reason = Leave, Deleting
	}
	return step
}

func (in Input) step(d children.Desired, o *object.Object) (Step, error) {
	rule, _ := in.Rules.For(d.GroupKind())
	step := Step{Key: d.Key, Resource: rule.ResourceIn(d.APIVersion), Observed: o}
	step.content = in.applicable(d.Content)
	if rule.ServerSide {
		return in.applyStep(step, d, o, rule)
	}
	text, err := merge.Encode(step.content)
	if err != nil {
		return step, err
	}
	step.desired = maphash.String(in.Memory.seed, text)
	if o == nil {
		step.Action = Create
		step.Body, err = in.createBody(step.content, d.Content["status"], text)
		return step, err
	}
	o, err = in.present(&step, d, o, rule)
	if err != nil || o == nil {
		return step, err
	}
	merged, err := in.merge(&step, o, text)
	if err != nil {
		return step, err
	}
	if len(step.Changed) == 0 {
		return in.same(step), nil
	}
	return in.decide(step, rule.Method, func() ([]byte, error) { return json.Marshal(merged) })
}

// present returns the observed child in the version of the step, and nil if nothing is to be done with it, which the step then
// says.
func (in Input) present(step *Step, d children.Desired, o *object.Object, rule children.Rule) (*object.Object, error) {
	step.Action = Leave
	if o.Deleting() {
		step.Reason = Deleting
		return nil, nil
	}
	var settled bool
	if step.Reason, settled = in.Memory.settled(in.Parent, d.Key, step.desired, o.ResourceVersion()); settled {
		return nil, nil
	}
	if o.APIVersion() == d.APIVersion {
		return o, nil
	}
	o, err := in.inVersion(step, rule, o)
	if err == nil && o == nil {
		step.Reason = Deleting
	}
	return o, err
}

// same completes the step for a child that is as desired.
func (in Input) same(step Step) Step {
	step.Reason = Same
	in.Memory.settle(in.Parent, step, Same)
	return step
}

// decide chooses the action for a child that differs.
func (in Input) decide(step Step, method v1alpha1.ChildUpdateMethod, body func() ([]byte, error)) (Step, error) {
	switch method {
	case v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateRollingRecreate:
		step.Action = Recreate
		if step.recordOnly {
			// Nothing but our own record changes, for example what it says of the values of a Secret.
			step.Action = Update
		}
	case v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRollingInPlace:
		step.Action = Update
	case v1alpha1.ChildUpdateOnDelete, "":
		step.Action, step.Reason = Leave, OnDelete
		in.Memory.settle(in.Parent, step, OnDelete)
		return step, nil
	default:
		return step, fmt.Errorf("invalid update strategy for %s: unknown method %s", step.Kind, method)
	}
	if in.Memory.paused(in.Parent, step.Key, step.desired) {
		step.Action, step.Reason = Leave, Flapping
		return step, nil
	}
	// There is a baseline to be found when no write of this process tells.
	// Without force, what others own is not to be deleted for being made anew.
	step.Doubt = step.returned != nil && step.Action == Recreate
	if cautious := step.Manager != "" && !step.Force; step.Action == Update || step.Doubt || cautious {
		encoded, err := body()
		if err != nil {
			return step, fmt.Errorf("encoding the changed object: %w", err)
		}
		step.Body = encoded
	}
	return step, nil
}
