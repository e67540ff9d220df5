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
	"slices"

	"k8s.io/apimachinery/pkg/watch"
)

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
