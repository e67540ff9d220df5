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

package hooks

import (
	"context"
	"errors"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

const (
	// failingAfter is how long all calls of a hook must have failed before it counts as failing: one call that fails, and succeeds when it
	// is repeated, says nothing. A hook that only asks for patience is given postponedAfter.
	failingAfter   = 500 * time.Millisecond
	postponedAfter = time.Minute
	// maxRow is how many parents are remembered with which calls have failed in a row.
	maxRow = 16
	// maxCause bounds the texts of causes, which may hold what a hook returned.
	maxCause = 400
)

// Failing is a hook of which all calls have failed for a while, or whose credentials cannot be used.
type Failing struct {
	// Hook says which hook it is.
	Hook hook.Name
	// Since is when the first of these calls failed.
	Since time.Time
	// Cause is why they failed, and what to do. It has at most some hundred bytes. Where calls fail for each parent in other words it is that
	// of one parent, and stays that of this one.
	Cause string
	// Credentials says that a Secret or ConfigMap is missing or cannot be used.
	Credentials bool
	// Unreachable says that the cause concerns all calls, whatever they are about.
	Unreachable bool
}

// Failing returns the hooks that are failing now.
func (s *Set) Failing() []Failing {
	var list []Failing
	for _, h := range s.declared() {
		if f, failing := h.failing(time.Now()); failing {
			list = append(list, f)
		}
	}
	return list
}

// Called reports whether a call of any hook has ended.
func (s *Set) Called() bool {
	return slices.ContainsFunc(s.declared(), func(h *Hook) bool { return h.made.any() })
}

// Statuses returns how the calls of the declared hooks have gone.
func (s *Set) Statuses() []v1alpha1.HookStatus {
	var list []v1alpha1.HookStatus
	for _, h := range s.declared() {
		list = append(list, h.status())
	}
	return list
}

// Check finds out, without a call, why no call of a hook can succeed now: it reads the credentials of webhooks, and compiles inline hooks if the
// kinds have changed that they are about. It reports whether all is well; a hook of which it is not counts as failing.
func (s *Set) Check(ctx context.Context) bool {
	usable := true
	for _, h := range s.declared() {
		known, err := h.client.Check(ctx)
		if !known {
			continue
		}
		if ctx.Err() != nil && err != nil {
			return false // Nothing is known.
		}
		h.made.checked(err)
		usable = usable && err == nil
	}
	return usable
}

// statistics are what is known of the calls of one hook, in memory of a fixed size. They are safe for concurrent use; the zero value is
// ready.
type statistics struct {
	mu    sync.Mutex
	calls int64
	times times

	lastSuccess, lastFailure time.Time
	// err is the error of the last failure, also of one that is over.
	err error
	// since is when the first of the failures in a row began, zero if the last call succeeded. patient says that in all of them the
	// hook asked to be called later.
	since   time.Time
	patient bool
	// row are the parents of the failures in a row that are not gone, and more says that there may be others.
	row  []webhook.RootKey
	more bool
	// cause is the error that is shown of the failures in a row, and about is its parent; the zero value is that of none.
	cause error
	about webhook.RootKey
	// credentials is why the credentials cannot be used, or a *CompileError; nil if nothing is known against them.
	credentials      error
	credentialsSince time.Time
}

// called counts a call. One that succeeded is counted by succeeded or failed, too, once it is known whether its response can be used.
// A call that was not made, because other calls took all room, is none: it says nothing of the hook.
func (s *statistics) called(parent webhook.RootKey, took time.Duration, err error) {
	if e, ok := errors.AsType[*webhook.CallError](err); ok && e.NoRoom {
		return
	}
	s.mu.Lock()
	credentials, missing := errors.AsType[*webhook.CredentialsError](err)
	if missing {
		s.setCredentials(credentials)
	} else {
		if _, wrong := errors.AsType[*CompileError](s.credentials); !wrong { // The former program may be called.
			s.credentials = nil
		}
		s.calls++
		s.times.add(time.Now(), took)
	}
	s.mu.Unlock()
	if err != nil {
		s.failed(parent, err)
	}
}

func (s *statistics) succeeded() {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSuccess, s.since = now, time.Time{}
}

func (s *statistics) failed(parent webhook.RootKey, err error) {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
		return // The controller is being stopped.
	}
	_, later := errors.AsType[*webhook.RetryLaterError](err)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since, s.patient, s.cause, s.row, s.more = now, true, nil, s.row[:0], false
	}
	switch {
	case slices.Contains(s.row, parent):
	case len(s.row) < maxRow:
		s.row = append(s.row, parent)
	default:
		s.more = true
	}
	// What concerns one parent is shown until that parent fails in other words: whoever waits for the condition is not told another
	// parent's error with each retry. What concerns all calls is shown at once.
	if s.cause == nil || s.about == parent || s.about == (webhook.RootKey{}) || unreachable(err) || unreachable(s.cause) {
		s.cause, s.about = err, parent
	}
	s.lastFailure, s.err = now, err
	s.patient = s.patient && later
}

// forget drops a parent that is gone: the error of another one is shown when it fails next. If calls have failed for those alone that are gone,
// and not for a cause that concerns all calls, nothing is known against the hook any more.
func (s *statistics) forget(parent webhook.RootKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about == parent {
		s.about = webhook.RootKey{}
	}
	s.row = slices.DeleteFunc(s.row, func(failed webhook.RootKey) bool { return failed == parent })
	if _, missing := errors.AsType[*webhook.CredentialsError](s.err); len(s.row) == 0 && !s.more && !missing && !unreachable(s.err) {
		s.since = time.Time{}
	}
}

// checked notes whether the credentials can be used.
func (s *statistics) checked(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.setCredentials(err)
		return
	}
	s.credentials = nil
	if _, ok := errors.AsType[*webhook.CredentialsError](s.err); ok {
		s.since = time.Time{} // It is known again with the next call.
	}
}

// setCredentials is called with the lock held.
func (s *statistics) setCredentials(err error) {
	if s.credentials == nil {
		s.credentialsSince = time.Now()
	}
	s.credentials = err
}

func (s *statistics) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lastSuccess.IsZero() || !s.lastFailure.IsZero()
}

func (h *Hook) failing(now time.Time) (Failing, bool) {
	s := &h.made
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := failingAfter
	if s.patient {
		limit = postponedAfter
	}
	switch {
	case s.credentials != nil:
		compile, wrong := errors.AsType[*CompileError](s.credentials)
		return Failing{
			Hook: h.Name, Since: s.credentialsSince, Cause: h.explain(s.credentials), Credentials: !wrong, Unreachable: !wrong || !compile.Runs,
		}, now.Sub(s.credentialsSince) >= failingAfter
	case s.since.IsZero() || now.Sub(s.since) < limit:
		return Failing{}, false
	}
	return Failing{Hook: h.Name, Since: s.since, Cause: h.explain(s.cause), Unreachable: unreachable(s.err)}, true
}

// unreachable reports whether an error says that no call can succeed, whichever parent it is about.
func unreachable(err error) bool {
	if e, ok := errors.AsType[*webhook.CallError](err); ok {
		return !e.Connected
	}
	if e, ok := errors.AsType[*webhook.StatusError](err); ok {
		// So says a proxy for a hook that it does not reach.
		return e.Code == http.StatusBadGateway || e.Code == http.StatusServiceUnavailable || e.Code == http.StatusGatewayTimeout
	}
	if _, ok := errors.AsType[*CompileError](err); ok {
		return true
	}
	_, ok := errors.AsType[*webhook.RetryLaterError](err)
	return ok
}

// explain returns the cause of a failure, and what to do.
func (h *Hook) explain(err error) string {
	if text, ok := webhook.Explained(err); ok {
		return webhook.Shorten(text, maxCause)
	}
	// It becomes a part of a sentence: what a hook returned may have many lines.
	said := strings.Join(strings.Fields(err.Error()), " ")
	text, advice := "calling "+h.client.Endpoint()+": "+webhook.Shorten(said, maxCause), "see the log of the hook"
	if _, ok := h.client.(*evaluated); ok {
		text, advice = webhook.Shorten(said, maxCause), "correct the expression, or the objects that it reads"
	}
	if compile, ok := errors.AsType[*CompileError](err); ok {
		advice = compile.advice()
	} else if _, ok := errors.AsType[*webhook.CredentialsError](err); ok {
		text, advice = webhook.Shorten(err.Error(), maxCause), "the hook is called as soon as it is there"
	} else if hook.IsRejected(err) {
		advice = "correct the response of the hook"
	} else if _, ok := errors.AsType[*webhook.RetryLaterError](err); ok {
		advice = "the hook, or a proxy before it, is overloaded or not ready"
	}
	return text + "; " + advice
}

func (h *Hook) status() v1alpha1.HookStatus {
	s := &h.made
	s.mu.Lock()
	defer s.mu.Unlock()
	status := v1alpha1.HookStatus{
		Name: string(h.Name), Calls: s.calls, LastSuccessTime: timeOf(s.lastSuccess), LastFailureTime: timeOf(s.lastFailure),
		P50Milliseconds: s.times.quantile(50), P99Milliseconds: s.times.quantile(99),
	}
	if s.err != nil {
		status.LastFailure = h.explain(s.err)
	}
	return status
}

// timeOf returns a time as the API has it, nil for the zero time.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

const (
	// period is how long calls are counted together. Quantiles are of the present period and the one before.
	period = 2 * time.Minute
	// steps is how many buckets there are for each doubling of the time, so that a quantile is right to a quarter of its value.
	steps = 4
	// doublings is how many there are from a microsecond to more than an hour.
	doublings = 32
)

// times are how long calls took, in memory of a fixed size. They are not safe for concurrent use; the zero value is ready.
type times struct {
	began           time.Time
	present, former [doublings * steps]uint32
}

// add counts a call that ended at a time.
func (t *times) add(now time.Time, took time.Duration) {
	switch age := now.Sub(t.began); {
	case age < period:
	case age < 2*period:
		t.began, t.former = now, t.present
		t.present = [doublings * steps]uint32{}
	default:
		*t = times{began: now}
	}
	t.present[bucket(took)]++
}

// bucket returns the bucket of a time: its doubling, and the first two bits after the leading one.
func bucket(took time.Duration) int {
	n := uint64(max(took.Microseconds(), steps))
	doubling := bits.Len64(n) - 1
	return min(doubling*steps+int(n>>(doubling-2)&(steps-1)), doublings*steps-1)
}

// end returns the time at which a bucket ends.
func end(bucket int) time.Duration {
	doubling, step := bucket/steps, bucket%steps
	return time.Duration(steps+step+1) << doubling / steps * time.Microsecond
}

// quantile returns the milliseconds, rounded up, within which a share of the calls ended; nil without calls.
func (t *times) quantile(percent uint64) *int64 {
	var all uint64
	for i := range t.present {
		all += uint64(t.present[i]) + uint64(t.former[i])
	}
	if all == 0 {
		return nil
	}
	rank := (all*percent + 99) / 100
	var seen uint64
	for i := range t.present {
		if seen += uint64(t.present[i]) + uint64(t.former[i]); seen >= rank {
			return new(int64((end(i) + time.Millisecond - 1) / time.Millisecond))
		}
	}
	return nil
}
