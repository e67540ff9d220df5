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
}

// Store has the parents as they were seen last.
type Store interface {
	// Get returns a parent; false if it is not there.
	Get(namespace, name string) (*object.Object, bool)
}

// Write does a write of a parent, which may turn out to be unnecessary: written is nil then. It reports whether an event
// of another client's write was counted as self-triggered meanwhile, so that its sync has too low a priority.
func (e *OwnWrites) Write(store Store, parent *object.Object, write func() (*object.Object, error)) (written *object.Object, mistaken bool, err error) {
	e.begin(parent)
	written, err = write()
	version := ""
	if written != nil && err == nil {
		version = written.ResourceVersion()
	}
	mistaken = e.end(parent.UID(), version)
	// Forget is not called again for a parent that went meanwhile.
	if o, ok := store.Get(parent.Namespace(), parent.Name()); !ok || o.UID() != parent.UID() {
		e.Forget(parent.UID())
	}
	return written, mistaken, err
}

func (e *OwnWrites) begin(parent *object.Object) {
	// What is remembered must not keep the object in memory, of whose JSON the UID is a part.
	uid := types.UID(strings.Clone(string(parent.UID())))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.writes == nil {
		e.writes = map[types.UID]*ownWrite{}
	}
	e.writes[uid] = &ownWrite{underWay: true}
}

func (e *OwnWrites) end(uid types.UID, version string) (mistaken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.writes[uid]
	if !ok {
		return false
	}
	mistaken = w.others || w.seen != "" && w.seen != version
	if version == "" || w.seen == version {
		delete(e.writes, uid)
		return mistaken
	}
	w.underWay, w.version = false, strings.Clone(version)
	return mistaken
}

// Is reports whether an event that shows the parent as given is that of the last own write. While a write is
// under way that is not known: Is returns true, and Write reports when that was wrong.
func (e *OwnWrites) Is(shown *object.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.writes[shown.UID()]
	switch {
	case !ok:
		return false
	case w.underWay:
		w.others, w.seen = w.others || w.seen != "", strings.Clone(shown.ResourceVersion())
		return true
	case w.version != shown.ResourceVersion():
		return false
	default:
		delete(e.writes, shown.UID())
		return true
	}
}

// Urgency returns the priority of the sync that an event asks for, which shows the parent as given. A deletion never waits
// behind the changes of other clients.
func (e *OwnWrites) Urgency(shown *object.Object) workqueue.Priority {
	if e.Is(shown) && !shown.Deleting() {
		return workqueue.SelfTriggered
	}
	return workqueue.Live
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
