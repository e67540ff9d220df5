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
	"container/heap"
	"context"
	"maps"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// write is the last write of a resource: the version from which on informers show it, and when it was made.
type write struct {
	version uint64
	at      time.Time
}

// wrote takes note of a write, for the controller that follows. The functions of this file are called with the lock held, but for
// AwaitFormer.
func (e *Expectations) wrote(w *watched, version uint64, at time.Time) {
	last := e.written[w.resource]
	last.version = max(last.version, version)
	if at.After(last.at) {
		last.at = at
	}
	e.written[w.resource] = last
}

// wroteDeletion takes note of a deletion that an informer has shown with a version: its response has none.
func (e *Expectations) wroteDeletion(w *watched, version uint64) {
	if !w.deleted.IsZero() {
		e.wrote(w, version, w.deleted)
		w.deleted = time.Time{}
	}
}

// wroteShownDeletion takes note of a deletion that an informer had shown when its response came.
func (e *Expectations) wroteShownDeletion(informer *cache.Informer) {
	w, ok := e.watched[informer]
	if !ok {
		return
	}
	// It was shown with this version or an earlier one.
	if version, err := strconv.ParseUint(informer.LastSyncedVersion(), 10, 64); err == nil {
		e.wrote(w, version, e.clock.Now())
	}
}

// follow makes the expectations those of a controller that follows another one, which wrote something.
func (e *Expectations) follow(former map[schema.GroupResource]write) {
	e.former, e.written = former, recent(former, e.clock.Now())
}

// recent returns the writes for which informers are waited for still.
func recent(writes map[schema.GroupResource]write, now time.Time) map[schema.GroupResource]write {
	kept := maps.Clone(writes)
	maps.DeleteFunc(kept, func(_ schema.GroupResource, w write) bool { return now.Sub(w.at) >= Limit })
	if kept == nil {
		kept = map[schema.GroupResource]write{}
	}
	return kept
}

// formerWrites is in the place of the parent for which the controllers before this one wrote something.
var formerWrites = parent.Key{} //nolint:gochecknoglobals // It does not change. No parent has an empty name.

// expectFormer expects an informer to show what the controllers before this one wrote.
func (e *Expectations) expectFormer(w *watched) {
	last, ok := e.former[w.resource]
	deadline := last.at.Add(Limit)
	if !ok || !deadline.After(e.clock.Now()) {
		return
	}
	if others, ok := e.parents[formerWrites]; ok && others.deadline.After(deadline) {
		deadline = others.deadline
	}
	p := e.expect(formerWrites)
	p.deadline = deadline
	heap.Push(&w.versions, pendingVersion{last.version, p, last.at})
}

// AwaitFormer waits until the informers that are observed show what the controller of the same name wrote that ran before, as [Registry.New]
// says, for Limit from then on at most. They may be behind those of that controller: their resources may be in another version, or
// selected otherwise. It returns false if ctx ends before. Nothing may be written before it returns.
func (e *Expectations) AwaitFormer(ctx context.Context) bool {
	if !e.Await(ctx) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.former = nil // Informers that are observed later show objects that are related, which controllers do not write.
	return true
}
