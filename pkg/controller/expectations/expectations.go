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
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Limit is how long a parent waits at most for the informers to show its writes (docs/reference/compatibility.md#d5.2).
const Limit = 10 * time.Second

// Expectations are the writes of one controller that its informers have not shown yet. It is safe for concurrent use.
type Expectations struct {
	clock   clock.WithDelayedExecution
	release func(parent.Key)
	// registry is that of the process, nil if there is none, and controller the name of the controller in it.
	registry   *Registry
	controller string
	// Because returns the versions of related objects that a sync of a parent is caused by. It is set before the first write.
	Because func(key parent.Key) []uint64

	mu      sync.Mutex
	parents map[parent.Key]*expecting
	watched map[*cache.Informer]*watched
	// empty, if it is not nil, is closed when no parent has writes that are not shown.
	empty chan struct{}
	// former is what the controllers before this one wrote, until AwaitFormer is called. written are those of its writes that count still, and the
	// controller's own of resources that are not observed any more.
	former, written map[schema.GroupResource]write
}

// expecting is a parent with writes that are not shown yet.
type expecting struct {
	key     parent.Key
	pending int
	// waiting says that the parent is to be released.
	waiting bool
	// timer ends it after Limit; nil once it has fired.
	timer clock.Timer
}

// watched is an informer with the writes that it is to show.
type watched struct {
	// observer is awake while anything is expected, so that an informer asks only the controllers that wait for it.
	observer *cache.Observer
	resource schema.GroupResource
	// versions are those that are to be shown, the oldest first.
	versions []pendingVersion
	deletes  map[types.UID]deletion
	// written is when the controller wrote last what the informer shows, zero for never.
	written time.Time
}

type pendingVersion struct {
	version uint64
	// of is the parent that waits for it; nil for one that the informer shows without its event.
	of      *expecting
	written time.Time
}

// deletion is an object that is to be shown as deleted.
type deletion struct {
	namespace, name string
	// of is the parent that waits for it; nil for one that the informer shows without its event, which has the version of the deletion.
	of *expecting
	// whole says that it must be gone: that it is being deleted was known before.
	whole   bool
	written time.Time
}

// due reports whether an informer shows the object of the UID as it was before its deletion.
func (d *deletion) due(informer *cache.Informer, uid types.UID) bool {
	shown, ok := informer.Get(d.namespace, d.name)
	return ok && shown.UID() == uid && (d.whole || !shown.Deleting())
}

// New returns empty expectations. release is called, without a lock, for every parent that was not Satisfied once it is, or once
// Limit has passed. A nil clock means the real one.
func New(release func(parent.Key), c clock.WithDelayedExecution) *Expectations {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Expectations{
		clock: c, release: release, Because: func(parent.Key) []uint64 { return nil },
		parents: map[parent.Key]*expecting{}, watched: map[*cache.Informer]*watched{}, written: map[schema.GroupResource]write{},
	}
}

// Wrote expects an object that a sync of the parent key wrote, as the API server returned it, unless the informer takes it over at once
// ([cache.Informer.Wrote]), whose handlers are called then. One that was being deleted and has lost its last finalizer is gone with that
// write, and has the version from before it: it is expected to disappear.
func (e *Expectations) Wrote(key parent.Key, informer *cache.Informer, o *object.Object) {
	if !parent.Ended(o) {
		e.made(key, history.Version(o)) // Before handlers are called with it.
		if o.Deleting() {
			e.made(key, history.Deleted(o)) // It may be this write that deleted it.
		}
		e.wroteVersion(key, informer, o.ResourceVersion(), informer.Wrote(o))
		return
	}
	e.made(key, history.Deleted(o))
	e.expectDeletion(key, informer, o, true, false)
}

// WroteVersion is Wrote for an object of which the version alone is known. Versions that are no numbers have no order and
// are not expected.
func (e *Expectations) WroteVersion(key parent.Key, informer *cache.Informer, version string) {
	e.wroteVersion(key, informer, version, false)
}

// wroteVersion expects a version, for no parent if the informer shows it: then its event tells how far the informer is behind.
func (e *Expectations) wroteVersion(key parent.Key, informer *cache.Informer, version string, shown bool) {
	at, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.watching(informer)
	if w == nil {
		return
	}
	if seen, err := strconv.ParseUint(informer.LastSyncedVersion(), 10, 64); err == nil && seen >= at {
		return
	}
	pending := pendingVersion{version: at, written: w.written}
	if !shown {
		pending.of = e.expect(key)
	}
	w.push(pending)
}

// Deleted expects an object that a sync of the parent key deleted to be gone or being deleted.
func (e *Expectations) Deleted(key parent.Key, informer *cache.Informer, o *object.Object) {
	e.made(key, history.Deleted(o))
	e.expectDeletion(key, informer, o, false, false)
}

// Gone is Deleted for an object of which the response says that it is gone, unless the informer takes that over at once ([cache.Informer.Gone]),
// whose handlers are called then. It is the object in the version that was deleted.
func (e *Expectations) Gone(key parent.Key, informer *cache.Informer, o *object.Object) {
	e.made(key, history.Deleted(o)) // Before handlers are called with it.
	e.expectDeletion(key, informer, o, false, informer.Gone(o))
}

// expectDeletion expects an object to be gone if the informer shows it, or to be being deleted at least, unless it has to be gone as a whole. One
// that the informer has taken over is expected for no parent: the controller that follows may have an informer that shows the object still.
func (e *Expectations) expectDeletion(key parent.Key, informer *cache.Informer, o *object.Object, whole, taken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.watching(informer)
	if w == nil {
		return
	}
	// The texts are parts of the object's JSON, which must not be kept in memory.
	uid := types.UID(strings.Clone(string(o.UID())))
	d := w.deletes[uid]
	d.namespace, d.name, d.whole, d.written = strings.Clone(o.Namespace()), strings.Clone(o.Name()), whole, w.written
	due := d.due(informer, uid)
	if !due && !taken {
		return
	}
	// A parent that waited in vain before does not count any more.
	if due && (d.of == nil || e.parents[d.of.key] != d.of) {
		d.of = e.expect(key)
	}
	w.deletes[uid] = d
}

// Satisfied reports whether the informers show everything that the parent's syncs wrote. If not, the parent is released when
// they do, or when Limit has passed.
func (e *Expectations) Satisfied(key parent.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.parents[key]
	if ok {
		p.waiting = true
	}
	return !ok
}

// Expects reports whether the informers do not show everything yet that the parent's syncs wrote. It changes nothing.
func (e *Expectations) Expects(key parent.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.parents[key]
	return ok
}

// Pending returns the number of parents with writes that are not shown yet.
func (e *Expectations) Pending() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.parents)
}

// Close drops all expectations and stops their timers. Nothing is released afterwards.
func (e *Expectations) Close() {
	e.change(func() []parent.Key {
		for informer, w := range e.watched {
			e.wrote(informer, w)
		}
		for _, p := range e.parents {
			e.drop(p)
		}
		return nil
	})
	e.registry.closed(e)
}

// change calls f with the lock held, and then releases the parents that f returned without it. A panic of f leaves it unlocked.
func (e *Expectations) change(f func() (released []parent.Key)) {
	locked := func() []parent.Key {
		e.mu.Lock()
		defer e.mu.Unlock()
		return f()
	}
	for _, key := range locked() {
		e.release(key)
	}
}

func (e *Expectations) expire(p *expecting) {
	e.change(func() []parent.Key {
		if e.parents[p.key] != p {
			return nil
		}
		p.timer = nil // It fired.
		return e.end(p)
	})
}

// end drops a parent, and returns its key if it is to be released.
func (e *Expectations) end(p *expecting) []parent.Key {
	e.drop(p)
	if !p.waiting {
		return nil
	}
	return []parent.Key{p.key}
}

// drop forgets a parent; writes of it that are still noted count for no parent.
func (e *Expectations) drop(p *expecting) {
	delete(e.parents, p.key)
	if p.timer != nil {
		p.timer.Stop()
	}
	if e.empty != nil && len(e.parents) == 0 {
		close(e.empty)
		e.empty = nil
	}
}

func (e *Expectations) expect(key parent.Key) *expecting {
	p, ok := e.parents[key]
	if !ok {
		p = &expecting{key: key}
		p.timer = e.clock.AfterFunc(Limit, func() { e.expire(p) })
		e.parents[key] = p
	}
	p.pending++
	p.timer.Reset(Limit)
	return p
}

// Observe follows an informer until cancel is called. Writes of what an informer shows that is not observed are not expected,
// nor are those that are pending at the cancel. Where an informer is observed twice, the later one counts.
func (e *Expectations) Observe(informer *cache.Informer) (cancel func()) {
	w := &watched{resource: informer.Query().Resource.GroupResource(), deletes: map[types.UID]deletion{}}
	w.observer = informer.Observe(func(version string, event cache.Event) { e.progress(w, version, event) })
	e.mu.Lock()
	e.watched[informer] = w
	e.mu.Unlock()
	return sync.OnceFunc(func() {
		w.observer.Close()
		e.change(func() (released []parent.Key) {
			e.wrote(informer, w)
			if e.watched[informer] == w {
				delete(e.watched, informer)
			}
			for _, v := range w.versions {
				released = e.shown(v.of, released)
			}
			for _, d := range w.deletes {
				released = e.shown(d.of, released)
			}
			return released
		})
	})
}

// watching returns an informer of whose objects one was written, nil if it is not observed. What it shows is to be looked at afterwards:
// everything that comes after that is progress. It is called with the lock held.
func (e *Expectations) watching(informer *cache.Informer) *watched {
	w := e.watched[informer]
	if w != nil {
		w.observer.Wake()
		w.written = e.clock.Now()
	}
	return w
}

// shown notes that one write of a parent, nil for none, is shown, and adds the parent to those that are to be released without the lock.
func (e *Expectations) shown(p *expecting, released []parent.Key) []parent.Key {
	if p == nil {
		return released
	}
	if p.pending--; p.pending > 0 || e.parents[p.key] != p {
		return released
	}
	return append(released, e.end(p)...)
}

// progress is called by informers with what they show now.
func (e *Expectations) progress(w *watched, version string, event cache.Event) {
	e.change(func() (released []parent.Key) {
		if len(w.versions) == 0 && len(w.deletes) == 0 {
			w.observer.Rest()
			return nil
		}
		if at, err := strconv.ParseUint(version, 10, 64); err == nil {
			for len(w.versions) > 0 && w.versions[0].version <= at {
				released = e.shown(w.pop().of, released)
			}
		}
		uid, whole := gone(event)
		if d, ok := w.deletes[uid]; ok && (whole || !d.whole) {
			delete(w.deletes, uid)
			released = e.shown(d.of, released)
		}
		return released
	})
}

// gone returns the UID of which an event says that it is deleted or being deleted, empty where it says neither, and
// whether it is gone as a whole.
func gone(e cache.Event) (uid types.UID, whole bool) {
	switch {
	case e.Type == cache.Deleted && e.Old != nil:
		return e.Old.UID(), true
	case e.New != nil && e.New.Deleting():
		return e.New.UID(), false
	}
	return "", false
}

// Staleness returns how long ago the oldest write was made whose event an informer has not had yet, whether or not a parent waits for
// it; 0 if all have come. It grows when the API server is so busy with writes that its watches fall behind. Writes older than
// Limit do not count: an informer that lost its watch for good says nothing about the others.
func (e *Expectations) Staleness() time.Duration {
	var stale time.Duration
	e.change(func() (released []parent.Key) {
		now := e.clock.Now()
		for _, w := range e.watched {
			for len(w.versions) > 0 && now.Sub(w.versions[0].written) > Limit {
				released = e.shown(w.pop().of, released)
			}
			for uid, d := range w.deletes {
				if now.Sub(d.written) > Limit {
					delete(w.deletes, uid)
					released = e.shown(d.of, released)
				}
			}
			if len(w.versions) > 0 {
				stale = max(stale, now.Sub(w.versions[0].written))
			}
		}
		return released
	})
	return stale
}

func (w *watched) push(pending pendingVersion) {
	at, _ := slices.BinarySearchFunc(w.versions, pending.version, func(p pendingVersion, version uint64) int { return cmp.Compare(p.version, version) })
	w.versions = slices.Insert(w.versions, at, pending)
}

func (w *watched) pop() pendingVersion {
	first := w.versions[0]
	w.versions[0] = pendingVersion{}
	w.versions = w.versions[1:]
	return first
}
