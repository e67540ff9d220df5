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

package barrier

import (
	"container/heap"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Limit is how long a parent waits at most for the cache to show its writes (docs/reference/compatibility.md#d5.2).
const Limit = 10 * time.Second

// Barrier remembers writes that the cache has not shown yet. It is safe for concurrent use.
type Barrier struct {
	clock clock.WithDelayedExecution

	mu      sync.Mutex
	parents map[types.UID]*parent
	watched map[*cache.Informer]*watched
}

// parent is a parent that has writes that are not shown yet.
type parent struct {
	uid      types.UID
	pending  int
	deadline time.Time
	wake     func()
	timer    clock.Timer
}

// watched is an informer with the writes that it is to show.
type watched struct {
	holders  int
	stop     func()
	versions versions
	deletes  map[types.UID]deletion
}

// deletion is an object that is to be shown as deleted.
type deletion struct {
	parent *parent
	// whole says that it must be gone: that it is being deleted was known before.
	whole bool
}

// New returns a barrier. A nil clock means the real one.
func New(c clock.WithDelayedExecution) *Barrier {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Barrier{clock: c, parents: map[types.UID]*parent{}, watched: map[*cache.Informer]*watched{}}
}

// Wrote says that a sync of a parent wrote an object that informer watches, and which version that made.
func (b *Barrier) Wrote(of types.UID, informer *cache.Informer, version string) {
	at, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		// A server whose versions are not numbers gives no order to wait for.
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.watched[informer]
	if !ok {
		return
	}
	if seen, err := strconv.ParseUint(informer.LastSyncedVersion(), 10, 64); err == nil && seen >= at {
		return
	}
	heap.Push(&w.versions, pendingVersion{at, b.add(of), b.clock.Now()})
}

// Lag returns how long ago the oldest write was answered that an informer has not shown yet, whether or not somebody waits for
// it; 0 if all are shown. It grows when the API server is kept so busy with writes that its watches fall behind.
func (b *Barrier) Lag() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, lag := b.clock.Now(), time.Duration(0)
	for _, w := range b.watched {
		if len(w.versions) > 0 {
			lag = max(lag, now.Sub(w.versions[0].written))
		}
	}
	return lag
}

// Deleted says that a sync of a parent deleted the object with a UID. The informer shows it when the object is gone or being
// deleted.
func (b *Barrier) Deleted(of types.UID, informer *cache.Informer, namespace, name string, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.watched[informer]
	if !ok {
		return
	}
	if o, ok := informer.Get(namespace, name); !ok || o.UID() != uid || o.Deleting() {
		return
	}
	b.addDeletion(of, w, uid, false)
}

// WroteObject is Wrote for a whole object. One that was being deleted and has lost its last finalizer is gone with that
// write, and has the version from before it: the informer shows the write when it has the object no more.
func (b *Barrier) WroteObject(of types.UID, informer *cache.Informer, o *object.Object) {
	if !o.Deleting() || len(o.Finalizers()) > 0 {
		b.Wrote(of, informer, o.ResourceVersion())
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.watched[informer]
	if !ok {
		return
	}
	if shown, ok := informer.Get(o.Namespace(), o.Name()); ok && shown.UID() == o.UID() {
		b.addDeletion(of, w, o.UID(), true)
	}
}

func (b *Barrier) addDeletion(of types.UID, w *watched, uid types.UID, whole bool) {
	d, ok := w.deletes[uid]
	// A parent that waited in vain before does not count any more.
	if !ok || b.parents[d.parent.uid] != d.parent {
		d.parent = b.add(of)
	}
	d.whole = whole
	w.deletes[uid] = d
}

// Ready reports whether the cache shows everything that the parent's syncs wrote. If not, wake is called once when it
// does, or when Limit has passed; of several calls the last one's wake counts.
func (b *Barrier) Ready(of types.UID, wake func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.parents[of]
	if !ok {
		return true
	}
	left := p.deadline.Sub(b.clock.Now())
	if left <= 0 {
		b.drop(p)
		return true
	}
	p.wake = wake
	if p.timer == nil {
		p.timer = b.clock.AfterFunc(left, func() { b.expire(p) })
	}
	return false
}

// Forget drops what is known about a parent that is gone.
func (b *Barrier) Forget(of types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, ok := b.parents[of]; ok {
		b.drop(p)
	}
}

func (b *Barrier) expire(p *parent) {
	b.mu.Lock()
	wake := p.wake
	current := b.parents[p.uid] == p
	if current {
		p.timer = nil // It fired.
		b.drop(p)
	}
	b.mu.Unlock()
	if current && wake != nil {
		wake()
	}
}

// drop forgets a parent; writes of it that are still noted count for nobody.
func (b *Barrier) drop(p *parent) {
	delete(b.parents, p.uid)
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (b *Barrier) add(of types.UID) *parent {
	p, ok := b.parents[of]
	if !ok {
		p = &parent{uid: of}
		b.parents[of] = p
	}
	p.pending++
	p.deadline = b.clock.Now().Add(Limit)
	return p
}

// Observe lets the barrier follow an informer until cancel is called; it may be observed many times. Writes to what an
// informer shows that is not observed are not waited for, nor are those that wait at the last cancel.
func (b *Barrier) Observe(informer *cache.Informer) (cancel func()) {
	b.mu.Lock()
	w, ok := b.watched[informer]
	if !ok {
		w = &watched{deletes: map[types.UID]deletion{}}
		b.watched[informer] = w
	}
	w.holders++
	b.mu.Unlock()
	if !ok {
		// Informers call progress with a lock held that Observe takes, so this must not happen with ours held.
		stop := informer.Observe(func(version string, e cache.Event) { b.progress(informer, version, e) })
		b.mu.Lock()
		w.stop = stop
		b.mu.Unlock()
		b.progress(informer, informer.LastSyncedVersion(), cache.Event{})
	}
	return sync.OnceFunc(func() { b.release(informer, w) })
}

func (b *Barrier) release(informer *cache.Informer, w *watched) {
	b.mu.Lock()
	if w.holders--; w.holders > 0 {
		b.mu.Unlock()
		return
	}
	delete(b.watched, informer)
	stop := w.stop
	var wakes []func()
	for _, v := range w.versions {
		wakes = b.shown(v.parent, wakes)
	}
	for _, d := range w.deletes {
		wakes = b.shown(d.parent, wakes)
	}
	b.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, wake := range wakes {
		wake()
	}
}

// shown notes that one write of a parent is shown, and adds to wakes what is to be called without the lock.
func (b *Barrier) shown(p *parent, wakes []func()) []func() {
	if p.pending--; p.pending > 0 || b.parents[p.uid] != p {
		return wakes
	}
	b.drop(p)
	if p.wake != nil {
		wakes = append(wakes, p.wake)
	}
	return wakes
}

// progress is told by informers what they show now.
func (b *Barrier) progress(informer *cache.Informer, version string, e cache.Event) {
	b.mu.Lock()
	w, ok := b.watched[informer]
	if !ok {
		b.mu.Unlock()
		return
	}
	var wakes []func()
	if at, err := strconv.ParseUint(version, 10, 64); err == nil {
		for len(w.versions) > 0 && w.versions[0].version <= at {
			wakes = b.shown(heap.Pop(&w.versions).(pendingVersion).parent, wakes)
		}
	}
	if uid, whole := gone(e); len(w.deletes) > 0 && uid != "" {
		if d, ok := w.deletes[uid]; ok && (whole || !d.whole) {
			delete(w.deletes, uid)
			wakes = b.shown(d.parent, wakes)
		}
	}
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
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

// versions is a heap of versions that are to be shown, the oldest first.
type versions []pendingVersion

type pendingVersion struct {
	version uint64
	parent  *parent
	written time.Time
}

// Len implements heap.Interface.
func (v versions) Len() int { return len(v) }

// Less implements heap.Interface.
func (v versions) Less(i, j int) bool { return v[i].version < v[j].version }

// Swap implements heap.Interface.
func (v versions) Swap(i, j int) { v[i], v[j] = v[j], v[i] }

// Push implements heap.Interface.
func (v *versions) Push(x any) {
	if pending, ok := x.(pendingVersion); ok {
		*v = append(*v, pending)
	}
}

// Pop implements heap.Interface.
func (v *versions) Pop() any {
	last := len(*v) - 1
	x := (*v)[last]
	(*v)[last] = pendingVersion{}
	*v = (*v)[:last]
	return x
}
