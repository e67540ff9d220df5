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
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
)

// Result is what a sync that succeeded asks of the loop.
type Result struct {
	// ResyncAfter is the time after which the parent is synced again even if nothing changes. Zero or less: never.
	ResyncAfter time.Duration
}

// Config describes a loop. All fields but Clock, Grace and Ready are required.
type Config struct {
	// Name names the hosted controller in logs and metrics.
	Name string
	// Workers is the number of keys that are synced at the same time. At least 1.
	Workers int
	// Sync brings one parent to its desired state. It is never called for one key by two goroutines at once.
	Sync func(ctx context.Context, key parent.Key) (Result, error)
	// Ready reports whether a key may be synced now. If it returns false it calls wake once it may, from any goroutine.
	// Nil: always.
	Ready func(key parent.Key, wake func()) bool
	// Failed reports an error that is retried with backoff: an event, usually.
	Failed func(key parent.Key, err error)
	// Counters are counted up.
	Counters *Counters
	// Grace is how long a sync that is under way may go on after Run's context ended. Default 5 s.
	Grace time.Duration
	// Clock is the time source. Default: the real one.
	Clock clock.WithTicker
}

// Loop is the running work of one hosted controller.
type Loop struct {
	config Config
	queue  *workqueue.Queue[parent.Key]
	// waiting are the keys for which a WaitError waits.
	waiting  sync.Map
	awaiting sync.WaitGroup
}

// New returns a loop. Keys may be enqueued at once; nothing is synced before Run.
func New(c Config) *Loop {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	return &Loop{config: c, queue: workqueue.New[parent.Key](workqueue.Options{Clock: c.Clock})}
}

// Enqueue asks for a sync of key.
func (l *Loop) Enqueue(key parent.Key, p workqueue.Priority) { l.queue.Add(key, p) }

// EnqueueAfter asks for a sync of key after a while. The earliest of several requests counts.
func (l *Loop) EnqueueAfter(key parent.Key, after time.Duration, p workqueue.Priority) {
	l.queue.AddAfter(key, after, p)
}

// Forget drops all that is pending for a parent that is gone.
func (l *Loop) Forget(key parent.Key) { l.queue.Remove(key) }

// RetryFailed asks at once for a sync of every parent whose last one failed, instead of after its backoff. Parents whose hook
// asked for patience go on waiting.
func (l *Loop) RetryFailed() { l.queue.RetryFailed() }

// Run syncs keys until ctx ends, and returns when no sync is under way any more. A sync under way is given the grace
// time to end by itself, so that nothing is left half done.
func (l *Loop) Run(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer l.awaiting.Wait()
	defer cancel()
	var workers sync.WaitGroup
	for range l.config.Workers {
		workers.Go(func() {
			for l.next(work) {
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	grace := l.config.Clock.NewTimer(l.config.Grace)
	defer grace.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		workers.Wait()
	}()
	select {
	case <-ended:
	case <-grace.C():
		cancel()
		<-ended
	}
}

// next syncs one key. It returns false when the queue is shut down.
func (l *Loop) next(ctx context.Context) bool {
	key, urgency, ok := l.queue.Get()
	if !ok {
		return false
	}
	defer l.queue.Done(key)
	if ready := l.config.Ready; ready != nil {
		l.queue.Hold(key, urgency)
		if !ready(key, func() { l.queue.Release(key) }) {
			return true
		}
		l.queue.Begin(key)
	}
	result, err := l.sync(ctx, key)
	if err == nil {
		l.queue.Forget(key)
		l.config.Counters.Syncs.Add(1)
		if result.ResyncAfter > 0 {
			l.queue.AddAfter(key, result.ResyncAfter, workqueue.Live)
		}
		return true
	}
	l.retry(ctx, key, result, err)
	return true
}

func (l *Loop) retry(ctx context.Context, key parent.Key, result Result, err error) {
	logger := klog.FromContext(ctx)
	kind, after := classify(ctx, err)
	switch kind {
	case abandoned:
		return
	case postponed:
		logger.V(2).Info("Hook asks to be called later", "parent", key, "after", after)
		l.queue.RetryAfter(key, after, workqueue.Retry)
		return
	case waiting:
		after = l.queue.Fail(key)
		if wait, ok := errors.AsType[*WaitError](err); ok && wait.Done != nil {
			l.await(ctx, key, wait)
		}
		logger.V(4).Info("Sync has to wait", "parent", key, "reason", err.Error(), "retryAfter", after)
	case failed:
		after = l.queue.Fail(key)
		l.config.Counters.Failed.Add(1)
		logger.Error(err, "Sync failed", "parent", key, "retryAfter", after)
		l.config.Failed(key, err)
	}
	if result.ResyncAfter > 0 && result.ResyncAfter < after {
		l.queue.AddAfter(key, result.ResyncAfter, workqueue.Retry)
	}
}

// await adds a key when what its sync waits for is there.
func (l *Loop) await(ctx context.Context, key parent.Key, wait *WaitError) {
	if _, already := l.waiting.LoadOrStore(key, struct{}{}); already {
		return
	}
	l.awaiting.Go(func() {
		defer l.waiting.Delete(key)
		if wait.Done(ctx) {
			l.queue.Add(key, workqueue.Live)
		}
	})
}

// sync calls the sync function and turns a panic into an error: one parent must never stop the process.
func (l *Loop) sync(ctx context.Context, key parent.Key) (result Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			klog.FromContext(ctx).Error(nil, "Sync panicked", "parent", key, "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error while syncing: %v", cause)
		}
	}()
	return l.config.Sync(ctx, key)
}
