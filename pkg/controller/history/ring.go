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
	"slices"
	"strings"
	"sync"
	"unique"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

const (
	// DefaultBytes is the size of a ring unless it is set.
	DefaultBytes = 4 << 20
	// maxShort is how many bytes of an error are kept of a sync that is abridged.
	maxShort = 128
)

// Ring has the recent syncs of all controllers of a process. It is safe for concurrent use; a nil ring records nothing.
type Ring struct {
	limit int64

	// mu guards all histories as well. It is held for a few steps, and for one look at all syncs when they are asked for.
	mu    sync.Mutex
	bytes int64
	// ends is no sync: the oldest one is the newer of its neighbors, and the latest one the older.
	ends        remembered
	controllers map[string]*History
}

// remembered is one sync, in the ring and in the list of its parent. What it has of the sync does not change once it is there.
type remembered struct {
	v1alpha1.ControllerSync
	// desired stands for what was desired at each field of each child, in their order.
	desired []plan.Hash

	of *entry
	// size is how many bytes of the ring it takes.
	size int64
	// older and newer are the neighbors in the ring.
	older, newer *remembered
}

// bytes estimates the memory of the sync. Texts that it shares with its controller, such as kinds and reasons, do not count.
func (s *remembered) bytes() int64 {
	n := int(unsafe.Sizeof(*s)) + len(s.Name) + len(s.Error) + sizeOf(s.desired) + sizeOf(s.Triggers) + sizeOf(s.Children)
	n += sizeOfTexts(s.Fields) + sizeOfTexts(s.Dropped) + sizeOfTexts(s.ChangedBackBy)
	for i := range s.Triggers {
		t := &s.Triggers[i]
		if n += sizeOfTexts(t.Fields); t.Object != nil {
			n += int(unsafe.Sizeof(*t.Object)) + len(t.Object.Name)
		}
	}
	for i := range s.Children {
		c := &s.Children[i]
		n += len(c.Name) + sizeOfTexts(c.Fields) + sizeOfTexts(c.ChangedBackBy)
	}
	return int64(n)
}

func sizeOf[T any](list []T) int {
	var one T
	return cap(list) * int(unsafe.Sizeof(one))
}

func sizeOfTexts(list []string) int {
	n := sizeOf(list)
	for _, text := range list {
		n += len(text)
	}
	return n
}

// abridged is what stays of the last sync of a parent that has left the ring. Every parent has one in time, so it is small.
type abridged struct {
	time                       metav1.MicroTime
	waited, hook, took         int64
	failed                     string
	reason                     v1alpha1.SyncReason
	object                     *v1alpha1.SyncObject
	moreTriggers, moreChildren int32
}

// abridge returns the sync without its fields and children, and with one trigger.
func (s *remembered) abridge() *abridged {
	short := &abridged{
		time: s.Time, waited: s.WaitMilliseconds, hook: s.HookMilliseconds, took: s.DurationMilliseconds,
		failed: events.Shorten(s.Error, maxShort), moreTriggers: s.MoreTriggers, moreChildren: clamp(int(s.MoreChildren) + len(s.Children)),
	}
	if len(s.Triggers) > 0 {
		short.reason, short.object = s.Triggers[0].Reason, s.Triggers[0].Object
		short.moreTriggers = clamp(int(s.MoreTriggers) + len(s.Triggers) - 1)
	}
	return short
}

// sync returns what is reported of a sync of a parent.
func (s *abridged) sync(key parent.Key) v1alpha1.ControllerSync {
	full := v1alpha1.ControllerSync{
		ParentReference: Reference(key), Time: s.time, WaitMilliseconds: s.waited, HookMilliseconds: s.hook, DurationMilliseconds: s.took,
		MoreTriggers: s.moreTriggers, MoreChildren: s.moreChildren, Error: s.failed, Abridged: true,
	}
	if s.reason != "" {
		full.Triggers = []v1alpha1.SyncTrigger{{Reason: s.reason, Object: s.object}}
	}
	return full
}

// Reference returns what names a parent in the API.
func Reference(key parent.Key) v1alpha1.ParentReference {
	r := key.Resource()
	return v1alpha1.ParentReference{Group: r.Group, Resource: r.Resource, Namespace: key.Namespace, Name: key.Name}
}

// wrote returns what stands for what the sync wrote at a place of a child; zero if it did not, or if it is not known whether it did.
// It is not settled if the sync says nothing about it, so that one before it may; it is if the child is another one since.
func (s *remembered) wrote(key children.Key, path string) (hash plan.Hash, settled bool) {
	desired := s.desired
	for i := range s.Children {
		c := &s.Children[i]
		here := desired[:len(c.Fields)]
		desired = desired[len(c.Fields):]
		if c.Name != key.Name || c.Namespace != key.Namespace || c.Group != key.Group || c.Kind != key.Kind {
			continue
		}
		switch c.Action {
		case v1alpha1.ChildCreate, v1alpha1.ChildRecreate, v1alpha1.ChildDelete:
			return 0, true
		case v1alpha1.ChildUpdate:
			if at := slices.Index(c.Fields, path); at >= 0 {
				if c.Reason != "" {
					return 0, true
				}
				return here[at], true
			}
		case v1alpha1.ChildAdopt, v1alpha1.ChildRelease, v1alpha1.ChildRetain, v1alpha1.ChildLeave, v1alpha1.ChildRefuse:
		}
	}
	return 0, false
}

// named returns the name of an object in memory of its own: that which is given may be a part of an object's JSON, all of which would stay.
func named(o v1alpha1.SyncObject) v1alpha1.SyncObject {
	o.Group, o.Kind, o.Namespace = unique.Make(o.Group).Value(), unique.Make(o.Kind).Value(), unique.Make(o.Namespace).Value()
	o.Name = strings.Clone(o.Name)
	return o
}

// cloned returns texts in memory of their own.
func cloned(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = strings.Clone(list[i])
	}
	return list
}

// entry is what is remembered of a parent. There is one for each.
type entry struct {
	// syncs are those that are in the ring, the last one at the end.
	syncs []*remembered
	// short is the last sync if it is not in the ring any more.
	short *abridged
	// wrote stands for the versions that the last sync made, and former for those of the one before it.
	wrote, former []uint64
	// forgotten says that nothing is to be remembered any more.
	forgotten bool
}

// NewRing returns a ring for a number of bytes; nil if that is not positive.
func NewRing(limit int64) *Ring {
	if limit <= 0 {
		return nil
	}
	r := &Ring{limit: limit, controllers: map[string]*History{}}
	r.ends.older, r.ends.newer = &r.ends, &r.ends
	return r
}

// Of returns the history of a controller object, whose name is unique among both kinds. That of a former object of that name is dropped.
func (r *Ring) Of(controller string, uid types.UID) *History {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.controllers[controller]; ok {
		if h.uid == uid {
			return h
		}
		h.drop()
	}
	h := &History{ring: r, uid: uid, parents: map[parent.Key]*entry{}}
	r.controllers[controller] = h
	return h
}

// Close forgets a controller object that is gone, or that this process does not run any more.
func (r *Ring) Close(controller string, uid types.UID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.controllers[controller]; ok && h.uid == uid {
		h.drop()
		delete(r.controllers, controller)
	}
}

// Bytes returns how many bytes the ring has, without the last syncs that are kept in short.
func (r *Ring) Bytes() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// The functions below are called with the lock held.

// drop forgets all syncs of a controller.
func (h *History) drop() {
	for key := range h.parents {
		h.forget(key)
	}
}

// push adds a sync of a parent, and lets the oldest ones of all parents go for which there is no room.
func (r *Ring) push(e *entry, s *remembered) {
	e.short, e.syncs = nil, append(e.syncs, s)
	s.of, s.size, s.older, s.newer = e, s.bytes(), r.ends.older, &r.ends
	s.older.newer, r.ends.older = s, s
	r.bytes += s.size
	for r.bytes > r.limit {
		r.evict(r.ends.newer)
	}
}

// evict takes the oldest sync of all out of the ring, which is the oldest of its parent. The last one of its parent stays in short.
func (r *Ring) evict(s *remembered) {
	e := s.of
	e.syncs[0] = nil // It would stay in memory until the slice grows.
	if e.syncs = e.syncs[1:]; len(e.syncs) == 0 {
		e.syncs, e.short = nil, s.abridge()
	}
	r.unlink(s)
}

// unlink takes a sync out of the ring.
func (r *Ring) unlink(s *remembered) {
	s.older.newer, s.newer.older = s.newer, s.older
	s.older, s.newer = nil, nil
	r.bytes -= s.size
}
