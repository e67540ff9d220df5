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

package composite

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// doubts are the revisions whose parents are synced again with their next event. Of some it is not known whether the last write was done: its
// response was lost, for one, and a sync that follows may succeed on what the informer showed before that write. Others cannot be read until
// somebody deletes them. It is safe for concurrent use; the zero value is ready.
type doubts struct {
	mu   sync.Mutex
	list map[types.NamespacedName]doubt
}

// doubt is one about a revision.
type doubt struct {
	parent parent.Key
	// reason is why the parent is synced when it ends.
	reason v1alpha1.SyncReason
}

// wrote says how a write of a parent's revision ended.
func (d *doubts) wrote(revision types.NamespacedName, key parent.Key, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		// It would be a conflict if one before it had been done and not been shown.
		delete(d.list, revision)
		return
	}
	d.put(revision, doubt{key, v1alpha1.SyncOwnWrite})
}

// unreadable says that a parent's revision was shown and cannot be read. It returns false if there was a doubt about it, so that no event of it has
// been missed since it was shown.
func (d *doubts) unreadable(revision types.NamespacedName, key parent.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.list[revision]; ok {
		return false
	}
	d.put(revision, doubt{key, v1alpha1.SyncRetry})
	return true
}

// put is called with the lock held.
func (d *doubts) put(revision types.NamespacedName, of doubt) {
	if d.list == nil {
		d.list = map[types.NamespacedName]doubt{}
	}
	d.list[revision] = of
}

// end ends the doubt about a revision of which there is an event. It returns false if there was none.
func (d *doubts) end(revision types.NamespacedName) (doubt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended, ok := d.list[revision]
	delete(d.list, revision)
	return ended, ok
}

func (d *doubts) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list)
}

// forget drops a parent that is gone.
func (d *doubts) forget(key parent.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.list, func(_ types.NamespacedName, of doubt) bool { return of.parent == key })
}
