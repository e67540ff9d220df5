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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
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
		ParentReference: reference(key), Time: metav1.NowMicro(), WaitMilliseconds: b.Waited.Milliseconds(),
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
