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

package synchistory

import (
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

const (
	// maxChildren is how many children of one sync are named.
	maxChildren = 8
	// maxFields is how many places of one object are named.
	maxFields = 8
)

// Reasons of what was not done with a child, beside those of plans.
const (
	reasonConflict = "Conflict"
	reasonHeld     = "DeletionsHeld"
	reasonFailed   = "Failed"
	reasonUnknown  = "Unknown"
)

// Recording is a sync that is under way. It must not be copied, and is not safe for concurrent use. All methods of the zero value do nothing.
type Recording struct {
	ring  *Ring
	of    *entry
	began time.Time
	hook  time.Duration
	// packer is nil once the sync has ended.
	packer *packer
}

// Records reports whether it is more than the zero value and has not ended.
func (r *Recording) Records() bool { return r.packer != nil }

// Hook adds the time that a call of a hook took.
func (r *Recording) Hook(took time.Duration) { r.hook += took }

// Places returns where to note at which places the parent is about to be changed; nil if nobody asks. It is valid until the next call.
func (r *Recording) Places() *trigger.Places {
	if r.packer == nil {
		return nil
	}
	r.packer.places.Reset()
	return &r.packer.places
}

// Parent notes that the sync wrote the parent, at the given places.
func (r *Recording) Parent(written *object.Object, places ...string) {
	if r.ring == nil {
		return
	}
	r.wrote(trigger.Version(written))
	if r.packer == nil {
		return
	}
	s := &r.packer.sync
	for _, place := range places {
		if len(s.Fields) < maxFields && !slices.Contains(s.Fields, place) {
			s.Fields = append(s.Fields, place)
		}
	}
}

// ChangedBackBy names who changed the parent back. After End it does nothing.
func (r *Recording) ChangedBackBy(names ...string) {
	if r.packer != nil {
		r.packer.sync.ChangedBackBy = names
	}
}

// Claimed notes that a child was adopted or released, which wrote it.
func (r *Recording) Claimed(action v1alpha1.ChildAction, resource string, written *object.Object) {
	if r.ring == nil || written == nil {
		return
	}
	r.wrote(trigger.Version(written))
	r.child(&v1alpha1.SyncChild{Action: action, SyncObject: v1alpha1.SyncObject{
		Group: written.GroupVersionKind().Group, Resource: resource, Kind: written.Kind(), Namespace: written.Namespace(),
		Name: written.Name(),
	}}, nil, nil)
}

// Children notes what was done with the children, which rules declare: first what was to be done, then what was left alone for a reason.
func (r *Recording) Children(done *childcontrol.Result, rules children.Rules) {
	if r.ring == nil {
		return
	}
	var few [2 * usualVersions]uint64
	versions := few[:0]
	for i := range done.Outcomes {
		o := &done.Outcomes[i]
		switch {
		case o.Written != nil:
			versions = append(versions, trigger.Version(o.Written))
		case o.Done && o.Observed != nil:
			versions = append(versions, trigger.Deleted(o.Observed))
		}
	}
	r.wrote(versions...)
	outcomes := outcomes{list: done.Outcomes}
	for i := range done.Plan.Steps {
		if step := &done.Plan.Steps[i]; step.Action != plan.Leave {
			if action, reason := became(step, outcomes.of(step.Key), done.Held); action != "" {
				r.step(step, action, reason, done.ChangedBackBy[step.Key])
			}
		}
	}
	for _, key := range done.Plan.Failed {
		rule, _ := rules.For(key.GroupKind())
		r.child(&v1alpha1.SyncChild{Action: v1alpha1.ChildRefuse, Reason: reasonFailed, SyncObject: v1alpha1.SyncObject{
			Group: key.Group, Resource: rule.Resource.Resource, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		}}, nil, nil)
	}
	for i := range done.Plan.Steps {
		step := &done.Plan.Steps[i]
		if step.Action == plan.Leave && step.Reason != plan.Same && step.Reason != plan.Deleting {
			r.step(step, v1alpha1.ChildLeave, string(step.Reason), nil)
		}
	}
}

// outcomes finds those of children.
type outcomes struct {
	list []plan.Outcome
	// next is the place after the one that was found last: mostly they are asked for in their order.
	next int
	// places are those of all, nil while they are asked for in their order.
	places map[children.Key]int
}

// of returns the outcome about a child, nil if there is none.
func (o *outcomes) of(key children.Key) *plan.Outcome {
	at := o.next
	if at >= len(o.list) || o.list[at].Key != key {
		if o.places == nil {
			o.places = make(map[children.Key]int, len(o.list))
			for i := range o.list {
				o.places[o.list[i].Key] = i
			}
		}
		var ok bool
		if at, ok = o.places[key]; !ok {
			return nil
		}
	}
	o.next = at + 1
	return &o.list[at]
}

// became returns what was done of a step, and why not all of it; no action if the API server found nothing to change.
func became(step *plan.Step, o *plan.Outcome, held bool) (action v1alpha1.ChildAction, reason string) {
	switch {
	case o == nil && held && step.Deletes():
		return v1alpha1.ChildRefuse, reasonHeld
	case o == nil:
		return v1alpha1.ChildRefuse, reasonFailed
	case o.Done:
		return v1alpha1.ChildAction(step.Action), ""
	case o.Written != nil:
		return "", ""
	case o.Stale:
		return v1alpha1.ChildLeave, string(plan.Stale)
	case o.Existing != nil:
		return v1alpha1.ChildRefuse, reasonConflict
	case o.Unknown:
		return v1alpha1.ChildAction(step.Action), reasonUnknown
	}
	return v1alpha1.ChildRefuse, reasonFailed
}

func (r *Recording) step(step *plan.Step, action v1alpha1.ChildAction, reason string, by []string) {
	if r.packer == nil {
		return
	}
	var paths [maxFields]string
	var desired [maxFields]record.Hash
	n := min(len(step.Changed), maxFields)
	for i := range n {
		paths[i], desired[i] = step.Changed[i].Path, record.HashOf(step.Changed[i].Desired)
	}
	r.child(&v1alpha1.SyncChild{
		Action: action, Reason: reason, ChangedBackBy: by, MoreFields: len(step.Changed) > maxFields,
		SyncObject: v1alpha1.SyncObject{
			Group: step.Group, Resource: step.Resource.Resource, Kind: step.Kind, Namespace: step.Namespace, Name: step.Name,
		},
	}, paths[:n], desired[:n])
}

// child notes a child, whose fields are given, and for each of them what stands for what was desired there.
func (r *Recording) child(c *v1alpha1.SyncChild, fields []string, desired []record.Hash) {
	switch p := r.packer; {
	case p == nil:
	case p.count == maxChildren:
		p.sync.MoreChildren++
	default:
		p.child(c, fields, desired)
	}
}

// End remembers the sync with the text of its error, empty for none. A second call does nothing.
func (r *Recording) End(failed string) {
	if r.packer == nil {
		return
	}
	p := r.packer
	r.packer = nil
	p.sync.Error = failed
	p.sync.HookMilliseconds, p.sync.DurationMilliseconds = r.hook.Milliseconds(), time.Since(r.began).Milliseconds()
	defer p.release()
	packed := p.pack()
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	r.of.made(p.wrote)
	if !r.of.forgotten {
		r.ring.push(r.of, packed)
	}
}

// wrote notes that the sync made states of the parent or of children. Nobody asks before the next sync of the parent begins, which is after
// End.
func (r *Recording) wrote(versions ...uint64) {
	if r.packer != nil {
		r.packer.wrote = append(r.packer.wrote, versions...)
		return
	}
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	r.of.made(versions)
}

func clamp(n int) int32 { return int32(min(n, 1<<30)) } //nolint:gosec // It fits.
