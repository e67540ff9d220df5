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
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// OwnWrites distinguishes the events that a controller's own writes of one parent cause from those of other clients. An event may be seen
// before the response to the write that caused it. The zero value is ready; it is safe for concurrent use.
type OwnWrites struct {
	mu sync.Mutex
	// write is one of which not both the response and the event were seen; nil for none.
	write *ownWrite
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

// Write does a write of the parent, which may turn out to be unnecessary: written is nil then. Shown says that the hook was shown the parent as
// it is to be: the event is Quiet then, and the caller has the parent synced if the API server made something else of it. Mistaken says that an
// event of another client's write was counted as self-triggered meanwhile, so that its sync has too low a priority.
func (e *OwnWrites) Write(
	store Store, parent *object.Object, shown bool, write func() (*object.Object, error),
) (written *object.Object, mistaken bool, err error) {
	w := e.begin(shown)
	written, err = write()
	e.mu.Lock()
	defer e.mu.Unlock()
	w.underWay = false
	switch {
	case err != nil:
		w.doubtful = strings.Clone(parent.ResourceVersion())
		if o, ok := store.Get(parent.Namespace(), parent.Name()); ok && o.UID() == parent.UID() && w.mayBe(o) {
			// The sync that follows sees it. One that did not fail is followed by none, and the event may be still to come.
			w.doubtful = ""
		}
	case written != nil:
		// It would be a conflict if the other had been made and not been shown.
		w.version, w.doubtful = strings.Clone(written.ResourceVersion()), ""
	}
	if w.doubtful == "" && (w.version == "" || w.seen == w.version) {
		e.write = nil
	}
	return written, w.others || w.seen != "" && w.seen != w.version, err
}

func (e *OwnWrites) begin(quiet bool) *ownWrite {
	e.mu.Lock()
	defer e.mu.Unlock()
	begun := &ownWrite{underWay: true, quiet: quiet}
	if e.write != nil {
		// This one may turn out to be unnecessary because the other was not shown.
		begun.doubtful = e.write.doubtful
	}
	e.write = begun
	return begun
}

// mayBe reports whether a state of the parent may have been made by a write that failed. Versions that are no numbers have no order, and are later
// when they differ.
func (w *ownWrite) mayBe(o *object.Object) bool {
	if w == nil || w.doubtful == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion(), w.doubtful)
	return order > 0 || err != nil && o.ResourceVersion() != w.doubtful
}

// InDoubt reports whether an event that shows the parent as given may be that of an own write that failed: the response was lost, for
// one, and the API server has made it. Syncs since then have not seen what it made. It is over with a call of Quiet or Urgency.
func (e *OwnWrites) InDoubt(shown *object.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.write.mayBe(shown)
}

// is reports whether an event that shows the parent as given is that of the last own write, and whether that is known. While a write is under way
// it is not: is returns true, and Write reports when that was wrong. It is called with the lock held.
func (e *OwnWrites) is(shown *object.Object) (own, known bool) {
	w := e.write
	switch {
	case w == nil:
		return false, false
	case w.underWay:
		if w.mayBe(shown) {
			w.doubtful = ""
		}
		w.others, w.seen = w.others || w.seen != "", strings.Clone(shown.ResourceVersion())
		return true, false
	case w.mayBe(shown):
		e.write = nil
		return false, false
	case w.version != shown.ResourceVersion():
		return false, false
	default:
		e.write = nil
		return true, true
	}
}

// Quiet reports whether an event that shows the parent as given is that of the last own write and the hook was shown that already. Then it is over
// with this call. One that came before during the same write may be that of another client. The deletion of a parent is never quiet.
func (e *OwnWrites) Quiet(shown *object.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.write
	if w == nil || !w.quiet || shown.Deleting() || w.mayBe(shown) || !w.underWay && w.version != shown.ResourceVersion() {
		return false
	}
	own, _ := e.is(shown)
	return own
}

// Urgency returns the priority of the sync that an event asks for, which shows the parent as given. A deletion never waits
// behind the changes of other clients. Own says that it is known to be that of the last own write.
func (e *OwnWrites) Urgency(shown *object.Object) (p queue.Priority, own bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is, known := e.is(shown); is && !shown.Deleting() {
		return queue.SelfTriggered, known
	}
	return queue.Live, false
}

// Pending reports whether there is a write of which not both the response and the event were seen.
func (e *OwnWrites) Pending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.write != nil
}
