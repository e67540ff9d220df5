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

package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Result is what a sync that succeeded asks for.
type Result struct {
	// ResyncAfter is the time after which the parent is synced again even if nothing changes. Zero or less: never.
	ResyncAfter time.Duration
	// Next, if not nil, is the sync of the parent that follows at once on the same worker, for which [Pool.GoOn] was asked, and Why is what that
	// returned.
	Next Sync
	Why  trigger.Begun
}

// Sync brings one parent to its desired state, and is told why it is called, if the triggers are kept; it must not use them after it returned.
type Sync func(ctx context.Context, key parent.Key, why trigger.Begun) (Result, error)

// Config describes a pool. Workers, Sync and Failed are required.
type Config struct {
	// Workers is the number of keys that are synced at the same time. At least 1.
	Workers int
	// Sync is never called for one key by two goroutines at once. Its context ends with the grace, and has the cause of the end of Run's then.
	Sync Sync
	// Ready reports whether a key may be synced now. After it returned false, [Pool.Release] is to be called as soon as the
	// key may be synced, from any goroutine. Nil: always.
	Ready func(key parent.Key) bool
	// Failed reports an error that is retried with backoff: an event, usually.
	Failed func(ctx context.Context, key parent.Key, err error)
	// Processed is called when a key is done with, synced or not. It must not block. Nil: nothing is called.
	Processed func()
	// Recovered reports that a parent was synced again after its last sync had failed. Nil: nothing is reported.
	Recovered func(key parent.Key)
	// Grace is how long a sync that is under way may take after Run's context ended. Default 5 s.
	Grace time.Duration
	// Clock is the time source. Default: the real one.
	Clock clock.WithTicker
	// Random returns numbers in [0,1) for the jitter of back-offs, and must be safe for concurrent use. Nil: math/rand/v2.
	Random func() float64
	// Metrics are the series of the controller, which Run shows. Nil: none.
	Metrics *metrics.Controller
	// Triggers says that it is kept why keys are synced.
	Triggers bool
}

// Counters count what a pool did. They are safe for concurrent use.
type Counters struct {
	// Syncs counts syncs that ended without an error, Failed those whose error was reported.
	Syncs, Failed atomic.Int64
}

// Pool is the workers of one controller and their queue. It is safe for concurrent use.
type Pool struct {
	// Counters count what the pool did.
	Counters Counters

	config  Config
	queue   *Queue[parent.Key]
	failing failing
	brake   brake

	mu sync.Mutex
	// waits are what the keys whose last syncs ended with a WaitError wait for. Each has a goroutine of awaiting.
	waits    map[parent.Key]*waiting
	awaiting sync.WaitGroup
}

type waiting struct{ cancel context.CancelFunc }

// New returns a pool and starts nothing. Keys may be enqueued at once; they are synced by Run.
func New(c Config) *Pool {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	p := &Pool{
		config: c, waits: map[parent.Key]*waiting{},
		queue: newQueue[parent.Key](Options{Clock: c.Clock, Random: c.Random, Metrics: c.Metrics.Queue(), Triggers: c.Triggers}),
	}
	c.Metrics.Queue().Observe(p.state)
	return p
}

// Enqueue adds key to the queue.
func (p *Pool) Enqueue(key parent.Key, priority Priority) { p.queue.Add(key, priority) }

// EnqueueBecause adds key to the queue, with the reason.
func (p *Pool) EnqueueBecause(key parent.Key, priority Priority, why trigger.Trigger) {
	p.queue.AddBecause(key, priority, why)
}

// EnqueueAfter adds key to the queue after a time. It has no effect on one that is added sooner; a later sync does not cancel it.
func (p *Pool) EnqueueAfter(key parent.Key, after time.Duration) {
	p.queue.AddAfter(key, after, Live)
}

// Forget drops all that is pending or remembered for a parent that is gone.
func (p *Pool) Forget(key parent.Key) {
	p.queue.Remove(key)
	p.wait(key, nil)
	p.failing.recovered(key)
}

// Reset has the back-off of a key start over: its parent changed.
func (p *Pool) Reset(key parent.Key) { p.queue.Forget(key) }

// Release has a key synced for which Ready returned false. For all others it does nothing.
func (p *Pool) Release(key parent.Key) { p.queue.Release(key) }

// GoOn is for a sync that has ended well and after which another one of the parent is to follow at once. It begins that and returns why, for the
// Result. It returns false if there is no reason yet, or if the pool is paused or ends.
func (p *Pool) GoOn(key parent.Key) (why trigger.Begun, ok bool) { return p.queue.GoOn(key) }

// Take gives the caller a key, so that no worker syncs it until Done. It returns false if one does already. Whatever the key waits for it
// waits for still, and a pause does not matter. The pool need not run.
func (p *Pool) Take(key parent.Key) bool { return p.queue.Take(key) }

// Done gives a key back that Take gave.
func (p *Pool) Done(key parent.Key) { p.queue.Done(key) }

// RetryFailed ends the backoff of every parent whose last sync failed with an error that matches; nil matches every error.
// Parents whose hook asked to be called later wait on. Match must not block nor call the pool.
func (p *Pool) RetryFailed(match func(error) bool) { p.queue.RetryFailed(match) }

// Run syncs keys until ctx ends, and returns when nothing that it started runs any more. A sync under way is given the grace
// time to end by itself, so that nothing is left half done. It must be called once at most.
func (p *Pool) Run(ctx context.Context) {
	defer p.config.Metrics.Expose()()
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer p.awaiting.Wait()
	defer cancel(nil)
	var workers sync.WaitGroup
	for range p.config.Workers {
		workers.Go(func() {
			for more := true; more; {
				// Only Ready and Failed can panic here; the key is done with, and synced again with its next event.
				_ = recovery.Call(work, "processing a key", func() error { more = p.processNextItem(work); return nil })
			}
		})
	}
	p.queue.Run(ctx)
	grace := p.config.Clock.NewTimer(p.config.Grace)
	defer grace.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		workers.Wait()
	}()
	select {
	case <-ended:
	case <-grace.C():
		cancel(context.Cause(ctx))
		<-ended
	}
}

// processNextItem syncs one key, and goes on with it as long as its syncs ask for that. It returns false when the queue is shut down.
func (p *Pool) processNextItem(ctx context.Context) bool {
	key, priority, ok := p.queue.Get()
	if !ok {
		return false
	}
	defer p.done(key)
	var why trigger.Begun
	if ready := p.config.Ready; ready != nil {
		p.queue.Hold(key, priority)
		if !ready(key) {
			return true
		}
		why = p.queue.Begin(key)
	}
	bound, release := p.brake.bind(ctx)
	defer release()
	if bound.Err() != nil {
		p.cut(bound, key, priority)
		return true
	}
	for sync := p.config.Sync; sync != nil; {
		began := p.config.Clock.Now()
		result, err := p.sync(bound, key, why, sync)
		sync, why = result.Next, result.Why
		if err != nil && p.cut(bound, key, priority) {
			return true
		}
		p.synced(ctx, key, result, err, p.config.Clock.Since(began))
	}
	return true
}

// cut reports whether a sync was cut short by a pause; then its key is queued again.
func (p *Pool) cut(bound context.Context, key parent.Key, priority Priority) bool {
	if !p.brake.cut(bound) {
		return false
	}
	p.queue.Add(key, priority)
	return true
}

// synced schedules what follows from a sync.
func (p *Pool) synced(ctx context.Context, key parent.Key, result Result, err error, took time.Duration) {
	if err != nil {
		p.retry(ctx, key, result, err, took)
		return
	}
	p.queue.Forget(key)
	p.wait(key, nil)
	p.Counters.Syncs.Add(1)
	p.config.Metrics.Synced(metrics.Succeeded, took)
	if p.failing.recovered(key) && p.config.Recovered != nil {
		p.config.Recovered(key)
	}
	if result.ResyncAfter > 0 {
		p.queue.AddAfter(key, result.ResyncAfter, Live)
	}
}

func (p *Pool) done(key parent.Key) {
	if p.queue.Done(key) {
		p.failing.recovered(key) // The parent left while its sync ended.
	}
	if p.config.Processed != nil {
		p.config.Processed()
	}
}

// sync calls a sync. A panic is its error.
func (p *Pool) sync(ctx context.Context, key parent.Key, why trigger.Begun, sync Sync) (result Result, err error) {
	err = recovery.Call(ctx, "syncing", func() (err error) {
		result, err = sync(ctx, key, why)
		return err
	})
	return result, err
}

func (p *Pool) retry(ctx context.Context, key parent.Key, result Result, err error, took time.Duration) {
	if ctx.Err() != nil {
		return // The controller is being stopped.
	}
	logger := klog.FromContext(ctx)
	f := classify(err)
	after := f.after
	if f.result != metrics.Postponed || f.passing != "" {
		times, last := p.queue.Failure(key)
		if f.passesAfter(last) {
			p.queue.Forget(key)
			times, last = 0, nil
		}
		f.follows(last, times+1)
		after = p.queue.Fail(key, f)
		if f.wait != nil && f.wait.Done != nil {
			p.await(ctx, key, f.wait)
		}
	}
	if f.after > 0 && f.after >= after {
		after = f.after
		p.queue.RetryAfter(key, after, Retry, f)
	}
	p.config.Metrics.Synced(f.result, took)
	if f.result != metrics.Failed {
		p.failing.remove(key)
	}
	p.failing.conflicted(key, f)
	switch f.result {
	case metrics.Postponed:
		logger.V(2).Info("Hook or API server asks to retry later", "parent", key, "after", after)
		return
	case metrics.Waiting:
		logger.V(4).Info("Sync has to wait", "parent", key, "reason", err.Error(), "retryAfter", after)
	default:
		p.Counters.Failed.Add(1)
		p.failing.add(Failed{Key: key, Time: p.config.Clock.Now(), Err: err})
		if _, last := p.queue.Failure(key); last == nil {
			p.failing.recovered(key) // It was forgotten meanwhile.
		}
		p.config.Metrics.SyncError(f.reason)
		logger.Error(err, "Sync failed", "parent", key, "retryAfter", after)
		p.config.Failed(ctx, key, err)
	}
	if result.ResyncAfter > 0 && result.ResyncAfter < after {
		p.queue.AddAfter(key, result.ResyncAfter, Retry)
	}
}

// await adds a key when what its last sync waits for is there.
func (p *Pool) await(ctx context.Context, key parent.Key, e *WaitError) {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiting{cancel}
	p.wait(key, w)
	p.awaiting.Go(func() {
		defer p.waited(key, w)
		done := false
		err := recovery.Call(ctx, "waiting for "+e.For, func() error { done = e.Done(ctx); return nil })
		if done && err == nil && ctx.Err() == nil {
			p.queue.AddBecause(key, Live, trigger.Of(v1alpha1.SyncWaitEnded))
		}
	})
}

// wait ends what a key waited for; it waits for w now, nil for nothing.
func (p *Pool) wait(key parent.Key, w *waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if former, ok := p.waits[key]; ok {
		former.cancel()
		delete(p.waits, key)
	}
	if w != nil {
		p.waits[key] = w
	}
}

// waited is called when waiting has ended.
func (p *Pool) waited(key parent.Key, w *waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.cancel()
	if p.waits[key] == w {
		delete(p.waits, key)
	}
}

// state returns the state of the queue for its metrics.
func (p *Pool) state() metrics.QueueState {
	var failing, waiting, postponed int
	s := p.queue.State(func(err error) {
		f, _ := err.(*failure) //nolint:errorlint // As it was given to the queue.
		switch f.result {
		case metrics.Waiting:
			waiting++
		case metrics.Postponed:
			postponed++
		default:
			failing++
		}
	})
	s.Failing, s.Waiting, s.Postponed = failing, waiting, postponed
	return s
}

// Retrying returns how many parents are to be synced again because their last sync failed or was asked to come later. It looks at all of
// them.
func (p *Pool) Retrying() (n int) {
	p.queue.State(func(err error) {
		if f, _ := err.(*failure); f.result != metrics.Waiting || f.later { //nolint:errorlint // As it was given to the queue.
			n++
		}
	})
	return n
}

// DefaultGrace is how long syncs that are under way may take after a controller is stopped, unless Config.Grace says otherwise.
// Then their context is canceled. Whoever stops controllers waits longer than that: cmd/metacontroller-apiserver/app adds a
// second to it, so that a canceled sync still ends before the API server that it writes to.
const DefaultGrace = 5 * time.Second

// Earliest returns the smaller of two times that are given; zero or less stands for none.
func Earliest(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
