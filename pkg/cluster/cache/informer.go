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

package cache

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// EventType says what happened to an object.
type EventType int

const (
	// Added says that an object was created, or is new to the informer.
	Added EventType = iota
	// Updated says that an object changed.
	Updated
	// Deleted says that an object was deleted.
	Deleted
)

// Event is a change of one object.
type Event struct {
	// Type says which of Old and New are set: New when added, both when updated, Old when deleted.
	Type     EventType
	Old, New *object.Object
	// Initial marks an object that existed already when the informer started or the subscriber came.
	Initial bool
}

// Handler handles changes, one after the other, after the store shows the change. It runs on the informer's goroutine or on that of a
// caller of [Informer.Wrote]: it must not block, and not subscribe. A panic is logged and is the informer's Err, until the handler has handled the object again: the informer calls it with
// what changed since at each bookmark, about once a minute, and after each list.
type Handler func(Event)

// Informer watches one resource. It is safe for concurrent use.
type Informer struct {
	cache   *Cache
	query   Query
	holders int                // guarded by the cache's lock
	stop    context.CancelFunc // likewise
	store   *store
	synced  chan struct{}
	// unlisted is closed at the first failure to list.
	unlisted     chan struct{}
	unlistedOnce sync.Once

	// deliver is held while an event is delivered, or a new subscriber gets the present objects.
	deliver     sync.Mutex
	subscribers subscribers
	observers   observers
	// ahead has what the store shows although the events of it are to come. It is guarded by deliver.
	ahead map[key]*ahead
	// former is the version that was reached before a list had an earlier one, as that of a restored etcd has. It is guarded by deliver.
	former uint64

	mu  sync.Mutex
	err error
	// troubled are called when err comes, stays or goes, and when missed comes or goes.
	troubled []*func()
	missed   error // of a handler that has missed changes
	version  string
}

var _ clientcache.ReflectorStore = &Informer{}

func newInformer(c *Cache, q Query) *Informer {
	return &Informer{cache: c, query: q, store: newStore(), ahead: map[key]*ahead{}, synced: make(chan struct{}), unlisted: make(chan struct{})}
}

// Release gives the informer back. It must not be used by the caller afterwards.
func (i *Informer) Release() { i.cache.release(i) }

// Query returns what the informer watches.
func (i *Informer) Query() Query { return i.query }

// Synced is closed when the informer has all objects that existed at its start.
func (i *Informer) Synced() <-chan struct{} { return i.synced }

// HasSynced reports whether Synced is closed.
func (i *Informer) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// Failed is closed once an attempt to list failed; Err has the cause, until an attempt succeeds.
func (i *Informer) Failed() <-chan struct{} { return i.unlisted }

// Err returns the error of the last attempt to list or watch, a panic among them, or else that of a handler that has missed a
// change; nil if there is none.
func (i *Informer) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return cmp.Or(i.err, i.missed)
}

// NotifyErr has changed called, from any goroutine, whenever what [Informer.Err] returns may have changed, until cancel is called. It must
// not block, and not subscribe.
func (i *Informer) NotifyErr(changed func()) (cancel func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.troubled = append(i.troubled, &changed)
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.troubled = slices.DeleteFunc(i.troubled, func(f *func()) bool { return f == &changed })
	}
}

// LastSyncedVersion returns the newest resourceVersion whose event all subscribers have handled, empty before the first. What
// [Informer.Wrote] took over may be newer. Versions of one resource are comparable since Kubernetes 1.35 (KEP-5504).
func (i *Informer) LastSyncedVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.version
}

// Get returns one object.
func (i *Informer) Get(namespace, name string) (*object.Object, bool) {
	return i.store.get(key{namespace, name})
}

// All yields the objects of a namespace, or of all when it is empty, in no order. Objects that change meanwhile may be
// yielded in either state.
func (i *Informer) All(namespace string) iter.Seq[*object.Object] {
	return func(yield func(*object.Object) bool) {
		for _, o := range i.store.list(namespace) {
			if !yield(o) {
				return
			}
		}
	}
}

// List returns the objects of a namespace, or of all when it is empty, in no order.
func (i *Informer) List(namespace string) []*object.Object { return i.store.list(namespace) }

// Len returns the number of objects.
func (i *Informer) Len() int { return i.store.len() }

// ControlledBy returns the objects whose controlling owner has the UID.
func (i *Informer) ControlledBy(owner types.UID) []*object.Object { return i.store.controlledBy(owner) }

// Orphans returns the objects without controlling owner that match a selector, in a namespace, or in all when it is empty.
func (i *Informer) Orphans(namespace string, selector labels.Selector) []*object.Object {
	return i.store.matching(&i.store.orphans, namespace, selector)
}

// Matching returns the objects that match a selector, in a namespace, or in all when it is empty, in no order. It does not look at all
// of them where the selector demands a label that selectors use again and again.
func (i *Informer) Matching(namespace string, selector labels.Selector) []*object.Object {
	return i.store.matching(&i.store.all, namespace, selector)
}

// Named returns the objects with one of the names, which must be sorted, in whatever namespace, in no order.
func (i *Informer) Named(names []string) []*object.Object { return i.store.named(names) }

// Subscribe calls handle for all present objects, as added, and then for all changes in their order, until cancel is called. No
// call is under way when cancel returns. A handler must not call cancel.
func (i *Informer) Subscribe(handle Handler) (cancel func()) {
	i.deliver.Lock()
	defer i.deliver.Unlock()
	s := &subscriber{handle: handle.recovered()}
	for _, o := range i.store.list("") {
		_ = s.notify(Event{Type: Added, New: o, Initial: true}) // It is in missed.
	}
	return i.subscribe(s)
}

// SubscribeTo is Subscribe for those changes after it that are of interest.
func (i *Informer) SubscribeTo(interest Interest, handle Handler) (cancel func()) {
	i.deliver.Lock()
	defer i.deliver.Unlock()
	return i.subscribe(&subscriber{handle: handle.recovered(), interest: &interest})
}

// subscribe is called with deliver held.
func (i *Informer) subscribe(s *subscriber) (cancel func()) {
	i.subscribers.add(s)
	i.checkMissed()
	return func() {
		i.deliver.Lock()
		defer i.deliver.Unlock()
		i.subscribers.remove(s)
		i.checkMissed()
	}
}

// Observe returns an observer of the informer's progress, which is at rest.
func (i *Informer) Observe(p Progress) *Observer {
	return &Observer{informer: i, progress: p.recovered()}
}

// without returns a list without one element. The given list is not changed: it may be in use.
func without[T comparable](list []T, element T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(e T) bool { return e == element })
}

// Add implements clientcache.ReflectorStore.
func (i *Informer) Add(o any) error { return i.put(o) }

// Update implements clientcache.ReflectorStore.
func (i *Informer) Update(o any) error { return i.put(o) }

// Delete implements clientcache.ReflectorStore.
func (i *Informer) Delete(o any) error {
	gone, ok := o.(*object.Object)
	if !ok {
		return fmt.Errorf("deleting a %T from the cache of %s", o, i.query.Resource)
	}
	i.deliver.Lock()
	defer i.deliver.Unlock()
	if i.overtaken(gone, true) {
		return nil
	}
	// The event carries the object's last state, which handlers want to see, under the version of the deletion.
	var event Event
	if i.store.remove(key{gone.Namespace(), gone.Name()}) != nil {
		event = Event{Type: Deleted, Old: gone}
	}
	i.changed(gone.ResourceVersion(), event)
	return nil
}

// Bookmark implements clientcache.ReflectorBookmarkStore.
func (i *Informer) Bookmark(version string) error {
	i.deliver.Lock()
	defer i.deliver.Unlock()
	i.repeatMissed()
	i.passed(version)
	i.changed(version, Event{})
	return nil
}

// Resync implements clientcache.ReflectorStore. The engine resyncs parents by itself.
func (i *Informer) Resync() error { return nil }

// Replace implements clientcache.ReflectorStore: the first list, or a relist after an expired or broken watch. What differs from
// the store becomes events.
func (i *Informer) Replace(list []any, version string) error {
	initial := !i.HasSynced()
	i.deliver.Lock()
	defer i.deliver.Unlock()
	seen := make(map[key]struct{}, len(list))
	for _, element := range list {
		o, ok := element.(*object.Object)
		if !ok {
			return fmt.Errorf("putting a %T into the cache of %s", element, i.query.Resource)
		}
		k := key{o.Namespace(), o.Name()}
		seen[k] = struct{}{}
		if i.keeps(k, version, o) {
			continue
		}
		// The present one stays if nothing changed: readers may hold it. What a definition does not declare any more is not shown, and is again
		// when it is declared again, under the same version: the watch ends with an error then, so that there is a list.
		if before, ok := i.store.get(k); ok && before.UID() == o.UID() && before.ResourceVersion() == o.ResourceVersion() && before.Shows(o) {
			continue
		}
		i.show(o, "", initial)
	}
	for _, o := range i.store.list("") {
		k := key{o.Namespace(), o.Name()}
		if _, ok := seen[k]; !ok && !i.keeps(k, version, nil) {
			i.store.remove(k)
			i.changed("", Event{Type: Deleted, Old: o})
		}
	}
	i.unlistedAreGone(seen, version)
	i.repeatMissed()
	i.relisted(version)
	i.changed(version, Event{})
	if initial {
		close(i.synced)
	}
	return nil
}

func (i *Informer) put(element any) error {
	o, ok := element.(*object.Object)
	if !ok {
		return fmt.Errorf("putting a %T into the cache of %s", element, i.query.Resource)
	}
	i.deliver.Lock()
	defer i.deliver.Unlock()
	if !i.overtaken(o, false) {
		i.show(o, o.ResourceVersion(), false)
	}
	return nil
}

// show stores an object and delivers the change, with the version that the informer has reached with it. Initial says that the object is one of the
// first list. It is called with deliver held.
func (i *Informer) show(o *object.Object, version string, initial bool) {
	before := i.store.put(o)
	switch {
	case before == nil:
		i.changed(version, Event{Type: Added, New: o, Initial: initial})
	case before.UID() != o.UID():
		i.changed("", Event{Type: Deleted, Old: before})
		i.changed(version, Event{Type: Added, New: o})
	default:
		i.changed(version, Event{Type: Updated, Old: before, New: o})
	}
}

// changed delivers an event that the store shows already, and the version that the informer has reached. Handlers run before
// observers of progress, so that a sync that waits for a version cannot start before its cause is enqueued.
func (i *Informer) changed(version string, e Event) {
	if e.Old != nil || e.New != nil {
		i.notify(e)
	}
	i.progressed(version, e)
}

// notify calls the handlers with an event that the store shows already.
func (i *Informer) notify(e Event) {
	for s := range i.subscribers.concerned(e) {
		if s.notify(e) != nil {
			i.checkMissed()
		}
	}
}

// progressed notes the version that the informer has reached with an event, and tells those who wait for that.
func (i *Informer) progressed(version string, e Event) {
	// Only a list goes back: the event of a deletion may have the version that the object had.
	if version != "" && !older(version, i.LastSyncedVersion()) {
		i.reach(version)
	}
	for _, o := range i.observers.awake() {
		o.progress(version, e)
	}
}

func (i *Informer) reach(version string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = version
}

// listed records the result of an attempt to list.
func (i *Informer) listed(err error) {
	i.observed(err)
	if err != nil {
		i.unlistedOnce.Do(func() { close(i.unlisted) })
	}
}

// observed records the result of the last request.
func (i *Informer) observed(err error) {
	i.mu.Lock()
	var troubled []*func()
	if i.err != nil || err != nil {
		troubled = slices.Clone(i.troubled)
	}
	i.err = err
	i.mu.Unlock()
	for _, changed := range troubled {
		(*changed)()
	}
}
