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
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Trigger is one cause of a sync. The zero value is none. Who has a copy must not modify what it points to: several syncs may share it.
type Trigger struct {
	// SyncTrigger is what is reported of it. There is no object unless the trigger is the change of one. Of the parent that is synced, the object
	// has the kind only.
	v1alpha1.SyncTrigger

	// versions stand for the states of the object that the trigger shows, as [Version] and [Deleted] compute them; more than maxStates for
	// those that are not kept.
	versions []uint64
}

// maxStates is how many states of its object a trigger knows.
const maxStates = 8

// All reports whether a function returns true for all states of the object that the trigger stands for. Of one that stands for none, or
// for more than are kept, it is false.
func (t *Trigger) All(is func(version uint64) bool) bool {
	return len(t.versions) > 0 && len(t.versions) <= maxStates && !slices.ContainsFunc(t.versions, func(v uint64) bool { return !is(v) })
}

// Of returns a cause that is no change of an object.
func Of(reason v1alpha1.SyncReason) Trigger {
	return Trigger{SyncTrigger: v1alpha1.SyncTrigger{Reason: reason}}
}

// OfObject returns the change of an object of a resource, of which one state may be nil, for a given reason.
func OfObject(reason v1alpha1.SyncReason, r schema.GroupResource, before, after *object.Object) Trigger {
	t, shown := Of(reason), cmp.Or(after, before)
	if shown == nil {
		return t
	}
	t.Object = &v1alpha1.SyncObject{
		Group: r.Group, Resource: r.Resource, Kind: shown.Kind(), Namespace: shown.Namespace(),
		Name: strings.Clone(shown.Name()), // It shares the memory of the object's JSON, all of which would stay as long as the name.
	}
	t.versions = []uint64{Shown(before, after)}
	if before != nil && after != nil && before.UID() == after.UID() {
		t.Fields, t.MoreFields = Fields(before, after)
	}
	return t
}

// OfParent returns the change of the parent that is synced: of several things that changed, the reason is the most important one. Own says that the
// controller itself made the change, whose fields the sync knows that made it.
func OfParent(e cache.Event, own bool) Trigger {
	t := Of(v1alpha1.SyncParentCreated)
	t.Object, t.versions = &v1alpha1.SyncObject{Kind: cmp.Or(e.New, e.Old).Kind()}, []uint64{Shown(e.Old, e.New)}
	switch {
	case own:
		t.Reason = v1alpha1.SyncOwnWrite
	case e.Old == nil || e.New == nil || e.Old.UID() != e.New.UID():
	default:
		t.Fields, t.MoreFields, t.Reason = compare(e.Old.JSON(), e.New.JSON())
		if e.New.Deleting() && !e.Old.Deleting() {
			t.Reason = v1alpha1.SyncParentDeleted
		}
	}
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

// maxKept is how many triggers of a sync are kept.
const maxKept = 4

// Set has the triggers of one sync: the first ones, and how many more there were. It is not safe for concurrent use.
type Set struct {
	// Since is when the first was added, by the clock of who adds.
	Since time.Duration
	// More counts those that are not kept.
	More int

	kept []Trigger
}

// Add adds a trigger. One for the same reason about the same object is the same one, and the fields are those of both.
func (s *Set) Add(t Trigger) {
	for i := range s.kept {
		if former := &s.kept[i]; former.same(&t) {
			former.join(t)
			return
		}
	}
	if len(s.kept) == maxKept {
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
	return t.Reason == as.Reason && (t.Object == as.Object || t.Object != nil && as.Object != nil && *t.Object == *as.Object)
}

// join adds the fields of a later trigger about the same object.
func (t *Trigger) join(later Trigger) {
	if len(t.versions) <= maxStates {
		t.versions = append(slices.Clip(t.versions), later.versions...)
	}
	fields, more := withFields(t.Fields, later.Fields)
	t.Fields, t.MoreFields = fields, t.MoreFields || later.MoreFields || more
}

// Begun are the triggers of a sync that begins, and how long its parent waited.
type Begun struct {
	// Triggers are nil if nothing is known of them.
	Triggers *Set
	// Waited is the time from the first of them on.
	Waited time.Duration
}

const (
	// maxFields is how many places of one change are kept.
	maxFields = 8
	// maxPath is how many bytes a place has at most.
	maxPath = 160
	// maxScan is the most bytes of both states of a value that are compared field by field. What is larger counts as one place.
	maxScan = 64 << 10
)

// Fields returns the places at which two states of an object differ, such as spec.replicas, and whether there are more. Lists of different
// lengths differ as a whole. What of the metadata changes with every write is left out.
func Fields(before, after *object.Object) (fields []string, more bool) {
	fields, more, _ = compare(before.JSON(), after.JSON())
	return fields, more
}

// compare returns the places at which two states of an object differ, and says which part of it changed, the most important one of several.
func compare(before, after []byte) (fields []string, more bool, reason v1alpha1.SyncReason) {
	var spec, status, metadata bool
	var room [maxPath]byte
	d := differences{path: room[:0]}
	differing(before, after, func(name string, was, is []byte) {
		n := len(d.found)
		d.path = append(room[:0], name...)
		d.compare(was, is)
		switch name {
		case "metadata":
			metadata = len(d.found) > n
		case "status":
			status = true
		default:
			spec = true
		}
	})
	switch {
	case spec:
		reason = v1alpha1.SyncSpecChanged
	case metadata || !status:
		reason = v1alpha1.SyncMetadataChanged
	default:
		reason = v1alpha1.SyncStatusChanged
	}
	return d.found, d.more, reason
}

// withFields adds places to those of a change, each once, and reports whether there are more than are kept.
func withFields(fields, added []string) (all []string, more bool) {
	for _, field := range added {
		switch {
		case slices.Contains(fields, field):
		case len(fields) == maxFields:
			return fields, true
		default:
			fields = append(slices.Clip(fields), field)
		}
	}
	return fields, false
}

// differences are the places at which two values differ.
type differences struct {
	found []string
	more  bool
	// path is the place at which values are compared at present.
	path []byte
}

// add adds the present place.
func (d *differences) add() {
	switch {
	case len(d.found) == maxFields:
		d.more = true
	case len(d.path) > maxPath:
		d.found = append(d.found, string(d.path[:maxPath])+"...")
	default:
		d.found = append(d.found, string(d.path))
	}
}

// compare compares two values in JSON, of which an absent one is empty, at the present place.
func (d *differences) compare(before, after []byte) {
	switch {
	case d.more || bytes.Equal(before, after):
	case len(before) == 0 || len(after) == 0 || before[0] != after[0] || len(before)+len(after) > maxScan:
		d.add()
	case before[0] == '{':
		d.objects(before, after)
	case before[0] == '[':
		d.lists(before, after)
	default:
		d.add()
	}
}

func (d *differences) objects(before, after []byte) {
	here := d.path
	differing(before, after, func(name string, was, is []byte) {
		if string(here) == "metadata" && (name == "resourceVersion" || name == "generation" || name == "managedFields") {
			return // It changes with every write.
		}
		d.path = append(append(d.path, '.'), name...)
		d.compare(was, is)
		d.path = here
	})
}

func (d *differences) lists(before, after []byte) {
	var a, b [usual]part
	was, is := parts(a[:0], before), parts(b[:0], after)
	if len(was) != len(is) {
		d.add()
		return
	}
	here := d.path
	for i := range was {
		d.path = append(strconv.AppendInt(append(d.path, '['), int64(i), 10), ']')
		d.compare(was[i].value, is[i].value)
		d.path = here
	}
}

// differing visits the members that differ between two objects in JSON, in the order of their names, with both values, of which an absent one is
// empty.
func differing(before, after []byte, visit func(name string, was, is []byte)) {
	var a, b [usual]part
	was, is := sorted(parts(a[:0], before)), sorted(parts(b[:0], after))
	for len(was)+len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].name < is[0].name:
			visit(was[0].name, was[0].value, nil)
			was = was[1:]
		case len(was) == 0 || is[0].name < was[0].name:
			visit(is[0].name, nil, is[0].value)
			is = is[1:]
		default:
			if !bytes.Equal(was[0].value, is[0].value) {
				visit(is[0].name, was[0].value, is[0].value)
			}
			was, is = was[1:], is[1:]
		}
	}
}

// part is a member of an object, or an element of a list.
type part struct {
	name  string
	value []byte
}

// usual is how many parts most values have at most.
const usual = 16

func parts(list []part, data []byte) []part {
	object.EachPart(data, func(name string, value []byte) { list = append(list, part{name, value}) })
	return list
}

func sorted(list []part) []part {
	slices.SortFunc(list, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return list
}
