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

package store

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Key names an object of a table. The namespace is empty for a cluster-scoped one.
type Key struct{ Namespace, Name string }

// Path is the part of the key in etcd that orders objects.
func (k Key) Path() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

func compare(a, b Key) int {
	if a.Namespace == b.Namespace {
		return cmp.Compare(a.Name, b.Name)
	}
	return strings.Compare(a.Path(), b.Path())
}

// Object is an object at a revision. It does not change.
type Object struct {
	Key
	// UID is that of its metadata.
	UID string
	// Revision is that of the write that made it, which its content has as resourceVersion.
	Revision int64
	// Labels are those of its metadata.
	Labels map[string]string
	// Deleting is true while the object is being deleted, and Owned if it has owner references.
	Deleting, Owned bool
	// Content is the object in the version in which it was written, with the revision. It must not be modified.
	Content value.Object

	memo map[any]any
}

// Memo returns what compute returned for a key when it was called first.
func (o *Object) Memo(key any, compute func() any) any {
	if known, ok := o.memo[key]; ok {
		return known
	}
	if o.memo == nil {
		o.memo = map[any]any{}
	}
	computed := compute()
	o.memo[key] = computed
	return computed
}

// Event is a change of an object.
type Event struct {
	// Revision is that of the write.
	Revision int64
	// Old is the object before, nil if it was created.
	Old *Object
	// New is the object after, nil if it was deleted.
	New *Object
	// Last is New, or what Old was with the revision of the deletion.
	Last *Object
}

// Store has tables of objects that share a counter of revisions.
type Store struct {
	revision int64
	tables   map[schema.GroupResource]*Table
}

// New returns a store without objects.
func New() *Store { return &Store{tables: map[schema.GroupResource]*Table{}} }

// Revision returns the newest revision.
func (s *Store) Revision() int64 { return s.revision }

// Next begins a write, and returns its revision.
func (s *Store) Next() int64 {
	s.revision++
	return s.revision
}

// Table returns the objects of a resource. It creates an empty table if there is none.
func (s *Store) Table(r schema.GroupResource) *Table {
	t := s.tables[r]
	if t == nil {
		t = &Table{store: s, objects: map[Key]*Object{}, since: s.revision}
		s.tables[r] = t
	}
	return t
}

// Resources returns the resources that have a table, sorted.
func (s *Store) Resources() []schema.GroupResource {
	all := make([]schema.GroupResource, 0, len(s.tables))
	for r := range s.tables {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// Compact forgets the history of all tables.
func (s *Store) Compact() {
	for _, t := range s.tables {
		t.events, t.since = nil, s.revision
	}
}

// Table has the objects of a resource and their history.
type Table struct {
	store   *Store
	objects map[Key]*Object
	sorted  []*Object
	// events are the changes after the revision since.
	events []Event
	since  int64
	// restarted is the revision before which no watch can begin.
	restarted int64
	watches   []*Watch
}

// Restart has watches begin at the present revision, or later.
func (t *Table) Restart() { t.restarted = t.store.revision }

// Get returns an object, nil if it does not exist.
func (t *Table) Get(k Key) *Object { return t.objects[k] }

// Len returns the number of objects.
func (t *Table) Len() int { return len(t.sorted) }

// All returns the objects, sorted by namespace and name. The caller must not modify it, and must not write while it uses it.
func (t *Table) All() []*Object { return t.sorted }

// In returns the objects of a namespace, or all if it is empty, like All.
func (t *Table) In(namespace string) []*Object {
	if namespace == "" {
		return t.sorted
	}
	from := sort.Search(len(t.sorted), func(i int) bool { return compare(t.sorted[i].Key, Key{Namespace: namespace}) >= 0 })
	to := from
	for to < len(t.sorted) && t.sorted[to].Namespace == namespace {
		to++
	}
	return t.sorted[from:to]
}

// Put stores an object whose revision is the newest, and tells the watches.
func (t *Table) Put(o *Object) {
	old := t.objects[o.Key]
	i, found := t.find(o.Key)
	if found {
		t.sorted[i] = o
	} else {
		t.sorted = slices.Insert(t.sorted, i, o)
	}
	t.objects[o.Key] = o
	t.happened(Event{Revision: o.Revision, Old: old, New: o, Last: o})
}

// Delete deletes an object, whose last state has the revision of the deletion, and tells the watches.
func (t *Table) Delete(last *Object) {
	old := t.objects[last.Key]
	if i, found := t.find(last.Key); found {
		t.sorted = slices.Delete(t.sorted, i, i+1)
	}
	delete(t.objects, last.Key)
	t.happened(Event{Revision: last.Revision, Old: old, Last: last})
}

func (t *Table) find(k Key) (int, bool) {
	return slices.BinarySearchFunc(t.sorted, k, func(o *Object, k Key) int { return compare(o.Key, k) })
}

func (t *Table) happened(e Event) {
	t.events = append(t.events, e)
	for _, w := range t.watches {
		w.add(e)
	}
}

// Notice is what a watch says.
type Notice struct {
	// Type is that of the watch event: added, modified, deleted or a bookmark.
	Type watch.EventType
	// Object is the object, nil for a bookmark. One that left the selection is as it was before.
	Object *Object
	// Revision is that of the change, which a deleted object is told with, or of the bookmark.
	Revision int64
	// Initial marks the bookmark behind the objects that existed at the start of the watch.
	Initial bool
}

// Watch is a queue of notices.
type Watch struct {
	table   *Table
	selects func(*Object) bool
	queue   []Notice
	ended   bool
}

// Watch returns a watch of the objects that a function selects, all if it is nil, and which queues what happens from now on.
func (t *Table) Watch(selects func(*Object) bool) *Watch {
	w := &Watch{table: t, selects: selects}
	t.watches = append(t.watches, w)
	return w
}

// Replay queues what happened after a revision. It returns false, and queues nothing, if that has been forgotten.
func (w *Watch) Replay(after int64) bool {
	if after < max(w.table.since, w.table.restarted) {
		return false
	}
	for _, e := range w.table.events {
		if e.Revision > after {
			w.add(e)
		}
	}
	return true
}

// AddAll queues the present objects as added.
func (w *Watch) AddAll() {
	for _, o := range w.table.sorted {
		if w.selected(o) {
			w.queue = append(w.queue, Notice{Type: watch.Added, Object: o, Revision: o.Revision})
		}
	}
}

// Bookmark queues a bookmark with the newest revision.
func (w *Watch) Bookmark(initial bool) {
	if !w.ended {
		w.queue = append(w.queue, Notice{Type: watch.Bookmark, Revision: w.table.store.revision, Initial: initial})
	}
}

func (w *Watch) selected(o *Object) bool { return o != nil && (w.selects == nil || w.selects(o)) }

func (w *Watch) add(e Event) {
	before, after := w.selected(e.Old), w.selected(e.New)
	switch {
	case before && after:
		w.queue = append(w.queue, Notice{Type: watch.Modified, Object: e.New, Revision: e.Revision})
	case after:
		w.queue = append(w.queue, Notice{Type: watch.Added, Object: e.New, Revision: e.Revision})
	case before && e.New == nil:
		w.queue = append(w.queue, Notice{Type: watch.Deleted, Object: e.Last, Revision: e.Revision})
	case before:
		w.queue = append(w.queue, Notice{Type: watch.Deleted, Object: e.Old, Revision: e.Revision})
	}
}

// Pending returns the number of notices that wait.
func (w *Watch) Pending() int { return len(w.queue) }

// Next takes the next notice. It returns false if none waits.
func (w *Watch) Next() (Notice, bool) {
	if len(w.queue) == 0 {
		return Notice{}, false
	}
	n := w.queue[0]
	w.queue[0] = Notice{}
	w.queue = w.queue[1:]
	return n, true
}

// End lets nothing follow the notices that wait.
func (w *Watch) End() {
	if !w.ended {
		w.ended = true
		w.table.watches = slices.DeleteFunc(w.table.watches, func(other *Watch) bool { return other == w })
	}
}

// Ended reports whether nothing follows the notices that wait.
func (w *Watch) Ended() bool { return w.ended }

// Drop forgets the notices that wait.
func (w *Watch) Drop() { w.queue = nil }
