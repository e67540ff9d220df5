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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A WaitError says that a sync could not be done yet, through nobody's fault: a cache is not filled, or shows an older
// state than the API server has. It is retried without an event.
type WaitError struct {
	// For says what is waited for, for the log.
	For string
	// Done, if not nil, waits until it is there, or ctx ends, and then returns false. The key is synced again at once then.
	Done func(ctx context.Context) bool
}

// Error implements error.
func (e *WaitError) Error() string { return "waiting for " + e.For }

// failure is what an error means to the loop.
type failure int

const (
	// failed is reported with an event and retried with backoff.
	failed failure = iota
	// waiting is retried with backoff, silently.
	waiting
	// postponed is retried after the time that the hook asked for, silently.
	postponed
	// abandoned is not retried: the controller is being stopped.
	abandoned
)

// postponer is implemented by errors that carry the time after which a call may be repeated (RFC 9110 §10.2.3).
type postponer interface {
	error
	// RetryAfter returns the time asked for. Zero or less means that none was given.
	RetryAfter() time.Duration
}

func classify(ctx context.Context, err error) (failure, time.Duration) {
	if ctx.Err() != nil {
		return abandoned, 0
	}
	if later, ok := errors.AsType[postponer](err); ok {
		if after := later.RetryAfter(); after > 0 {
			return postponed, after
		}
		return waiting, 0
	}
	if _, ok := errors.AsType[*WaitError](err); ok || onlyStale(err) {
		return waiting, 0
	}
	return failed, 0
}

// onlyStale reports whether err consists of conflicts of versions alone: somebody else wrote the object first, and the
// next sync sees what they wrote.
func onlyStale(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			if !onlyStale(each) {
				return false
			}
		}
		return true
	}
	if apierrors.IsConflict(err) {
		return true
	}
	if wrapped := errors.Unwrap(err); wrapped != nil {
		return onlyStale(wrapped)
	}
	return false
}
