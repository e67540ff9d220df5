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
	"context"
	"errors"
	"sync"
	"time"
)

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
