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

package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// lock is the Lease as client-go's elector sees it, during one candidacy. The elector reads it when it wants to lead: that waits until the
// Lease can be taken, and hands out one that has expired as one that nobody holds. While the Lease is held, the term learns of each renewal.
//
// One goroutine uses it, that of the elector.
type lock struct {
	*resourcelock.LeaseLock

	config   *Config
	term     *term
	observed *observed
	// tried says that the Lease may have been written.
	tried bool
	// acquired is when the term began, as the Lease tells.
	acquired metav1.Time
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		record, raw, err := l.read(ctx)
		if err != nil {
			return nil, nil, err
		}
		l.observed.see(record)
		if l.term.begun() {
			if record.HolderIdentity != l.Identity() {
				l.term.end(ErrLost)
			}
			return record, raw, nil
		}
		if l.free() {
			// The elector takes what nobody holds at once. If it is renewed in between, the version that it writes is outdated.
			free := *record
			free.HolderIdentity = ""
			return &free, raw, nil
		}
		if !l.await(ctx) {
			// The candidacy ends, which is no error for the elector to log.
			return record, raw, nil
		}
	}
}

// free reports whether the Lease can be taken: nobody holds it, or a process that has ended, or this one from a term before, or it was not
// renewed in its time.
func (l *lock) free() bool {
	holder := l.observed.holder()
	return holder == "" || holder == l.config.Former || holder == l.Identity()
}

// request limits the time of a request. One that is under way when ctx ends has a moment to finish, so that it is known what it did.
func (l *lock) request(ctx context.Context) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.requestTimeout())
	ignore := context.AfterFunc(ctx, func() { time.AfterFunc(finishing, cancel) })
	return limited, func() {
		ignore()
		cancel()
	}
}

// finishing is how long a request may take after its candidacy has ended.
const finishing = time.Second

func (l *lock) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	record, raw, err := l.LeaseLock.Get(ctx)
	if apierrors.IsNotFound(err) {
		l.observed.see(&resourcelock.LeaderElectionRecord{})
		l.observed.hasRead(nil)
	} else {
		l.observed.hasRead(err)
	}
	return record, raw, err //nolint:wrapcheck // The elector tells NotFound from the others.
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.write(ctx, record, l.LeaseLock.Create)
	if apierrors.IsNotFound(err) && l.config.CreateNamespace != nil {
		if err := l.config.CreateNamespace(ctx); err != nil {
			l.observed.hasWritten(err)
			return err
		}
		return l.write(ctx, record, l.LeaseLock.Create)
	}
	return err
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.LeaseLock.Update)
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	ctx, cancel := l.request(ctx)
	defer cancel()
	requested := time.Now()
	l.tried = true
	if !l.term.begun() {
		l.acquired = metav1.NewTime(requested)
		record.RenewTime = l.acquired
	}
	// The elector took its time before Get waited, and has each renewal repeat that.
	record.AcquireTime = l.acquired
	err := write(ctx, record)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		l.observed.hasWritten(nil) // Another candidate was faster.
	} else {
		l.observed.hasWritten(err)
	}
	if err != nil {
		return err
	}
	l.observed.see(&record)
	l.term.renew(requested, record.LeaderTransitions)
	return nil
}

// release lets go of the Lease if this process holds it.
func (l *lock) release(ctx context.Context) error {
	record, _, err := l.read(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || record.HolderIdentity != l.Identity() {
		return err
	}
	now := metav1.Now()
	return l.LeaseLock.Update(ctx, resourcelock.LeaderElectionRecord{ //nolint:wrapcheck // The caller does.
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
}

// await waits until the Lease may be free, or for a while if it cannot be watched. It returns false when ctx ends.
func (l *lock) await(ctx context.Context) bool {
	watched, stop := context.WithCancel(ctx)
	defer stop()
	events, err := l.Client.Leases(l.LeaseMeta.Namespace).Watch(watched, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", l.LeaseMeta.Name).String(),
	})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot watch the Lease, which is read at intervals instead", "lease", l.Describe(), "err", err)
		return sleep(ctx, min(l.config.RetryPeriod, l.observed.remaining()))
	}
	defer events.Stop()
	for {
		var event watch.Event
		var ok bool
		select {
		case <-ctx.Done():
			return false
		case <-time.After(l.observed.remaining()):
			return true
		case event, ok = <-events.ResultChan():
		}
		lease, isLease := event.Object.(*coordinationv1.Lease)
		if !ok || !isLease {
			// The API server has ended the watch. One that does so at once must not be asked without a pause.
			return sleep(ctx, min(l.config.RetryPeriod, l.observed.remaining()))
		}
		if event.Type == watch.Deleted {
			return true
		}
		l.observed.see(resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec))
		if l.free() {
			return true
		}
	}
}

// sleep returns false when ctx ends before the time is over.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// observed is what this process knows of the Lease. It is safe for concurrent use.
type observed struct {
	mu     sync.Mutex
	record resourcelock.LeaderElectionRecord
	since  time.Time
	// reading and writing are why the last read and the last write failed, nil if they did not.
	reading, writing error
}

func (o *observed) hasRead(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading = err
}

func (o *observed) hasWritten(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = err
}

// failure returns why the Lease could not be read or, if it could, not be written.
func (o *observed) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.reading, o.writing)
}

// see takes note of the state of the Lease. An unchanged one expires when it would have.
func (o *observed) see(record *resourcelock.LeaderElectionRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || !same(&o.record, record) {
		o.record, o.since = *record, time.Now()
	}
}

func same(a, b *resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity && a.LeaseDurationSeconds == b.LeaseDurationSeconds &&
		a.LeaderTransitions == b.LeaderTransitions && a.RenewTime.Equal(&b.RenewTime)
}

// holder returns who holds the Lease, empty if nobody does.
func (o *observed) holder() string {
	if o.remaining() <= 0 {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.HolderIdentity
}

// remaining is the time until the Lease expires if it is not renewed. It is negative if it has, or if nobody held it.
func (o *observed) remaining() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	lasts := time.Duration(o.record.LeaseDurationSeconds) * time.Second
	if o.record.HolderIdentity == "" {
		lasts = 0
	}
	return lasts - time.Since(o.since)
}

// ErrLost is the cause of the end of a term whose Lease was not renewed in time, or was taken by another candidate.
var ErrLost = errors.New("the Lease was lost")

// term is the time during which a candidate holds the Lease. It begins with the first renewal, ends once, and never begins again.
type term struct {
	// limit is how long the Lease counts as held after it was renewed.
	limit time.Duration
	// over ends with the term. Its cause is ErrLost if the Lease was lost.
	over context.Context
	end  context.CancelCauseFunc

	mu sync.Mutex
	// renewed is when the last renewal was requested, zero before the first one.
	renewed time.Time
	// transitions is the number of the term among all that the Lease has seen.
	transitions int
	// alarm ends the term when it is not renewed.
	alarm *time.Timer
}

// newTerm returns a term that has not begun, and is over when ctx ends.
func newTerm(ctx context.Context, limit time.Duration) *term {
	t := &term{limit: limit}
	t.over, t.end = context.WithCancelCause(ctx)
	return t
}

// renew takes note of a renewal that succeeded and was requested at a time. The first one begins the term.
func (t *term) renew(requested time.Time, transitions int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over.Err() != nil {
		return
	}
	switch {
	case t.renewed.IsZero():
		t.transitions = transitions
		t.alarm = time.AfterFunc(t.limit-elapsed(requested), t.check)
		context.AfterFunc(t.over, func() { t.alarm.Stop() })
	case transitions != t.transitions || elapsed(t.renewed) >= t.limit:
		// Another one may have held the Lease in between.
		t.end(ErrLost)
		return
	default:
		t.alarm.Reset(t.limit - elapsed(requested))
	}
	t.renewed = requested
}

// begun reports whether the Lease was ever held.
func (t *term) begun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.renewed.IsZero()
}

// holds reports whether the Lease is held at this moment. It asks the clock, since a process that was stopped is not told of its alarms at
// once.
func (t *term) holds() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.renewed.IsZero() || t.over.Err() != nil {
		return false
	}
	if elapsed(t.renewed) >= t.limit {
		t.end(ErrLost)
		return false
	}
	return true
}

func (t *term) check() { t.holds() }

// elapsed is the time since a moment by the monotonic clock or by that of the wall, whichever says more: the former stands still while a
// machine is suspended, and the latter may be set back.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
