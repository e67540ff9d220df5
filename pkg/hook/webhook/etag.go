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

package webhook

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
)

// RootKey is the object that a call is about: the parent, or the decorated object. Entity tags belong to it.
type RootKey struct {
	// Group and Kind of the object.
	Group, Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name of the object.
	Name string
}

// etagCache remembers the last response for each object with the tag that the hook gave it (docs/reference/contract.md#s2.6). It is bounded by
// the size of the responses, its own and those of all caches of the process; its least recently used go first. Those of other caches stay:
// a cache for which the others leave no room remembers what it has.
type etagCache struct {
	maxBytes int64
	budget   *fairqueue.Budget
	// lifetime of an entry; 0 means for ever.
	lifetime time.Duration
	clock    clock.PassiveClock

	mu      sync.Mutex
	closed  bool
	bytes   int64
	entries map[RootKey]*list.Element
	// used has the most recently used entry in front.
	used *list.List
}

// etagEntry is one remembered response.
type etagEntry struct {
	key         RootKey
	tag         string
	body        []byte
	contentType string
	expires     time.Time
	// held is the entry's part of the budget. A response that uses the body shares it.
	held *reservation
}

// release ends a use of an entry that get returned. Nil stands for none.
func (e *etagEntry) release() {
	if e != nil {
		e.held.release()
	}
}

// entryOverhead is an estimate of the memory of an entry without its body, so that many small ones count too.
const entryOverhead = 512

func (e *etagEntry) size() int64 { return int64(len(e.body)) + entryOverhead }

func newEtagCache(maxBytes int64, budget *fairqueue.Budget, lifetime time.Duration, c clock.PassiveClock) *etagCache {
	return &etagCache{
		maxBytes: maxBytes, budget: budget, lifetime: lifetime, clock: c, entries: map[RootKey]*list.Element{}, used: list.New(),
	}
}

// get returns the entry of key, or nil, as a nil cache always does. The entry must not be modified, and is released by the caller.
func (c *etagCache) get(key RootKey) *etagEntry {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return nil
	}
	entry := element.Value.(*etagEntry) //nolint:forcetypeassert // the list holds nothing else
	if c.expired(entry) {
		c.remove(element)
		return nil
	}
	c.used.MoveToFront(element)
	entry.held.share()
	return entry
}

func (c *etagCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// put remembers a response in place of the last one. A response for which there is no room, even without the other entries of
// this cache, is not remembered.
func (c *etagCache) put(key RootKey, tag string, body []byte, contentType string) {
	entry := &etagEntry{key: key, tag: tag, body: body, contentType: contentType}
	if c.lifetime > 0 {
		entry.expires = c.clock.Now().Add(c.lifetime)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.entries[key]; ok {
		c.remove(old)
	}
	if c.closed || entry.size() > c.maxBytes {
		return
	}
	// Expired entries that are not used again end up at the back.
	for back := c.used.Back(); back != nil; back = c.used.Back() {
		if c.bytes+entry.size() <= c.maxBytes && !c.expired(back.Value.(*etagEntry)) { //nolint:forcetypeassert // as above
			break
		}
		c.remove(back)
	}
	held, ok := tryReserve(c.budget, entry.size())
	if used, whole := c.budget.Used(); !ok && whole-used < entry.size()-c.bytes {
		return // What other caches hold is in the way, and dropping all entries of this one would not help.
	}
	for ; !ok; held, ok = tryReserve(c.budget, entry.size()) {
		back := c.used.Back()
		if back == nil {
			return
		}
		c.remove(back)
	}
	entry.held = held
	c.entries[key] = c.used.PushFront(entry)
	c.bytes += entry.size()
}

// close drops all entries, and takes no more.
func (c *etagCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for back := c.used.Back(); back != nil; back = c.used.Back() {
		c.remove(back)
	}
}

// forget drops the entry of key, if any.
func (c *etagCache) forget(key RootKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.remove(element)
	}
}

func (c *etagCache) expired(e *etagEntry) bool {
	return !e.expires.IsZero() && !c.clock.Now().Before(e.expires)
}

func (c *etagCache) remove(element *list.Element) {
	entry := c.used.Remove(element).(*etagEntry) //nolint:forcetypeassert // the list holds nothing else
	delete(c.entries, entry.key)
	c.bytes -= entry.size()
	entry.held.release()
}
