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

package object

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// ErrEventTooLarge is returned for an event of a watch that is larger than any object can be.
var ErrEventTooLarge = errors.New("the event is too large")

const (
	// maxEvent is far more than etcd can store in one object.
	maxEvent = 64 << 20
	// minBuffer is what an idle watch keeps.
	minBuffer = 4 << 10
	// keptBuffer is the most that a watch keeps after a large event.
	keptBuffer = 256 << 10
)

// EventReader reads the events of a watch from a response. It implements watch.Decoder. Its buffer is used for one event
// after the other, so an event costs no more memory than the object in it. One goroutine may read; any may close.
type EventReader struct {
	source     io.ReadCloser
	options    ParseOptions
	buffer     []byte
	start, end int
	err        error
}

var _ watch.Decoder = (*EventReader)(nil)

// NewEventReader returns a reader that closes source when it is closed.
func NewEventReader(source io.ReadCloser, options ParseOptions) *EventReader {
	return &EventReader{source: source, options: options, buffer: make([]byte, minBuffer)}
}

// Close closes the response. A Decode that waits returns.
func (r *EventReader) Close() {
	// The response was read only: nothing is lost.
	_ = r.source.Close()
}

// Decode waits for the next event. The object is an *Object, or for an ERROR event mostly a *metav1.Status. The error is
// io.EOF at the end of the response, and io.ErrUnexpectedEOF when it ends within an event.
func (r *EventReader) Decode() (watch.EventType, runtime.Object, error) {
	frame, err := r.next()
	if err != nil {
		return "", nil, err
	}
	kind, content, err := r.parse(frame)
	r.shrink()
	return kind, content, err
}

// next returns the bytes of the next event, valid until it is called again.
func (r *EventReader) next() ([]byte, error) {
	var b boundary
	pos := r.start
	for {
		if b.depth == 0 {
			for pos < r.end && isSpace(r.buffer[pos]) {
				pos++
			}
			r.start = pos
			if pos < r.end && r.buffer[pos] != '{' {
				return nil, fmt.Errorf("parsing an event: found %q, want an object", r.buffer[pos])
			}
		}
		n, done := b.find(r.buffer[pos:r.end])
		pos += n
		if done {
			frame := r.buffer[r.start:pos]
			r.start = pos
			return frame, nil
		}
		if r.err != nil {
			if b.depth > 0 && errors.Is(r.err, io.EOF) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, r.err
		}
		moved, err := r.fill()
		if err != nil {
			return nil, err
		}
		pos -= moved
	}
}

// boundary finds where an object ends, by its braces outside of strings.
type boundary struct {
	depth            int
	quoted, escaping bool
}

// find goes on with data. It returns how much of it belongs to the object, and whether the object ends there.
func (b *boundary) find(data []byte) (n int, done bool) {
	for n < len(data) {
		c := data[n]
		n++
		switch {
		case b.escaping:
			b.escaping = false
		case b.quoted:
			if c == '\\' {
				b.escaping = true
			} else if c == '"' {
				b.quoted = false
			}
		case c == '"':
			b.quoted = true
		case c == '{':
			b.depth++
		case c == '}':
			if b.depth--; b.depth == 0 {
				return n, true
			}
		}
	}
	return n, false
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// fill reads more into the buffer, and returns by how much it moved what is in it.
func (r *EventReader) fill() (moved int, err error) {
	if r.end == len(r.buffer) {
		held := r.buffer[r.start:r.end]
		moved = r.start
		if len(held) > len(r.buffer)/2 {
			if len(r.buffer) >= maxEvent {
				return 0, ErrEventTooLarge
			}
			r.buffer = make([]byte, 2*len(r.buffer))
		}
		r.start, r.end = 0, copy(r.buffer, held)
	}
	n, err := r.source.Read(r.buffer[r.end:])
	r.end += n
	// What was read together with the error comes first.
	r.err = err
	return moved, nil
}

// shrink gives back a buffer that a large event left.
func (r *EventReader) shrink() {
	if len(r.buffer) <= keptBuffer || r.end-r.start > minBuffer {
		return
	}
	smaller := make([]byte, minBuffer)
	r.end = copy(smaller, r.buffer[r.start:r.end])
	r.start, r.buffer = 0, smaller
}

func (r *EventReader) parse(frame []byte) (watch.EventType, runtime.Object, error) {
	kind, content, err := envelope(frame)
	if err != nil {
		return "", nil, fmt.Errorf("parsing an event: %w", err)
	}
	var parsed runtime.Object
	switch kind {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		parsed, err = Parse(content, r.options)
	case watch.Error:
		parsed, err = Codec{Options: r.options}.decode(content)
	default:
		err = fmt.Errorf("parsing an event: unknown type %q", kind)
	}
	if err != nil {
		return "", nil, err
	}
	return kind, parsed, nil
}

// envelope returns the type and the object of an event.
func envelope(frame []byte) (kind watch.EventType, content []byte, err error) {
	// What API servers write needs no look at the object, which is checked when it is parsed: then nothing stands behind it.
	if rest, ok := bytes.CutPrefix(frame, []byte(`{"type":"`)); ok {
		if name, rest, ok := bytes.Cut(rest, []byte(`","object":`)); ok && bytes.IndexByte(name, '"') < 0 {
			return eventType(string(name)), rest[:len(rest)-1], nil
		}
	}
	s := scanner{data: frame}
	s.space()
	err = s.members(func(key span, _ bool) error {
		at, err := s.value()
		if err != nil {
			return err
		}
		switch unquote(stringOf(frame[key.start:key.end])) {
		case "type":
			err = setText((*string)(&kind), "type", string(frame[at.start:at.end]))
		case "object":
			content = frame[at.start:at.end]
		}
		return err
	})
	return kind, content, err
}

// eventType makes events of the same type share its name.
func eventType(name string) watch.EventType {
	for _, known := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(known) == name {
			return known
		}
	}
	return watch.EventType(name)
}
