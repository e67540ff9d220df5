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
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

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

var _ http.RoundTripper = apiTransport{}
