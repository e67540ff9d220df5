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
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// EventReader reads the events of a watch from a response. It implements watch.Decoder. Its buffer is used for one event
// after the other, so an event costs no more memory than the object in it. One goroutine may read; any may close.
type EventReader struct {
	source  io.Closer
	options ParseOptions
	frames  framer
}

var _ watch.Decoder = (*EventReader)(nil)

// NewEventReader returns a reader that closes source when it is closed.
func NewEventReader(source io.ReadCloser, options ParseOptions) *EventReader {
	return &EventReader{source: source, options: options, frames: framer{source: source}}
}

// Close closes the response. A Decode that waits returns.
func (r *EventReader) Close() {
	// The response was read only: nothing is lost.
	_ = r.source.Close()
}

// Decode waits for the next event. The object is an *Object, or for an ERROR event mostly a *metav1.Status. The error is
// io.EOF at the end of the response, and io.ErrUnexpectedEOF when it ends within an event.
func (r *EventReader) Decode() (watch.EventType, runtime.Object, error) {
	switch c, err := r.frames.peek(); {
	case err != nil:
		return "", nil, err
	case c != '{':
		return "", nil, fmt.Errorf("parsing an event: found %q, want an object", c)
	}
	frame, err := r.frames.next()
	if err != nil {
		return "", nil, err
	}
	kind, content, err := r.parse(frame)
	r.frames.shrink()
	return kind, content, err
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
