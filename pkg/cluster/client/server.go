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
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/scratch"
)

const (
	// maxRetries is how often a request is sent again at once because the API server wants that, as in client-go.
	maxRetries = 10
	// maxErrorText is how much is shown of an error that is no Status, in bytes.
	maxErrorText = 2 << 10
)

// server sends requests to an API server.
//
// It stands in for client-go's rest.Request, which took a third of the memory that a sync allocates: that one builds the URL
// several times, copies its headers, and reads each response into a buffer of its own. What callers and operators see is the same:
// the transport with its credentials, the errors, the limit of requests, the warnings, the metrics. A Retry-After is not waited
// for, see [RetryLaterError].
type server struct {
	http *http.Client
	base url.URL
	// limiter is nil if there is no limit.
	limiter flowcontrol.RateLimiter
	warn    func(ctx context.Context, code int, agent, text string)
	// headers by content type. They are shared by all requests, and never written.
	headers map[string]http.Header
	// observe is nil unless somebody else is impersonated who wants to know.
	observe func(ctx context.Context, r Request, err error)
}

// call is one request.
type call struct {
	method string
	target Target
	// query is encoded.
	query string
	// contentType and body are empty for a request without a body.
	contentType string
	body        []byte
}

// applies reports whether the call is a server-side apply.
func (c *call) applies() bool { return c.contentType == string(types.ApplyPatchType) }

func newServer(config *rest.Config) (*server, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing connections: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	s := &server{
		http: httpClient, base: *base, limiter: Limiter(config), warn: warningHandler(config), headers: map[string]http.Header{},
	}
	s.base.Path = strings.TrimSuffix(s.base.Path, "/")
	userAgent := cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
	for _, contentType := range []string{
		"", runtime.ContentTypeJSON,
		string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyPatchType),
	} {
		header := http.Header{"Accept": {runtime.ContentTypeJSON}, "User-Agent": {userAgent}}
		if contentType != "" {
			header.Set("Content-Type", contentType)
		}
		s.headers[contentType] = header
	}
	return s, nil
}

// do sends a request, and calls read, if it is not nil, with the body of a response that is no error. The body is valid during the
// call only. Errors of the API server are those of package apierrors, or a RetryLaterError with one of them.
func (s *server) do(ctx context.Context, c call, read func(body []byte) error) error {
	u := s.base
	u.Path, u.RawQuery = c.target.path(s.base.Path), c.query
	start := time.Now()
	defer func() { metrics.RequestLatency.Observe(ctx, c.method, u, time.Since(start)) }()
	// failed says that an API server has failed, which leaves open what it has done before.
	failed := false
	for attempt := 0; ; attempt++ {
		if s.limiter != nil {
			waiting := time.Now()
			err := s.limiter.Wait(ctx)
			metrics.RateLimiterLatency.Observe(ctx, c.method, u, time.Since(waiting))
			if err != nil {
				return fmt.Errorf("waiting for the client's limit of requests: %w", err)
			}
		}
		again, err := s.once(ctx, c, &u, attempt, read)
		s.observed(ctx, c, err)
		switch {
		case again > 0:
			return repeated(failed, &RetryLaterError{After: min(again, maxRetryAfter), Err: err})
		case again < 0 || attempt == maxRetries || ctx.Err() != nil:
			return repeated(failed, err)
		}
		failed = failed || !apierrors.IsTooManyRequests(err)
		klog.FromContext(ctx).V(4).Info("The API server wants the request to be sent again at once", "attempt", attempt+1, "path", u.Path)
	}
}

// once sends a request within requestTimeout. It returns after how long the API server wants it to be sent again, and less than 0 if
// it does not.
func (s *server) once(outer context.Context, c call, u *url.URL, attempt int, read func([]byte) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(outer, requestTimeout)
	defer cancel()
	request := (&http.Request{
		Method: c.method, URL: u, Host: u.Host, Header: s.headers[c.contentType],
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body := c.body; len(body) > 0 {
		request.ContentLength = int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body, _ = request.GetBody()
		metrics.RequestSize.Observe(ctx, c.method, u.Host, float64(len(body)))
	}
	response, err := s.http.Do(request)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	metrics.RequestResult.Increment(ctx, code, c.method, u.Host)
	if attempt > 0 {
		metrics.RequestRetry.IncrementRetry(ctx, code, c.method, u.Host)
	}
	if err != nil {
		return -1, explain(outer, ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // Nothing depends on it.

	buffer := scratch.Borrow()
	defer scratch.Return(buffer)
	if response.ContentLength > 0 {
		buffer.Grow(int(response.ContentLength) + bytes.MinRead)
	}
	if _, err := buffer.ReadFrom(response.Body); err != nil {
		return -1, explain(outer, ctx, fmt.Errorf("%w to %s %s: %w", ErrUnread, c.method, u.Path, err))
	}
	if len(response.Header["Warning"]) > 0 {
		warnings, _ := utilnet.ParseWarningHeaders(response.Header["Warning"])
		for _, w := range warnings {
			s.warn(outer, w.Code, w.Agent, w.Text)
			collect(outer, w.Code, w.Text)
		}
	}
	metrics.ResponseSize.Observe(ctx, c.method, u.Host, float64(buffer.Len()))
	if response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent {
		return failure(c, response, buffer.Bytes())
	}
	if read == nil {
		return -1, nil
	}
	return -1, read(buffer.Bytes())
}

// explain says of an error whether it is due to the time limit of ctx, which is outer with that limit.
func explain(outer, ctx context.Context, err error) error {
	if ctx.Err() == nil || outer.Err() != nil {
		return err // It names the method and the URL.
	}
	return fmt.Errorf("the API server did not respond within %s: %w", requestTimeout, err)
}

// failure returns the error of a response, and after how long the request is to be sent again, less than 0 for never.
func failure(c call, response *http.Response, body []byte) (time.Duration, error) {
	again := time.Duration(-1)
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	switch {
	case err != nil || seconds < 0:
		seconds = 0
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		again = time.Duration(seconds) * time.Second
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && status.Kind == "Status" && status.Status != metav1.StatusSuccess {
		return again, apierrors.FromObject(&status)
	}
	return again, apierrors.NewGenericServerResponse(response.StatusCode, c.method, schema.GroupResource{}, "", text(response, body), seconds, true)
}

// text returns the text of an error that is no Status.
func text(response *http.Response, body []byte) string {
	media := response.Header.Get("Content-Type")
	if parsed, _, err := mime.ParseMediaType(media); media != "" && (err != nil || !strings.HasPrefix(parsed, "text/")) {
		return "unknown"
	}
	return strings.TrimSpace(string(body[:min(len(body), maxErrorText)]))
}

// IsGone reports whether an error of a request about one object says that the object is not there, and not that its kind is not served in
// that version: then the API server's response names no object, or is not even a Status.
func IsGone(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return true
	}
	details := status.ErrStatus.Details
	return details == nil || details.Name != ""
}

// Warnings are what the API server said about the writes of one context that it accepted, for example that it does not know a field, or
// that a version is deprecated. It is safe for concurrent use; the zero value is ready.
type Warnings struct {
	mu   sync.Mutex
	list []string
}

type warningsKey struct{}

// Collect returns a context for writes whose warnings are collected.
func (w *Warnings) Collect(ctx context.Context) context.Context {
	return context.WithValue(ctx, warningsKey{}, w)
}

// All returns the texts of the warnings so far, nil if there are none.
func (w *Warnings) All() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list
}

// collect adds a warning to those of a context that collects them.
func collect(ctx context.Context, code int, text string) {
	w, ok := ctx.Value(warningsKey{}).(*Warnings)
	if !ok || code != warningCode || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

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
