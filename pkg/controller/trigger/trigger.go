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

package trigger

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Trigger is one cause of a sync. The zero value is none. After a start there are several for each parent, until all were synced.
type Trigger struct {
	// Reason is empty for none.
	Reason v1alpha1.SyncReason
	// Parent says that the object that changed is the parent that is synced.
	Parent bool
	// MoreFields says that the object changed at more places than [Trigger.Fields] returns.
	MoreFields bool

	// kind has all of the object that changed but its namespace and name; the zero handle if the trigger is no change of an object.
	kind            unique.Handle[v1alpha1.SyncObject]
	namespace, name string
	// version stands for the state of the object that the trigger shows, as [Version] and [Deleted] compute it; zero for none.
	version uint64
	// more is nil in most.
	more *more
}

// more is what few triggers have.
type more struct {
	// fields are where the object changed. Several triggers may share them.
	fields []string
	// joined are the versions of the triggers that were joined with it. There are none as long as several may share it.
	joined []uint64
}

// Object is the one that changed; the zero value if the trigger is no change of an object. Of the parent that is synced it has the kind only.
func (t *Trigger) Object() v1alpha1.SyncObject {
	if t.kind == (unique.Handle[v1alpha1.SyncObject]{}) {
		return v1alpha1.SyncObject{}
	}
	o := t.kind.Value()
	o.Namespace, o.Name = t.namespace, t.name
	return o
}

// Fields are places at which the object changed. They must not be modified.
func (t *Trigger) Fields() []string {
	if t.more == nil {
		return nil
	}
	return t.more.fields
}

// About sets the object.
func (t *Trigger) About(o v1alpha1.SyncObject) {
	t.namespace, t.name = o.Namespace, o.Name
	t.kind = unique.Make(v1alpha1.SyncObject{Group: o.Group, Resource: o.Resource, Kind: o.Kind})
}

// ChangedAt sets the places, which it keeps, and whether there are more of them.
func (t *Trigger) ChangedAt(fields []string, moreFields bool) {
	t.more, t.MoreFields = nil, moreFields
	if len(fields) > 0 {
		t.more = &more{fields: fields}
	}
}

// maxJoined is how many versions of joined triggers are kept.
const maxJoined = 8

// All reports whether a function returns true for all states of the object that the trigger stands for. Of one that stands for none, or
// for more than are kept, it is false.
func (t *Trigger) All(is func(version uint64) bool) bool {
	if t.version == 0 || !is(t.version) {
		return false
	}
	return t.more == nil || len(t.more.joined) < maxJoined && !slices.ContainsFunc(t.more.joined, func(v uint64) bool { return !is(v) })
}

// Of returns a cause that is no change of an object.
func Of(reason v1alpha1.SyncReason) Trigger {
	return Trigger{Reason: reason}
}

// OfObject returns the change of an object of a resource, of which one state may be nil, for a given reason.
func OfObject(reason v1alpha1.SyncReason, r schema.GroupResource, before, after *object.Object) Trigger {
	t := Of(reason)
	shown := after
	if shown == nil {
		shown = before
	}
	if shown == nil {
		return t
	}
	t.About(v1alpha1.SyncObject{
		Group: r.Group, Resource: r.Resource, Kind: shown.Kind(), Namespace: shown.Namespace(),
		Name: strings.Clone(shown.Name()), // It shares the memory of the object's JSON, all of which would stay as long as the name.
	})
	t.version = Shown(before, after)
	if before != nil && after != nil && before.UID() == after.UID() {
		t.ChangedAt(Fields(before, after))
	}
	return t
}

// OfParent returns the change of the parent that is synced: of several things that changed, the reason is the most important one.
func OfParent(e cache.Event) Trigger {
	t := ofParent(v1alpha1.SyncParentCreated, e)
	if e.Old == nil || e.New == nil || e.Old.UID() != e.New.UID() {
		return t
	}
	c := changeOf(e.Old.JSON(), e.New.JSON())
	t.ChangedAt(c.fields, c.more)
	t.Reason = c.reason
	if e.New.Deleting() && !e.Old.Deleting() {
		t.Reason = v1alpha1.SyncParentDeleted
	}
	return t
}

// OfOwnWrite returns the change of the parent by the controller itself, whose fields the sync knows that made it.
func OfOwnWrite(e cache.Event) Trigger { return ofParent(v1alpha1.SyncOwnWrite, e) }

func ofParent(reason v1alpha1.SyncReason, e cache.Event) Trigger {
	shown := e.New
	if shown == nil {
		shown = e.Old
	}
	t := Trigger{Reason: reason, Parent: true, version: Shown(e.Old, e.New)}
	t.About(v1alpha1.SyncObject{Kind: shown.Kind()})
	return t
}

// Shown stands for the state that a change of an object shows, of which one state may be nil.
func Shown(before, after *object.Object) uint64 {
	switch {
	case after == nil:
		return Deleted(before)
	case after.Deleting() && (before == nil || !before.Deleting()):
		return Deleted(after)
	}
	return Version(after)
}

// seed makes the hashes of this process comparable.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // It does not change, and hashes of all syncs must be comparable.

// Version stands for the present state of an object. It is never zero.
func Version(o *object.Object) uint64 { return hash(string(o.UID()), o.ResourceVersion()) }

// Deleted stands for the deletion of an object. It is never zero.
func Deleted(o *object.Object) uint64 { return hash(string(o.UID()), "deleted") }

func hash(uid, version string) uint64 {
	const odd = 0x9e3779b97f4a7c15 // It makes the order count.
	return (maphash.String(seed, uid)*odd + maphash.String(seed, version)) | 1
}

// Kept is how many triggers of a sync are kept.
const Kept = 4

// Set has the triggers of one sync: the first ones, and how many more there were. It is not safe for concurrent use.
type Set struct {
	// Since is when the first was added, by the clock of who adds.
	Since time.Duration
	// More counts those that are not kept.
	More int

	// kept is few, or else there is room for all.
	kept []Trigger
	few  [1]Trigger
}

// sets has those that were released.
var sets sync.Pool //nolint:gochecknoglobals // It holds nothing but memory.

// NewSet returns an empty set.
func NewSet(since time.Duration) *Set {
	s, ok := sets.Get().(*Set)
	if !ok {
		s = new(Set)
	}
	s.Since = since
	return s
}

// Release says that nobody uses the set any more, nor the slice that Kept returned. A nil set has nothing to release.
func (s *Set) Release() {
	if s == nil {
		return
	}
	room := s.kept
	if cap(room) < Kept {
		room = nil
	}
	clear(room)
	*s = Set{kept: room[:0]}
	sets.Put(s)
}

// Add adds a trigger. One for the same reason about the same object is the same one, and the fields are those of both.
func (s *Set) Add(t Trigger) {
	for i := range s.kept {
		if former := &s.kept[i]; former.same(&t) {
			former.join(t)
			return
		}
	}
	switch {
	case len(s.kept) < cap(s.kept):
	case len(s.kept) == 0:
		s.kept = s.few[:0]
	case len(s.kept) < Kept:
		s.kept = append(make([]Trigger, 0, Kept), s.kept...)
	default:
		s.More++
		return
	}
	s.kept = append(s.kept, t)
}

// Kept returns the triggers that are kept. A nil set has none.
func (s *Set) Kept() []Trigger {
	if s == nil {
		return nil
	}
	return s.kept
}

// same reports whether another trigger is for the same reason about the same object.
func (t *Trigger) same(as *Trigger) bool {
	return t.Reason == as.Reason && t.Parent == as.Parent && t.name == as.name && t.namespace == as.namespace && t.kind == as.kind
}

// join adds the fields of a later trigger about the same object.
func (t *Trigger) join(later Trigger) {
	if t.more == nil || len(t.more.joined) == 0 {
		t.more = &more{fields: t.Fields()} // The former one may be that of another trigger, too.
	}
	m := t.more
	if len(m.joined) < maxJoined {
		m.joined = append(m.joined, later.version)
	}
	t.MoreFields = t.MoreFields || later.MoreFields
	for _, field := range later.Fields() {
		if slices.Contains(m.fields, field) {
			continue
		}
		if len(m.fields) == maxFields {
			t.MoreFields = true
			break
		}
		m.fields = append(slices.Clip(m.fields), field)
	}
}

// Begun are the triggers of a sync that begins, and how long its parent waited.
type Begun struct {
	// Triggers are nil if nothing is known of them.
	Triggers *Set
	// Waited is the time from the first of them on.
	Waited time.Duration
}
