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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// synced notes how a sync ended, and schedules what follows.
func (q *Queue) synced(ctx context.Context, i *item, result Result, err error, took time.Duration) {
	if err != nil {
		q.failed(ctx, i, result, err, took)
		return
	}
	recovered := q.succeeded(i, result)
	q.Counters.Syncs.Add(1)
	q.config.Metrics.Synced(metrics.Succeeded, took)
	if recovered {
		q.config.Recovered(i.key)
	}
}

// succeeded notes that a sync succeeded, and returns whether an error was reported before.
func (q *Queue) succeeded(i *item, result Result) (recovered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	recovered = i.reported
	q.ended(i, nil)
	if result.ResyncAfter > 0 {
		q.addAfter(i, result.ResyncAfter, Live)
	}
	return recovered
}

func (q *Queue) failed(ctx context.Context, i *item, result Result, err error, took time.Duration) {
	if ctx.Err() != nil {
		return // The controller is being stopped.
	}
	f := classify(err)
	after := q.retry(ctx, i, f, result)
	q.config.Metrics.Synced(f.result, took)
	logger := klog.FromContext(ctx)
	switch f.result {
	case metrics.Postponed:
		logger.V(2).Info("Hook or API server asks to retry later", "parent", i.key, "after", after)
	case metrics.Waiting:
		logger.V(4).Info("Sync has to wait", "parent", i.key, "reason", err.Error(), "retryAfter", after)
	default:
		q.Counters.Failed.Add(1)
		q.config.Metrics.SyncError(f.reason)
		logger.Error(err, "Sync failed", "parent", i.key, "retryAfter", after)
		q.config.Failed(ctx, i.key, err)
	}
}

// retry notes that a sync ended with an error, and asks for another one at priority Retry: after a back-off that doubles with each failure in a row,
// or after the time for which a hook or the API server asks. It returns how long that is; 0 when the key was added in the meantime.
func (q *Queue) retry(ctx context.Context, i *item, f *failure, result Result) (after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i.removed {
		return 0
	}
	if f.result != metrics.Postponed || f.passing != "" {
		last := i.last
		if f.passesAfter(last) {
			i.failures, last = 0, nil
		}
		i.failures++
		f.follows(last, i.failures)
		after = backoff(i.failures, q.config.Random)
		if f.wait != nil && f.wait.Done != nil {
			q.await(ctx, i, f.wait)
		}
	}
	q.ended(i, f)
	q.metrics.Retried()
	if i.again != none {
		return 0
	}
	i.backsOff, after = f.after < after, max(f.after, after)
	i.retryAt = q.after(after)
	q.schedule(i)
	if f.result != metrics.Postponed && result.ResyncAfter > 0 && result.ResyncAfter < after {
		q.addAfter(i, result.ResyncAfter, Retry)
	}
	return after
}

// ended notes the error of the last sync of an item; nil if it succeeded, or if its parent is gone. It is called with the lock held.
func (q *Queue) ended(i *item, f *failure) {
	i.last = f
	fails := f != nil && f.result == metrics.Failed
	switch {
	case f == nil:
		i.failures, i.conflicts, i.reported = 0, 0, false
		i.stopsWaiting(nil)
	case fails:
		i.conflicts, i.reported = 0, true
	case f.passing == string(metav1.StatusReasonConflict):
		i.conflicts++
	}
	switch {
	case fails && i.failing == nil:
		i.failing = q.failing.PushBack(i)
	case !fails && i.failing != nil:
		q.failing.Remove(i.failing)
		i.failing = nil
	}
}

// await adds an item when what its last sync waits for is there. It is called with the lock held.
func (q *Queue) await(ctx context.Context, i *item, e *WaitError) {
	ctx, stop := context.WithCancel(ctx)
	i.stopsWaiting(stop)
	q.waiting.Go(func() {
		defer stop()
		done := false
		err := recovery.Call(ctx, "waiting for "+e.For, func() error { done = e.Done(ctx); return nil })
		q.mu.Lock()
		defer q.mu.Unlock()
		if done && err == nil && ctx.Err() == nil {
			q.add(i, Live, history.Of(v1alpha1.SyncWaitEnded))
		}
	})
}

// stopsWaiting ends the wait of before. Stop ends the one that begins; nil for none.
func (i *item) stopsWaiting(stop context.CancelFunc) {
	if i.stopWaiting != nil {
		i.stopWaiting()
	}
	i.stopWaiting = stop
}
