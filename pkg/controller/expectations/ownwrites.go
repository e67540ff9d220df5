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

package expectations

import (
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
)

// OwnWrites distinguishes the events that a controller's own writes of its parents cause from those of other clients. An event may be seen
// before the response to the write that caused it. The zero value is ready; it is safe for concurrent use.
type OwnWrites struct {
	mu     sync.Mutex
	writes map[types.UID]*ownWrite
}

// ownWrite is a write of which not both the response and the event were seen.
type ownWrite struct {
	// underWay says that there is no response yet.
	underWay bool
	// version is what the write made, once there is a response.
	version string
	// seen is the version of the last event while the write was under way, others that there was one before it.
	seen   string
	others bool
	// quiet says that the hook was shown already what is written, so that the event need not enqueue the parent.
	quiet bool
	// doubtful is the version on which a write depended that failed, so that it is not known whether it was made; empty: none.
	doubtful string
}

// Store has the parents as they were seen last.
type Store interface {
	// Get returns a parent; false if it is not there.
	Get(namespace, name string) (*object.Object, bool)
}

// Write does a write of a parent, which may turn out to be unnecessary: written is nil then. It reports whether an event
// of another client's write was counted as self-triggered meanwhile, so that its sync has too low a priority.
func (e *OwnWrites) Write(store Store, parent *object.Object, write func() (*object.Object, error)) (written *object.Object, mistaken bool, err error) {
	return e.write(store, parent, ownWrite{}, write)
}

// WriteShown is Write for a state of the parent that the hook was shown before it is written: its event is Quiet. The caller has the
// parent synced if the API server made something else of it.
func (e *OwnWrites) WriteShown(
	store Store, parent *object.Object, write func() (*object.Object, error),
) (written *object.Object, mistaken bool, err error) {
	return e.write(store, parent, ownWrite{quiet: true}, write)
}

func (e *OwnWrites) write(
	store Store, parent *object.Object, begun ownWrite, write func() (*object.Object, error),
) (written *object.Object, mistaken bool, err error) {
	e.begin(parent, begun)
	written, err = write()
	version, doubtful := "", ""
	switch {
	case err != nil:
		doubtful = parent.ResourceVersion()
	case written != nil:
		version = written.ResourceVersion()
	}
	mistaken = e.end(parent.UID(), version, doubtful)
	if o, ok := store.Get(parent.Namespace(), parent.Name()); !ok || o.UID() != parent.UID() {
		// Forget is not called again for a parent that went meanwhile.
		e.Forget(parent.UID())
	} else if err != nil {
		// The sync that follows sees it. One that did not fail is followed by none, and the event may be still to come.
		e.shown(o)
	}
	return written, mistaken, err
}

func (e *OwnWrites) begin(parent *object.Object, begun ownWrite) {
	// The UID shares the memory of the object's JSON, all of which would stay as long as the UID is remembered.
	uid := types.UID(strings.Clone(string(parent.UID())))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.writes == nil {
		e.writes = map[types.UID]*ownWrite{}
	}
	begun.underWay = true
	if before, ok := e.writes[uid]; ok {
		// This one may turn out to be unnecessary because the other was not shown.
		begun.doubtful = before.doubtful
	}
	e.writes[uid] = &begun
}

// end takes note of what a write made: the version, empty for none. doubtful is the version on which one depended that failed.
func (e *OwnWrites) end(uid types.UID, version, doubtful string) (mistaken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.writes[uid]
	if !ok {
		return false
	}
	mistaken = w.others || w.seen != "" && w.seen != version
	switch {
	case doubtful != "":
		w.doubtful = strings.Clone(doubtful)
	case version != "":
		// It would be a conflict if the other had been made and not been shown.
		w.doubtful = ""
	}
	w.underWay, w.version = false, strings.Clone(version)
	if w.doubtful == "" && (version == "" || w.seen == version) {
		delete(e.writes, uid)
	}
	return mistaken
}

// shown ends the doubt about a write that failed once the parent is seen as it was after it.
func (e *OwnWrites) shown(o *object.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, ok := e.writes[o.UID()]; ok && w.mayBe(o) {
		w.doubtful = ""
		if !w.underWay {
			delete(e.writes, o.UID())
		}
	}
}

// mayBe reports whether a state of the parent may have been made by a write that failed.
func (w *ownWrite) mayBe(o *object.Object) bool {
	return w.doubtful != "" && later(o.ResourceVersion(), w.doubtful)
}

// later reports whether a version is later than another one. Versions that are no numbers have no order, and are later when they differ.
func later(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	if errA != nil || errB != nil {
		return version != than
	}
	return a > b
}

// InDoubt reports whether an event that shows the parent as given may be that of an own write that failed: the response was lost, for
// one, and the API server has made it. Syncs since then have not seen what it made. It is over with a call of Is or Urgency.
func (e *OwnWrites) InDoubt(shown *object.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.writes[shown.UID()]
	return ok && w.mayBe(shown)
}

// Is reports whether an event that shows the parent as given is that of the last own write. While a write is
// under way that is not known: Is returns true, and Write reports when that was wrong.
func (e *OwnWrites) Is(shown *object.Object) bool {
	own, _ := e.is(shown)
	return own
}

// is is Is, and whether that is known.
func (e *OwnWrites) is(shown *object.Object) (own, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.writes[shown.UID()]
	switch {
	case !ok:
		return false, false
	case w.underWay:
		if w.mayBe(shown) {
			w.doubtful = ""
		}
		w.others, w.seen = w.others || w.seen != "", strings.Clone(shown.ResourceVersion())
		return true, false
	case w.mayBe(shown):
		delete(e.writes, shown.UID())
		return false, false
	case w.version != shown.ResourceVersion():
		return false, false
	default:
		delete(e.writes, shown.UID())
		return true, true
	}
}

// Quiet reports whether an event that shows the parent as given is that of the last own write, as Is does, and the hook was shown that
// already. Then it is over with this call. The deletion of a parent is never quiet.
func (e *OwnWrites) Quiet(shown *object.Object) bool {
	return !shown.Deleting() && e.quiet(shown) && e.Is(shown)
}

// quiet reports whether the event may be quiet: one that came before during the same write may be that of another client.
func (e *OwnWrites) quiet(shown *object.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.writes[shown.UID()]
	return ok && w.quiet && !w.mayBe(shown) && (w.underWay || w.version == shown.ResourceVersion())
}

// Urgency returns the priority of the sync that an event asks for, which shows the parent as given. A deletion never waits
// behind the changes of other clients. Own says that it is known to be that of the last own write.
func (e *OwnWrites) Urgency(shown *object.Object) (p workqueue.Priority, own bool) {
	if is, known := e.is(shown); is && !shown.Deleting() {
		return workqueue.SelfTriggered, known
	}
	return workqueue.Live, false
}

// Len returns the number of writes of which not both the response and the event were seen.
func (e *OwnWrites) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.writes)
}

// Forget drops what is remembered of a parent that is gone.
func (e *OwnWrites) Forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.writes, uid)
}
