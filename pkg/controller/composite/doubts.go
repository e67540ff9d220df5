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

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// doubts are the revisions of which it is not known whether the last write was done: its response was lost, for one. A sync that follows may
// succeed on what the informer showed before that write, so that its parent is synced again with the next event of the revision. It is safe
// for concurrent use; the zero value is ready.
type doubts struct {
	mu      sync.Mutex
	parents map[types.NamespacedName]parent.Key
}

// note says how a write of a parent's revision ended.
func (d *doubts) note(revision types.NamespacedName, key parent.Key, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		// It would be a conflict if one before it had been done and not been shown.
		delete(d.parents, revision)
		return
	}
	if d.parents == nil {
		d.parents = map[types.NamespacedName]parent.Key{}
	}
	d.parents[revision] = key
}

// end ends the doubt about a revision of which there is an event. It returns the parent, false if there was no doubt.
func (d *doubts) end(revision types.NamespacedName) (parent.Key, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key, ok := d.parents[revision]
	delete(d.parents, revision)
	return key, ok
}

// forget drops a parent that is gone.
func (d *doubts) forget(key parent.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.parents, func(_ types.NamespacedName, of parent.Key) bool { return of == key })
}
