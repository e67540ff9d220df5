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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	if f.result != metrics.Failed && f.at.Add(after).Sub(f.since) > patience {
		q.config.Waits(ctx, i.key, err, after)
	}
}

// patience is for how long nothing is reported of syncs that have to wait.
const patience = time.Minute

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
		// Failures say nothing of how long errors last that pass.
		if last != nil && f.passing != "" && f.result != metrics.Failed && last.result == metrics.Failed && last.passing == "" {
			i.failures, last = 0, nil
		}
		if i.failures++; last != nil && last.passing != "" && f.passing != "" && i.failures > maxPassing {
			f.fail(f.passing)
		}
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
	if f != nil && i.last != nil && i.last.result != metrics.Failed {
		f.since = i.last.since
	}
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

// A WaitError says that a sync could not be done yet, and that nothing has failed: a cache is not filled, or shows an older
// state than the API server has. It is retried without an event.
type WaitError struct {
	// For says what is waited for, for the log.
	For string
	// Done, if not nil, waits until it is there and returns true; the key is synced again at once then. It returns false when ctx ends:
	// with the queue, with the next sync that succeeds or has to wait, and when the key is forgotten.
	Done func(ctx context.Context) bool
}

// Error implements error.
func (e *WaitError) Error() string { return "waiting for " + e.For }

// postponer is implemented by errors that carry the time after which a call may be repeated (RFC 9110 §10.2.3).
type postponer interface {
	error
	// RetryAfter returns the time asked for. Zero or less means that none was given.
	RetryAfter() time.Duration
}

// reasoner is implemented by errors that name one of [metrics.Reasons].
type reasoner interface {
	error
	FailureReason() string
}

// apiError is an error of an API server.
type apiError interface {
	error
	apierrors.APIStatus
}

// failure is the error of a sync, and what it means.
type failure struct {
	err error
	// at is when the sync ended, and since when the first one of those in a row that had to wait.
	at, since time.Time
	// result is Failed if any of the error's leaves is a failure; else Postponed if a hook asked to be called later; else
	// Waiting.
	result metrics.Result
	// reason is that of the first leaf that is a failure.
	reason string
	// later says that a hook asked to be called later, and after is the longest time that one asked for.
	later bool
	after time.Duration
	// passing is the reason of the first leaf that is no failure unless it comes many times in a row: a conflict, or an API server
	// that asks for patience.
	passing string
	// wait is the first WaitError.
	wait *WaitError
}

// maxPassing is how many times in a row a sync ends with nothing but passing errors before they are reported.
const maxPassing = 8

// classify takes an error apart. What is to be waited for must not hide a failure beside it.
func classify(err error) *failure {
	f := &failure{err: err, at: time.Now(), result: metrics.Waiting}
	f.since = f.at
	f.add(err)
	return f
}

func (f *failure) add(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			f.add(each)
		}
		return
	}
	switch leaf := err.(type) { //nolint:errorlint // What is wrapped has its turn below.
	case *recovery.PanicError:
		f.fail(metrics.ReasonPanic)
		return
	case postponer:
		f.later = true
		if after := leaf.RetryAfter(); after > 0 {
			f.after = max(f.after, after)
			if f.result == metrics.Waiting {
				f.result = metrics.Postponed
			}
		}
		if status, ok := errors.AsType[apiError](err); ok {
			f.pass(string(status.Status().Reason))
		}
		return
	case *WaitError:
		if f.wait == nil {
			f.wait = leaf
		}
		return
	case apierrors.APIStatus:
		if apierrors.IsConflict(err) {
			f.pass(string(leaf.Status().Reason))
		} else {
			f.fail(string(leaf.Status().Reason))
		}
		return
	case reasoner:
		f.fail(leaf.FailureReason())
		return
	}
	if wrapped := errors.Unwrap(err); wrapped != nil {
		f.add(wrapped)
		return
	}
	f.fail(metrics.ReasonOther)
}

func (f *failure) pass(reason string) {
	if f.passing == "" {
		f.passing = reason
	}
}

func (f *failure) fail(reason string) {
	if f.result != metrics.Failed {
		f.result, f.reason = metrics.Failed, reason
	}
}
