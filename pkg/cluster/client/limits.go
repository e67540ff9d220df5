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

package client

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

const (
	// requestTimeout limits one request, from sending it to the end of its response. API servers give up after 60 s.
	requestTimeout = 90 * time.Second
	// maxRetryAfter is the longest time for which an API server can keep a caller waiting.
	maxRetryAfter = 30 * time.Second
	// maxWarnings is how many texts of warnings are remembered.
	maxWarnings = 1000
	// warningCode is the only code of warnings that API servers send.
	warningCode = 299
)

// A RetryLaterError says that the API server is overloaded or not ready, and wants the request to be sent again later. Client
// does not wait for that time, in which callers would hold what others need; they repeat the request, or what it is a part of.
type RetryLaterError struct {
	// After is the time to wait: greater than 0, at most 30 s.
	After time.Duration
	// Err is the error of the API server, one of package apierrors.
	Err error
}

// Error returns the API server's error with the time to wait.
func (e *RetryLaterError) Error() string { return e.Err.Error() + "; retry after " + e.After.String() }

// Unwrap returns the API server's error.
func (e *RetryLaterError) Unwrap() error { return e.Err }

// RetryAfter returns After, for callers that know only that an error may carry such a time.
func (e *RetryLaterError) RetryAfter() time.Duration { return e.After }

// Limiter returns what limits the requests to the cluster of config on this side, nil if its QPS is 0 or less. Without a burst it
// is that of client-go.
func Limiter(config *rest.Config) flowcontrol.RateLimiter {
	if config.RateLimiter != nil || config.QPS <= 0 {
		return config.RateLimiter
	}
	burst := config.Burst
	if burst <= 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(config.QPS, burst)
}

// warningHandler returns the one of config, or else one that logs.
func warningHandler(config *rest.Config) func(ctx context.Context, code int, agent, text string) {
	switch {
	case config.WarningHandlerWithContext != nil:
		return config.WarningHandlerWithContext.HandleWarningHeaderWithContext
	case config.WarningHandler != nil:
		return func(_ context.Context, code int, agent, text string) {
			config.WarningHandler.HandleWarningHeader(code, agent, text)
		}
	}
	return (&warningLog{seen: map[string]struct{}{}}).handle
}

// warningLog logs each warning once. It is safe for concurrent use.
type warningLog struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

func (l *warningLog) handle(ctx context.Context, code int, _, text string) {
	if code != warningCode || text == "" {
		return
	}
	l.mu.Lock()
	_, known := l.seen[text]
	if len(l.seen) >= maxWarnings {
		// Some texts name objects, so that there is no end of them.
		clear(l.seen)
	}
	l.seen[text] = struct{}{}
	l.mu.Unlock()
	if !known {
		klog.FromContext(ctx).Info("Warning of the API server", "warning", text)
	}
}
