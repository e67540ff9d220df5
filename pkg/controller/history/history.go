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

package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// lookBack is how many former syncs of a parent that dealt with children are looked at to find out whether a field was written before, and farBack
// among how many: between two of them, statuses of children may have caused many that did nothing.
const lookBack, farBack = 8, 64

// History has the syncs of one controller. It is safe for concurrent use; a nil history records nothing.
type History struct {
	ring    *Ring
	uid     types.UID
	parents map[parent.Key]*entry
}

// Len returns the number of parents of which something is remembered.
func (h *History) Len() int {
	if h == nil {
		return 0
	}
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	return len(h.parents)
}

// Keep forgets the parents for which a function returns false, which must not call the history.
func (h *History) Keep(has func(parent.Key) bool) {
	if h == nil {
		return
	}
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	for key := range h.parents {
		if !has(key) {
			h.forget(key)
		}
	}
}

// Forget forgets a parent that is gone.
func (h *History) Forget(key parent.Key) {
	if h == nil {
		return
	}
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	h.forget(key)
}

// forget takes all syncs of a parent out of the ring. It is called with the lock held.
func (h *History) forget(key parent.Key) {
	if e, ok := h.parents[key]; ok {
		for _, s := range e.syncs {
			h.ring.unlink(s)
		}
		*e = entry{forgotten: true}
		delete(h.parents, key)
	}
}

// Begin begins to record a sync of a parent, and tells triggers that are events of own writes so. The caller ends the recording.
func (h *History) Begin(key parent.Key, b Begun) Recording {
	if h == nil {
		return Recording{}
	}
	s := &remembered{ControllerSync: v1alpha1.ControllerSync{
		ParentReference: Reference(key), Time: metav1.NowMicro(), WaitMilliseconds: b.Waited.Milliseconds(),
	}}
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	e, ok := h.parents[key]
	if !ok {
		e = &entry{}
		h.parents[key] = e
	}
	if kept := b.Triggers.Kept(); len(kept) > 0 {
		s.Triggers, s.MoreTriggers = make([]v1alpha1.SyncTrigger, len(kept)), clamp(b.Triggers.More)
		for i := range kept {
			s.Triggers[i] = e.trigger(s.ParentReference, &kept[i])
		}
	}
	return Recording{ring: h.ring, of: e, sync: s}
}

// trigger returns what is remembered of a trigger. The fields of an own write of the parent are those that the former sync wrote. It is
// called with the lock held.
func (e *entry) trigger(p v1alpha1.ParentReference, t *Trigger) v1alpha1.SyncTrigger {
	kept := t.SyncTrigger
	if t.All(e.made) {
		kept.Reason = v1alpha1.SyncOwnWrite
	}
	if o := kept.Object; o != nil && o.Name == "" {
		kept.Object = &v1alpha1.SyncObject{Group: p.Group, Resource: p.Resource, Kind: o.Kind, Namespace: p.Namespace, Name: p.Name}
		if n := len(e.syncs); n > 0 && kept.Reason == v1alpha1.SyncOwnWrite && len(kept.Fields) == 0 {
			kept.Fields = e.syncs[n-1].Fields
		}
	}
	return kept
}

// made reports whether one of the last two syncs made a version.
func (e *entry) made(version uint64) bool {
	return slices.Contains(e.wrote, version) || slices.Contains(e.former, version)
}

// Repeated reports whether one of the last syncs of a parent changed a child at one of the places at which a step changes it, and somebody
// has changed it since: what is observed there is not what was desired then.
func (h *History) Repeated(key parent.Key, step *plan.Step) bool {
	if h == nil || len(step.Changed) == 0 {
		return false
	}
	former := h.former(key)
	for i := range step.Changed {
		d := &step.Changed[i]
		if wrote := written(former, step.Key, d.Path); wrote != 0 && wrote != plan.HashOf(d.Observed) {
			return true
		}
	}
	return false
}

// former returns the last syncs of a parent that are looked at, the latest first. They do not change any more.
func (h *History) former(key parent.Key) []*remembered {
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	e, ok := h.parents[key]
	if !ok {
		return nil
	}
	var found []*remembered
	for _, s := range slices.Backward(e.syncs[max(0, len(e.syncs)-farBack):]) {
		if len(s.Children) > 0 && len(found) < lookBack {
			found = append(found, s)
		}
	}
	return found
}

// written returns what the last of some syncs that changed a child at a place wrote there; zero if there is none, if it is not known whether it
// was written, or if the child is another one since.
func written(syncs []*remembered, key children.Key, path string) plan.Hash {
	for _, s := range syncs {
		if hash, settled := s.wrote(key, path); settled {
			return hash
		}
	}
	return 0
}

// Latest returns the latest syncs of some parents, up to a limit, and how many more are remembered.
func (h *History) Latest(keys []parent.Key, limit int) (syncs []v1alpha1.ControllerSync, more int) {
	if h == nil {
		return nil, 0
	}
	list := h.all(keys)
	slices.SortFunc(list, func(a, b *remembered) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	n := min(limit, len(list))
	syncs = make([]v1alpha1.ControllerSync, n)
	for i := range syncs {
		list[i].DeepCopyInto(&syncs[i])
	}
	return syncs, len(list) - n
}

func (h *History) all(keys []parent.Key) (list []*remembered) {
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	for _, key := range keys {
		if e, ok := h.parents[key]; ok {
			list = append(list, e.syncs...)
			if e.short != nil {
				list = append(list, &remembered{ControllerSync: e.short.sync(key)})
			}
		}
	}
	return list
}

const (
	// maxChildren is how many children of one sync are named.
	maxChildren = 8
	// maxVersions is how many versions that a sync wrote are remembered until their events are seen.
	maxVersions = 256
)

// Reasons of what was not done with a child, beside those of plans.
const (
	reasonConflict = "Conflict"
	reasonHeld     = "DeletionsHeld"
	reasonFailed   = "Failed"
	reasonUnknown  = "Unknown"
)

// Recording is a sync that is under way. It must not be copied, and is not safe for concurrent use. All methods of the zero value, and of one that
// has ended, do nothing.
type Recording struct {
	ring *Ring
	of   *entry
	hook time.Duration
	// sync is nil once the sync has ended.
	sync *remembered
	// made are the versions that the sync made.
	made []uint64
}

// Records reports whether it is more than the zero value and has not ended.
func (r *Recording) Records() bool { return r.sync != nil }

// Hook adds the time that a call of a hook took.
func (r *Recording) Hook(took time.Duration) { r.hook += took }

// Parent notes that the sync wrote the parent over a state of it.
func (r *Recording) Parent(over, written *object.Object) {
	if r.sync == nil {
		return
	}
	r.wrote(Version(written))
	fields, _ := Fields(over, written)
	r.sync.Fields, _ = withFields(r.sync.Fields, fields)
}

// Dropped notes fields of the status that the API server did not store.
func (r *Recording) Dropped(fields []string) {
	if r.sync != nil {
		r.sync.Dropped, _ = withFields(r.sync.Dropped, fields)
	}
}

// wrote notes that the sync made a state of the parent or of a child.
func (r *Recording) wrote(version uint64) {
	if len(r.made) < maxVersions {
		r.made = append(r.made, version)
	}
}

// ChangedBackBy names who changed the parent back.
func (r *Recording) ChangedBackBy(names ...string) {
	if r.sync != nil {
		r.sync.ChangedBackBy = cloned(names)
	}
}

// Claimed notes that a child was adopted or released, which wrote it.
func (r *Recording) Claimed(action v1alpha1.ChildAction, resource string, written *object.Object) {
	if r.sync == nil || written == nil {
		return
	}
	r.wrote(Version(written))
	r.child(action, "", v1alpha1.SyncObject{
		Group: written.GroupVersionKind().Group, Resource: resource, Kind: written.Kind(), Namespace: written.Namespace(),
		Name: written.Name(),
	})
}

// Children notes what was done with the children, which rules declare: first what was to be done, then what was left alone for a reason. Held says
// that the deletions of the plan were not carried out, and by names who changed children back after former syncs.
func (r *Recording) Children(p *plan.Plan, done []plan.Outcome, held bool, by map[children.Key][]string, rules children.Rules) {
	s := r.sync
	if s == nil {
		return
	}
	outcomes := make(map[children.Key]*plan.Outcome, len(done))
	for i := range done {
		o := &done[i]
		outcomes[o.Key] = o
		switch {
		case o.Written != nil:
			r.wrote(Version(o.Written))
		case o.Done && o.Observed != nil:
			r.wrote(Deleted(o.Observed))
		}
	}
	s.Children = slices.Grow(s.Children, min(len(done), maxChildren-len(s.Children)))
	for i := range p.Steps {
		if step := &p.Steps[i]; step.Action != plan.Leave {
			if action, reason := became(step, outcomes[step.Key], held); action != "" {
				r.step(step, action, reason, by[step.Key])
			}
		}
	}
	for _, key := range p.Failed {
		rule, _ := rules.For(key.GroupKind())
		r.child(v1alpha1.ChildRefuse, reasonFailed, v1alpha1.SyncObject{
			Group: key.Group, Resource: rule.Resource.Resource, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		})
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.Action == plan.Leave && step.Reason != plan.Same && step.Reason != plan.Deleting {
			r.step(step, v1alpha1.ChildLeave, string(step.Reason), nil)
		}
	}
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
	c := r.child(action, reason, v1alpha1.SyncObject{
		Group: step.Group, Resource: step.Resource.Resource, Kind: step.Kind, Namespace: step.Namespace, Name: step.Name,
	})
	if c == nil {
		return
	}
	c.ChangedBackBy, c.MoreFields = cloned(by), len(step.Changed) > maxFields
	for i := range min(len(step.Changed), maxFields) {
		c.Fields = append(c.Fields, strings.Clone(step.Changed[i].Path))
		r.sync.desired = append(r.sync.desired, plan.HashOf(step.Changed[i].Desired))
	}
}

// child adds a child; it returns nil if the child is not named.
func (r *Recording) child(action v1alpha1.ChildAction, reason string, o v1alpha1.SyncObject) *v1alpha1.SyncChild {
	s := r.sync
	if len(s.Children) == maxChildren {
		s.MoreChildren++
		return nil
	}
	s.Children = append(s.Children, v1alpha1.SyncChild{SyncObject: named(o), Action: action, Reason: reason})
	return &s.Children[len(s.Children)-1]
}

// End remembers the sync with the text of its error, empty for none. A second call does nothing.
func (r *Recording) End(failed string) {
	s := r.sync
	if s == nil {
		return
	}
	r.sync = nil
	s.Error = failed
	s.HookMilliseconds, s.DurationMilliseconds = r.hook.Milliseconds(), time.Since(s.Time.Time).Milliseconds()
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	if !r.of.forgotten {
		r.of.former, r.of.wrote = r.of.wrote, r.made
		r.ring.push(r.of, s)
	}
}

func clamp(n int) int32 { return int32(min(n, 1<<30)) } //nolint:gosec // It fits.
