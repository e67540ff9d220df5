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

package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Sync brings one parent to its desired state, and is told why it is called, if the triggers are kept; it must not use them after it returned.
type Sync func(ctx context.Context, key parent.Key, why history.Begun) (Result, error)

// Result is what a sync asks for.
type Result struct {
	// ResyncAfter is the time after which the parent is synced again even if nothing changes. Zero or less: never.
	ResyncAfter time.Duration
	// Idle says that nothing was done about the parent, because it is paused: what is known of its last sync stays.
	Idle bool
	// Next, if not nil, is the sync of the parent that follows at once on the same worker, for which [Queue.GoOn] was asked, and Why is what that
	// returned.
	Next Sync
	Why  history.Begun
}

// Grace is how long syncs that are under way may take after a controller is stopped, so that nothing is left half done. Then their context is
// canceled. Whoever stops controllers waits longer than that: cmd/metacontroller-apiserver/app adds a second to it, so that a canceled sync still
// ends before the API server that it writes to.
const Grace = 5 * time.Second

// errPaused is the cause of the context of a sync that a pause cuts short.
var errPaused = errors.New("the controller is paused")

// Run syncs keys until ctx ends, and returns when nothing that it started runs any more. A sync under way is given the Grace to end by itself. It
// must be called once at most.
func (q *Queue) Run(ctx context.Context) {
	defer q.config.Metrics.Expose()()
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer q.waiting.Wait()
	defer cancel(nil)
	var workers sync.WaitGroup
	for range q.config.Workers {
		workers.Go(func() {
			for more := true; more; {
				// Only Ready and Failed can panic here; the key is done with, and synced again with its next event.
				_ = recovery.Call(work, "processing a key", func() error { more = q.processNextItem(work); return nil })
			}
		})
	}
	q.keepTime(ctx)
	q.mu.Lock()
	q.closed = true
	q.filled.Broadcast()
	q.mu.Unlock()
	defer time.AfterFunc(Grace, func() { cancel(context.Cause(ctx)) }).Stop()
	workers.Wait()
}

// processNextItem syncs one key, and goes on with it as long as its syncs ask for that. It returns false when the queue is shut down.
func (q *Queue) processNextItem(ctx context.Context) bool {
	i, priority := q.get()
	if i == nil {
		return false
	}
	defer q.config.Processed()
	defer q.done(i)
	if !q.config.Ready(i.key) {
		return true
	}
	bound, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	why, ok := q.begin(i, cut)
	if !ok {
		return true
	}
	for sync := q.config.Sync; sync != nil; {
		began := time.Now()
		var result Result
		err := recovery.Call(bound, "syncing", func() (err error) {
			result, err = sync(bound, i.key, why)
			return err
		})
		sync, why = result.Next, result.Why
		if err != nil && errors.Is(context.Cause(bound), errPaused) {
			q.Add(i.key, priority)
			return true
		}
		if err == nil && result.Idle {
			if result.ResyncAfter > 0 {
				q.AddAfter(i.key, result.ResyncAfter)
			}
			return true
		}
		q.synced(ctx, i, result, err, time.Since(began))
	}
	return true
}

// get waits for an item and returns it with the priority it was queued at. It returns nil after Run, even when items are left. It is held until
// begin: if the worker may not sync it, something will release it. The caller must call done.
func (q *Queue) get() (*item, Priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if i := q.next(); i != nil {
			i.held, i.queued = i.queued, none
			q.take(i)
			q.metrics.Started(i.takenAt - i.addedAt)
			return i, i.held
		}
		q.filled.Wait()
	}
	return nil, none
}

func (q *Queue) take(i *item) {
	i.processing, i.takenAt = true, q.now()
	q.processing++
}

// begin says that a worker begins to sync an item, and returns why. Cut ends the context of its syncs. It returns false, and the item is queued
// again, if the queue is paused.
func (q *Queue) begin(i *item, cut context.CancelCauseFunc) (why history.Begun, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.paused {
		q.add(i, i.held)
		return why, false
	}
	i.cut = cut
	return q.begun(i), true
}

// begun returns why an item is synced. It is held no more, and adds up to now ask for nothing else than what is synced now.
func (q *Queue) begun(i *item) (why history.Begun) {
	i.held, i.again = none, none
	if why.Triggers, i.triggers = i.triggers, nil; why.Triggers != nil {
		why.Waited = q.now() - why.Triggers.Since
	}
	return why
}

// GoOn is for a sync that has ended well and after which another one of the parent is to follow at once. It begins that and returns why, for the
// Result. It returns false, and changes nothing, if nothing has added the key at Live since it was begun, or if the queue is paused or ends.
func (q *Queue) GoOn(key parent.Key) (why history.Begun, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok || i.removed || i.again != Live || q.paused || q.closed {
		return why, false
	}
	now := q.now()
	q.metrics.Finished(now - i.takenAt)
	q.metrics.Started(now - i.addedAt)
	i.takenAt = now
	return q.begun(i), true
}

// done says that a worker has finished with an item. One that was added in the meantime is queued now, at the highest priority at which it was.
func (q *Queue) done(i *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i.cut != nil {
		q.metrics.Finished(q.now() - i.takenAt)
	}
	i.processing, i.removed, i.cut = false, false, nil
	q.processing--
	if p := i.again; p != none {
		i.again = none
		q.push(i, min(p, i.held))
	}
	q.drop(i)
}

// Take gives the caller a key, so that no worker syncs it until Done, whether or not it is queued. It returns false if a worker has it. What the key
// waits for it waits for still, and a pause does not matter. The queue need not run.
func (q *Queue) Take(key parent.Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.item(key)
	if i.processing {
		return false
	}
	if i.queued != none {
		q.lists[i.queued].remove(i)
		i.again, i.queued = i.queued, none
	}
	q.take(i)
	return true
}

// Done gives a key back that Take gave.
func (q *Queue) Done(key parent.Key) {
	q.mu.Lock()
	i := q.items[key]
	q.mu.Unlock()
	q.done(i)
}

// Pause has no key synced until Resume, and cuts short the syncs that are under way: their contexts end, and their keys wait like all
// others. Nothing that waits is forgotten. It returns at once; UnderWay tells when nothing is under way any more.
func (q *Queue) Pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
	for _, i := range q.items {
		if i.cut != nil {
			i.cut(errPaused)
		}
	}
}

// Resume ends a pause. The keys that wait are synced.
func (q *Queue) Resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	q.filled.Broadcast()
}
