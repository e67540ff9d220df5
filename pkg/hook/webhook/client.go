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

package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/scratch"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// Client calls one hook of one controller. Make it with [New]. It is safe for concurrent use.
type Client struct {
	config   Config
	url      *url.URL
	endpoint string
	security security
	// hidden is what of the URL no message may show.
	hidden hidden
	etags  *etagCache // nil: entity tags are off
	series *series
	// controller is who holds what the client has of the budgets, and leave is called when the client is closed.
	controller string
	leave      []func()
	// requests is the client's part of the budget of requests.
	requests *quota

	mu      sync.Mutex
	session *session // nil before the first call
	closed  bool
}

// Response is what a hook returned, in form and size acceptable. Package wire reads it.
type Response struct {
	// Body of the response. It may be shared with later responses and must not be modified.
	Body []byte
	// ContentType is the header of that name.
	ContentType string
	// NotModified says that the body is that of an earlier response, which the hook confirmed by 304 or 412.
	NotModified bool

	held *reservation
	// hidden is what no message may show of the response.
	hidden hidden
}

// Release gives the room of the response in [Config.ResponseBudget] back. The body must not be used afterwards, and is nil.
// It must be called once a response is not needed any more, and before the next call: calls wait for room. Releasing twice
// does nothing.
func (r *Response) Release() {
	r.held.release()
	r.held, r.Body = nil, nil
}

// Hide returns an error of reading the response without what no message may show: a hook may return the credentials that it was sent.
// Nil stays nil.
func (r *Response) Hide(err error) error { return r.hidden.from(err) }

// HideJSON returns a JSON text, of the response or a part of it, without what no message may show. The error says that it is no JSON.
func (r *Response) HideJSON(text []byte) ([]byte, error) { return r.hidden.json(text) }

// New returns a client for the hook. It makes no call and reads no credentials; an error means that the definition of the
// hook can never work. Close the client when it is not needed any more.
func New(config Config) (*Client, error) {
	config.setDefaults()
	vectors, ok := hookMetrics[config.Hook]
	if !ok {
		return nil, fmt.Errorf("unknown hook %q", config.Hook)
	}
	if config.Webhook == nil {
		return nil, errors.New("the hook has no webhook")
	}
	u, err := address(config.Webhook)
	if err != nil {
		return nil, err
	}
	settings, at := effectiveSecurity(config.Webhook, config.EndpointConfigs, u)
	if err := validateSecurity(&settings); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	metrics.Register()
	controller := config.ControllerKind + "-" + config.ControllerName
	c := &Client{
		config:     config,
		url:        u,
		endpoint:   display(u),
		security:   security{settings: settings, credentials: config.Credentials},
		hidden:     hiddenOf(u),
		controller: controller,
		leave:      []func(){config.RequestBudget.Join(controller), config.ResponseBudget.Join(controller)},
		requests:   newQuota(config.RequestBudget, controller),
	}
	c.series = vectors.acquire(seriesKey{url: c.endpoint, controllerName: config.ControllerName, controllerType: config.ControllerKind})
	if config.Transport != nil && u.Host == FunctionHost {
		c.endpoint = "the " + string(config.Hook) + " function"
	}
	if e := config.Webhook.Etag; e != nil && ptr.Deref(e.Enabled, false) {
		lifetime := time.Duration(ptr.Deref(e.CacheTimeoutSeconds, 0)) * time.Second
		c.etags = newEtagCache(config.MaxEtagBytes, config.EtagBudget, lifetime, config.Clock)
	}
	return c, nil
}

// Endpoint returns the URL of the hook without user, query and fragment, for messages. They call a function by the name of its hook.
func (c *Client) Endpoint() string { return c.endpoint }

// References returns the Secrets and ConfigMaps that each call reads.
func (c *Client) References() []Reference { return c.security.references() }

// Check reads the credentials and prepares connections with them, without a call. Its error is what a call would return now.
func (c *Client) Check(ctx context.Context) error {
	now, err := c.security.read(ctx)
	if err != nil {
		return err
	}
	s, err := c.acquire(&now)
	if err != nil {
		return err
	}
	c.release(s)
	return nil
}

// Call posts body to the hook and returns its response, to be released by the caller. The key is the object that the call is
// about. All that it waits for, credentials among it, is limited by the webhook's timeout. The errors are those of the package's
// documentation. The body must not be modified, even after Call has returned: the transport may still read it.
func (c *Client) Call(ctx context.Context, key RootKey, body []byte) (Response, error) {
	return c.call(ctx, c.etags, key, body)
}

// Ask is Call without entity tags: nothing that is remembered is used, and nothing of the response is remembered.
func (c *Client) Ask(ctx context.Context, body []byte) (Response, error) {
	return c.call(ctx, nil, RootKey{}, body)
}

func (c *Client) call(ctx context.Context, etags *etagCache, key RootKey, body []byte) (Response, error) {
	p := &progress{series: c.series, start: time.Now()}
	limited, cancel := context.WithTimeout(httptrace.WithClientTrace(ctx, p.trace()), c.config.timeout())
	defer cancel()
	now, err := c.credentials(ctx, limited)
	if err != nil {
		return Response{}, err
	}
	s, err := c.acquire(&now)
	if err != nil {
		return Response{}, err
	}
	defer c.release(s)
	now.hidden = slices.Concat(c.hidden, now.hidden)
	fail := func(reached stage, err error) error { return c.failure(ctx, limited, reached, err, now.hidden) }
	if p.sent, err = c.reserveRequest(limited, body); err != nil {
		return Response{}, fail(queued, err)
	}
	defer p.sent.release()
	e := exchange{etags: etags, key: key, remembered: etags.get(key), hidden: now.hidden}
	request, err := c.request(limited, body, now.authorization, e.remembered)
	if err != nil {
		e.remembered.release()
		return Response{}, fail(connecting, err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		e.remembered.release()
		return Response{}, fail(p.reached(), c.afterHandshake(limited, s, request, err))
	}
	defer response.Body.Close() //nolint:errcheck // nothing depends on it
	result, err := c.read(limited, response, e)
	if !result.NotModified {
		e.remembered.release()
	}
	switch {
	case errors.Is(err, errNoRoom):
		err = fail(crowded, err)
	case errors.Is(err, errReading):
		err = fail(reading, err)
	}
	result.hidden = now.hidden
	return result, err
}

// exchange is what reading a response needs to know of the call.
type exchange struct {
	// etags is nil if nothing of the response is remembered.
	etags *etagCache
	key   RootKey
	// remembered is the response whose tag was sent, or nil.
	remembered *etagEntry
	// hidden is what no message may show.
	hidden hidden
}

// reserveRequest waits for room for the body of a request, which is given back when it has been written. Small bodies need none.
func (c *Client) reserveRequest(ctx context.Context, body []byte) (*reservation, error) {
	if len(body) <= freeBytes {
		return nil, nil
	}
	return c.requests.reserve(ctx, int64(len(body)))
}

// credentials reads the credentials within limited, which is ctx with the timeout of the call.
func (c *Client) credentials(ctx, limited context.Context) (snapshot, error) {
	now, err := c.security.read(limited)
	if e, ok := errors.AsType[*CredentialsError](err); ok && limited.Err() != nil && ctx.Err() == nil {
		e.Err = fmt.Errorf("not read within %s: %w", c.config.timeout(), context.DeadlineExceeded)
	}
	return now, err
}

// Forget drops what is remembered of an object's responses. Call it when the object is gone: the next object of that name must
// not get a response that was meant for this one.
func (c *Client) Forget(key RootKey) {
	if c.etags != nil {
		c.etags.forget(key)
	}
}

// Remembered returns the number of responses that are remembered by their entity tags.
func (c *Client) Remembered() int {
	if c.etags == nil {
		return 0
	}
	return c.etags.len()
}

// Close closes idle connections, and removes the client's series from the metrics. Calls in progress end as usual, and later
// ones fail. Closing twice does nothing.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.retire()
	c.series.release()
	for _, leave := range c.leave {
		leave()
	}
	if c.etags != nil {
		c.etags.close()
	}
}

func (c *Client) request(ctx context.Context, body []byte, authorization string, remembered *etagEntry) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller wraps
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "metacontroller-apiserver/"+c.config.ServerVersion)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	if remembered != nil {
		request.Header.Set("If-None-Match", remembered.tag)
	}
	// A hook's Pod that went away leaves idle connections that fail when they are used next. Hooks may be called any number
	// of times with the same body, so let the transport try a new connection then. A key without a value is not sent.
	request.Header["Idempotency-Key"] = nil
	tracing.Inject(ctx, request.Header)
	return request, nil
}

var (
	// errReading marks errors of the connection while the body was read.
	errReading = errors.New("reading the response")
	// errNoRoom marks the end of waiting for room in the budget.
	errNoRoom = errors.New("no room for the response")
)

// read checks and reads the response in the order of docs/reference/contract.md#s2.5.
func (c *Client) read(ctx context.Context, response *http.Response, e exchange) (Response, error) {
	if err := c.retryLater(response); err != nil {
		drain(response.Body)
		return Response{}, err
	}
	switch code := response.StatusCode; {
	case code == http.StatusOK:
	case e.remembered != nil && (code == http.StatusNotModified || code == http.StatusPreconditionFailed):
		drain(response.Body)
		return Response{Body: e.remembered.body, ContentType: e.remembered.contentType, NotModified: true, held: e.remembered.held}, nil
	default:
		start, err := io.ReadAll(io.LimitReader(response.Body, readErrorBody))
		if err != nil && len(start) == 0 {
			return Response{}, fmt.Errorf("%w: %w", errReading, err)
		}
		drain(response.Body)
		return Response{}, statusError(code, response.Header.Get("Content-Type"), start, e.hidden)
	}
	body, held, err := c.readBody(ctx, response)
	if err != nil {
		return Response{}, err
	}
	contentType := response.Header.Get("Content-Type")
	if tag := response.Header.Get("ETag"); tag != "" && e.etags != nil {
		e.etags.put(e.key, tag, body, contentType)
	}
	return Response{Body: body, ContentType: contentType, held: held}, nil
}

func (c *Client) retryLater(response *http.Response) error {
	header := response.Header.Get("Retry-After")
	after := retryAfter(header, c.config.Clock)
	switch code := response.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable && header != "":
		return &RetryLaterError{Status: code, After: after}
	default:
		return nil
	}
}

// readBody reads the body, or fails when it is larger than the limit. The room for all of it is reserved at once and before it is
// read, so that calls which wait for room hold none.
func (c *Client) readBody(ctx context.Context, response *http.Response) (body []byte, held *reservation, err error) {
	limit := c.config.MaxResponseBytes
	switch length := response.ContentLength; {
	case length > limit:
		return nil, nil, tooLarge(limit)
	case length > freeBytes:
		if held, err = c.reserve(ctx, length); err != nil {
			return nil, nil, err
		}
		body = make([]byte, length)
		if _, err := io.ReadFull(response.Body, body); err != nil {
			held.release()
			return nil, nil, fmt.Errorf("%w: %w", errReading, err)
		}
		return body, held, nil
	}
	buffer := scratch.Borrow()
	defer scratch.Return(buffer)
	if _, err := buffer.ReadFrom(io.LimitReader(response.Body, min(freeBytes, limit)+1)); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errReading, err)
	}
	if int64(buffer.Len()) > freeBytes {
		// The length is not known: the response may be as large as the limit.
		if held, err = c.reserve(ctx, limit); err != nil {
			return nil, nil, err
		}
		if _, err := buffer.ReadFrom(io.LimitReader(response.Body, limit-int64(buffer.Len())+1)); err != nil {
			held.release()
			return nil, nil, fmt.Errorf("%w: %w", errReading, err)
		}
	}
	if int64(buffer.Len()) > limit {
		held.release()
		return nil, nil, tooLarge(limit)
	}
	held.shrink(int64(buffer.Len()))
	return bytes.Clone(buffer.Bytes()), held, nil
}

func (c *Client) reserve(ctx context.Context, bytes int64) (*reservation, error) {
	held, err := reserve(ctx, c.config.ResponseBudget, c.controller, bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return held, nil
}

func tooLarge(limit int64) error {
	return &hook.RejectedError{Detail: fmt.Sprintf(
		"the response is larger than the limit of %d bytes; let the hook return less, or raise --hook-response-limit of the server", limit)}
}

// drain reads a little of a body that is not used, so that the connection can be used again.
func drain(body io.Reader) {
	const little = 64 << 10
	_, _ = io.CopyN(io.Discard, body, little)
}

// acquire returns the session for the credentials as they are now. When they changed, the old one is retired.
func (c *Client) acquire(now *snapshot) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &CallError{Hook: c.config.Hook, Endpoint: c.endpoint, Cause: "the controller has been stopped", Err: http.ErrServerClosed}
	}
	if c.session == nil || c.session.tlsVersion != now.tlsVersion {
		config, err := now.tlsConfig()
		if err != nil {
			return nil, err
		}
		c.retire()
		transport := newTransport(config, c.config.Workers, c.dial())
		transport.Proxy = c.proxy
		var next http.RoundTripper = transport
		if c.config.Transport != nil {
			next = c.config.Transport
		}
		c.session = &session{
			tlsVersion: now.tlsVersion,
			transport:  transport,
			client:     &http.Client{Transport: &measured{next: next, series: c.series}, CheckRedirect: c.checkRedirect},
		}
	}
	c.session.calls++
	return c.session, nil
}

// release ends a use of a session. The last use of a retired one closes the connections that came back after it was retired.
func (c *Client) release(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.calls--
	if s.retired && s.calls == 0 {
		s.transport.CloseIdleConnections()
	}
}

// retire puts the session out of use. The caller holds c.mu.
func (c *Client) retire() {
	if c.session == nil {
		return
	}
	c.session.retired = true
	c.session.transport.CloseIdleConnections()
	c.session = nil
}
