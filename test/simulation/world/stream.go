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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

// errClosed is what a reader sees that has closed the body.
var errClosed = errors.New("http: read on closed response body")

// stream is the response body of a watch. Its fields are guarded by the world's lock.
type stream struct {
	engine *engine
	// item is what is pending while the watch has events or is to end.
	item  *item
	watch *apiserver.Watch
	ctx   context.Context

	buffer []byte
	err    error
	more   chan struct{}
	closed bool
}

// open makes the body of a response that is a watch.
func (w *World) open(i *item) {
	x := i.exchange
	s := &stream{engine: x.engine, watch: x.watch, ctx: x.http.Context(), more: make(chan struct{}, 1)}
	s.item = &item{Pending: i.Pending, stream: s}
	s.item.Kind = Event
	s.item.identify(i.key)
	x.response.Body, x.response.ContentLength = s, -1
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orders++
	s.item.order, s.item.item = w.orders, s.item
	at, _ := slices.BinarySearchFunc(w.streams, s.item, func(s *stream, i *item) int { return s.item.compare(i) })
	w.streams = slices.Insert(w.streams, at, s)
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	w := s.engine.world
	for {
		w.mu.Lock()
		n, err := copy(p, s.buffer), s.err
		s.buffer = s.buffer[n:]
		w.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-s.more:
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}
}

// Close implements io.Closer.
func (s *stream) Close() error {
	w := s.engine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	s.closed = true
	s.end(errClosed)
	return nil
}

// end lets readers fail when they have read the rest. It is called with the lock held.
func (s *stream) end(err error) {
	if s.err == nil {
		s.err = err
	}
	s.wake()
}

func (s *stream) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// deliver lets the reader read the next event, or the end of the watch.
func (s *stream) deliver() (event []byte) {
	event, ok := s.watch.Next()
	s.engine.world.mu.Lock()
	defer s.engine.world.mu.Unlock()
	if ok {
		s.buffer = append(s.buffer, event...)
		s.wake()
	} else {
		s.end(io.EOF)
	}
	return event
}

// fail ends the watch with an event of an error, or without one if it is empty, and drops the events that wait.
func (s *stream) fail(event string) {
	s.watch.Close()
	s.engine.world.mu.Lock()
	defer s.engine.world.mu.Unlock()
	s.buffer = append(s.buffer, event...)
	s.end(io.EOF)
}

// reap drops the streams that have ended, and returns those that have something to deliver. It is called between two steps of the engines.
func (w *World) reap() []*stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ready []*stream
	w.streams = slices.DeleteFunc(w.streams, func(s *stream) bool {
		if s.err != nil || s.ctx.Err() != nil {
			s.watch.Close()
			return true
		}
		if s.item.Events = s.watch.Pending(); s.item.Events > 0 || s.watch.Ended() {
			ready = append(ready, s)
		}
		return false
	})
	return ready
}

// expired is the event of a watch whose resourceVersion is too old.
const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
	`"message":"too old resource version","reason":"Expired","code":410}}` + "\n"

// summary says of an event's line of JSON what happened to which object, as far as that can be seen without decoding it.
func summary(event []byte) string {
	text := string(event)
	kind := after(text, `"type":"`)
	name := after(text, `"name":"`)
	if kind == "BOOKMARK" || name == "" {
		return kind
	}
	return kind + " " + name + " " + after(text, `"resourceVersion":"`)
}

func after(text, prefix string) string {
	_, rest, _ := strings.Cut(text, prefix)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

var (
	_ http.RoundTripper = apiTransport{}
	_ webhook.Evaluator = hookTransport{}
)

// Defect is that with which engines panic at the fault [Panic].
const Defect = "a simulated bug"

// errDisconnected is what a client sees of a connection that breaks.
var errDisconnected = fmt.Errorf("read tcp: %w", syscall.ECONNRESET)

// exchange is a request and its response, to the API server or to a hook.
type exchange struct {
	engine *engine
	// http is the request as the engine made it.
	http *http.Request
	// request is that to the API server, call that to a hook; the other one is empty.
	request apiserver.Request
	call    HookCall
	// response is what was responded, once it was.
	response *http.Response
	watch    *apiserver.Watch
	failure  error
	// evaluate evaluates an inline hook, and evaluated is what it returned. Nil: the call is that of a webhook.
	evaluate  func() (webhook.Response, error)
	evaluated webhook.Response
	// done gets the outcome. It has room for it.
	done chan outcome
}

type outcome struct {
	response *http.Response
	err      error
	// panics says that the sender is to panic in place of getting a response.
	panics bool
}

func (x *exchange) fail(err error) {
	select {
	case x.done <- outcome{err: err}:
	default: // Its sender knows an outcome already.
	}
}

// apiTransport sends the requests of an engine to the API server.
type apiTransport struct {
	engine     *engine
	user, host string
}

// RoundTrip implements http.RoundTripper.
func (t apiTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := read(r)
	if err != nil {
		return nil, err
	}
	x := &exchange{engine: t.engine, http: r, done: make(chan outcome, 1)}
	query := r.URL.Query()
	// They are random, and the world decides when a watch ends.
	query.Del("timeoutSeconds")
	query.Del("timeout")
	x.request = apiserver.Request{
		User: t.user, UserAgent: r.Header.Get("User-Agent"), Method: r.Method, Path: r.URL.Path, Query: query,
		ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"), Body: body,
	}
	i := &item{Pending: Pending{Kind: Request, Engine: t.engine.number}, exchange: x}
	describe(&i.Pending, r.Method, r.URL.Path, query, x.request.ContentType)
	return i.wait(t.host + "?" + query.Encode() + "|" + digest(body))
}

// hookTransport sends the hook calls of an engine.
type hookTransport struct{ engine *engine }

// RoundTrip implements http.RoundTripper.
func (t hookTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := read(r)
	if err != nil {
		return nil, err
	}
	path := strings.Trim(r.URL.Path, "/")
	controller, hook := "", path
	if at := strings.LastIndexByte(path, '/'); at >= 0 {
		controller, hook = path[:at], path[at+1:]
	}
	x := &exchange{engine: t.engine, http: r, done: make(chan outcome, 1)}
	x.call = HookCall{Engine: t.engine.number, Controller: controller, Hook: hook, Request: body}
	i := &item{Pending: Pending{Kind: Call, Engine: t.engine.number, Controller: controller, Hook: hook}, exchange: x}
	return i.wait(digest(body))
}

// Evaluate implements [webhook.Evaluator]: evaluating an inline hook is a call of it, too.
func (t hookTransport) Evaluate(ctx context.Context, e webhook.Evaluation) (webhook.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://inline.sim", http.NoBody)
	if err != nil {
		return webhook.Response{}, fmt.Errorf("making the call of an inline hook: %w", err)
	}
	controller := strings.ToLower(strings.TrimSuffix(e.ControllerKind, "Controller")) + "/" + e.ControllerName
	x := &exchange{engine: t.engine, http: r, done: make(chan outcome, 1), evaluate: e.Evaluate}
	x.call = HookCall{Engine: t.engine.number, Controller: controller, Hook: string(e.Hook), Inline: true, Request: e.Body()}
	i := &item{Pending: Pending{Kind: Call, Engine: t.engine.number, Controller: controller, Hook: string(e.Hook), Inline: true}, exchange: x}
	if _, err := i.wait(digest(x.call.Request)); err != nil { //nolint:bodyclose,contextcheck // It has no body, and the request has the context.
		return webhook.Response{}, err
	}
	return x.evaluated, nil
}

func read(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close() //nolint:errcheck // It is in memory.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the body of the request: %w", err)
	}
	return body, nil
}

func digest(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	return strconv.FormatUint(hashOf(string(body)), 36)
}

// wait makes the item of a request pending until its response is delivered or its context ends.
func (i *item) wait(detail string) (*http.Response, error) {
	x := i.exchange
	w := x.engine.world
	i.identify(detail)
	if err := w.add(i); err != nil {
		return nil, err
	}
	select {
	case o := <-x.done:
		if o.panics {
			panic(Defect) //nolint:forbidigo // It is what the world was told to do.
		}
		return o.response, o.err
	case <-x.http.Context().Done():
		w.abandon(i)
		return nil, context.Cause(x.http.Context())
	}
}

// add makes an item pending that an engine has made. It fails if the engine was killed.
func (w *World) add(i *item) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.exchange.engine.dead {
		return errDisconnected
	}
	w.orders++
	i.order, i.item = w.orders, i
	i.exchange.call.ID = i.order
	w.items.insert(i)
	w.wake()
	return nil
}

// wake ends a wait for something to become pending.
func (w *World) wake() {
	select {
	case w.activity <- struct{}{}:
	default:
	}
}

// abandon drops an item whose sender does not wait for it any more, unless it is one that arrives all the same.
func (w *World) abandon(i *item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !i.Abandoned && w.items.remove(i) {
		w.unhear(i)
	}
}

// unhear notes that the sender of a request gets no response, if it wrote something. It is called with the lock held.
func (w *World) unhear(i *item) {
	if i.wrote > 0 {
		w.unheard = append(w.unheard, i.wrote-1)
	}
}

// Unheard returns the writes, by their places in the journal of the API server, whose senders get no response, since it was lost or they do
// not wait for it any more, since the last call.
func (w *World) Unheard() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.unheard
	w.unheard = nil
	return list
}

// httpResponse is a response with a body that is complete.
func httpResponse(request *http.Request, code int, header http.Header, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}
}

// arrive lets the API server or the hook serve the request.
func (x *exchange) arrive(w *World) {
	w.requests++
	if x.request.Method == "" {
		x.arriveAtHook(w)
		return
	}
	r := w.API.Do(x.request)
	header := http.Header{"Content-Type": {r.ContentType}}
	if r.RetryAfter != "" {
		header.Set("Retry-After", r.RetryAfter)
	}
	for _, text := range r.Warnings {
		header.Add("Warning", `299 - `+strconv.Quote(text))
	}
	x.response, x.watch = httpResponse(x.http, r.Code, header, r.Body), r.Watch //nolint:bodyclose // The engine closes it.
}

// arriveAtHook calls the hook.
func (x *exchange) arriveAtHook(w *World) {
	w.calls++
	if w.options.Hook == nil {
		x.failure = errors.New("the world has no hook")
		return
	}
	if x.evaluate != nil {
		x.evaluated, x.failure = x.evaluate()
		x.call.Body, x.call.Err = x.evaluated.Body, x.failure
	}
	r := w.options.Hook(x.call)
	if x.evaluate != nil {
		x.response = httpResponse(x.http, http.StatusOK, http.Header{}, nil) //nolint:bodyclose // It has none.
		return
	}
	if r.Err != nil {
		x.failure = r.Err
		return
	}
	if r.Code == 0 {
		r.Code = http.StatusOK
	}
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	x.response = httpResponse(x.http, r.Code, header, r.Body) //nolint:bodyclose // As above.
}
