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

package world

import (
	"errors"
	"fmt"
	"strings"
	"testing/synctest"
	"time"
)

// retryPace is how many requests and hook calls a minute a few parents make whose errors last, and which are resynced with the others: each
// is retried within five minutes, so that the pauses between resyncs are not quiet.
const retryPace = 50

// ErrRestless says that a world does not come to rest.
var ErrRestless = errors.New("it does not come to rest")

// Advance lets a time pass, in which the engines run and nothing is released.
func (w *World) Advance(d time.Duration) {
	w.idle(d, false)
	if w.options.Trace {
		w.trace = append(w.trace, Entry{w.Now(), "time", d.String() + " have passed"})
	}
}

// Idle lets time pass until something is pending, at most the limit. It returns whether something is.
func (w *World) Idle(limit time.Duration) bool { return w.idle(limit, true) }

// idle lets time pass, until something is pending if it shall stop then.
func (w *World) idle(limit time.Duration, stop bool) bool {
	end := w.Now() + limit
	for {
		ready := len(w.ready()) > 0
		now := w.Now()
		if ready && stop || now >= end {
			return ready
		}
		next := end
		w.mu.Lock()
		for _, i := range w.items {
			if i.due > now {
				next = min(next, i.due)
			}
		}
		w.mu.Unlock()
		select {
		case <-w.activity: // Of before.
		default:
		}
		w.timer.Reset(next - now)
		select {
		case <-w.timer.C:
		case <-w.activity:
			w.timer.Stop()
		}
		synctest.Wait()
	}
}

// Settle releases all that is pending, without faults, collects garbage, and lets time pass, until nothing has become pending for
// [Options.Quiet], or until the limit if no more happens than retries of errors that last. The error, an [ErrRestless], says that this
// took longer, or more than [Options.Requests].
func (w *World) Settle(limit time.Duration) error {
	end, requests := w.Now()+limit, w.requests
	for {
		collected := w.API.Collect() || w.options.Collect != nil && w.options.Collect()
		ready := w.ready()
		for _, i := range ready {
			w.release(i, Fault{})
		}
		if len(ready) > 0 || collected {
			if w.requests-requests > w.options.Requests {
				return fmt.Errorf("%w: %d requests and hook calls in %s, the last ones:\n%s", ErrRestless, w.requests-requests, w.Now()-end+limit, w.last())
			}
			continue
		}
		if !w.Idle(w.options.Quiet) {
			return nil
		}
		if w.Now() > end {
			if float64(w.requests-requests) < retryPace*limit.Minutes() {
				return nil
			}
			return fmt.Errorf("%w: something is pending after %s still:\n%s", ErrRestless, limit, w.last())
		}
	}
}

// last describes what is pending, and what happened last if that is known.
func (w *World) last() string {
	var b strings.Builder
	for _, p := range w.Pending() {
		fmt.Fprintln(&b, "pending:", p)
	}
	PrintTrace(&b, w.trace[max(0, len(w.trace)-60):])
	return b.String()
}
