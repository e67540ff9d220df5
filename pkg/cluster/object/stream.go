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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// ErrTooLarge is returned for an event or an object in a stream that is larger than any can be.
var ErrTooLarge = errors.New("a value in the stream is too large")

const (
	// maxValue is far more than etcd can store in one object.
	maxValue = 64 << 20
	// minBuffer is what an idle stream keeps.
	minBuffer = 4 << 10
	// busyBuffer is what a stream reads at once when there is much to read: HTTP/2 acknowledges every read.
	busyBuffer = 64 << 10
	// keptBuffer is the most that a stream keeps after a large value.
	keptBuffer = 256 << 10
	// quietReads is after how many small reads in a row a stream is idle.
	quietReads = 32
)

// framer finds the values in a stream of JSON. Its buffer is used for one after the other. It does not check them.
type framer struct {
	source     io.Reader
	buffer     []byte
	start, end int
	err        error
	// quiet counts the small reads in a row. It is negative after one that filled the buffer: there may be much to read.
	quiet int
}

// peek skips white space and returns the next byte, which stays. The error is io.EOF at the end of the stream.
func (f *framer) peek() (byte, error) {
	for {
		for ; f.start < f.end; f.start++ {
			if c := f.buffer[f.start]; !isSpace(c) {
				return c, nil
			}
		}
		if f.err != nil {
			return 0, f.err
		}
		if _, err := f.fill(); err != nil {
			return 0, err
		}
	}
}

// skip skips white space and the byte behind it, which must be the one given.
func (f *framer) skip(want byte) error {
	c, err := f.peek()
	if err != nil {
		return within(err)
	}
	if c != want {
		return fmt.Errorf("found %q, want %q", c, want)
	}
	f.start++
	return nil
}

// next returns the bytes of the next value, valid until the framer is used again. The error is io.EOF when there is none,
// and io.ErrUnexpectedEOF when the stream ends within it.
func (f *framer) next() ([]byte, error) {
	first, err := f.peek()
	if err != nil {
		return nil, err
	}
	b := boundary{scalar: first != '{' && first != '[' && first != '"'}
	pos := f.start
	for {
		n, done := b.find(f.buffer[pos:f.end])
		pos += n
		if done {
			value := f.buffer[f.start:pos]
			f.start = pos
			return value, nil
		}
		if f.err != nil {
			return nil, within(f.err)
		}
		moved, err := f.fill()
		if err != nil {
			return nil, err
		}
		pos -= moved
	}
}

// within is the error of a stream that ends within a value.
func within(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// boundary finds where a value ends: an object or an array by its brackets outside of strings.
type boundary struct {
	depth            int
	quoted, escaping bool
	// scalar says that the value is a number or a word, which ends before what follows it.
	scalar bool
}

// find continues with data. It returns how much of it belongs to the value, and whether the value ends there.
func (b *boundary) find(data []byte) (n int, done bool) {
	if b.scalar {
		for n < len(data) {
			if c := data[n]; isSpace(c) || c == ',' || c == '}' || c == ']' {
				return n, true
			}
			n++
		}
		return n, false
	}
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
				if b.depth == 0 {
					return n, true
				}
			}
		case c == '"':
			b.quoted = true
		case c == '{' || c == '[':
			b.depth++
		case c == '}' || c == ']':
			if b.depth--; b.depth == 0 {
				return n, true
			}
		}
	}
	return n, false
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// fill reads more into the buffer, and returns by how much it moved what is in it.
func (f *framer) fill() (moved int, err error) {
	if f.end == len(f.buffer) {
		held := f.buffer[f.start:f.end]
		moved = f.start
		if len(f.buffer) == 0 || len(held) > len(f.buffer)/2 || f.quiet < 0 && len(f.buffer) < busyBuffer {
			if len(f.buffer) >= maxValue {
				return 0, ErrTooLarge
			}
			f.buffer = make([]byte, max(minBuffer, 2*len(f.buffer)))
		}
		f.start, f.end = 0, copy(f.buffer, held)
	}
	n, err := f.source.Read(f.buffer[f.end:])
	f.end += n
	switch {
	case f.end == len(f.buffer):
		f.quiet = -1
	case n <= minBuffer:
		f.quiet++
	default:
		f.quiet = 0
	}
	// What was read together with the error comes first.
	f.err = err
	return moved, nil
}

// shrink gives back a buffer that a large value or a busy time left.
func (f *framer) shrink() {
	if len(f.buffer) <= minBuffer || f.end-f.start > minBuffer || len(f.buffer) <= keptBuffer && f.quiet < quietReads {
		return
	}
	smaller := make([]byte, minBuffer)
	f.end = copy(smaller, f.buffer[f.start:f.end])
	f.start, f.buffer, f.quiet = 0, smaller, 0
}

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
		parsed, err = parseError(content, r.options)
	default:
		err = fmt.Errorf("parsing an event: unknown type %q", kind)
	}
	if err != nil {
		return "", nil, err
	}
	return kind, parsed, nil
}

// parseError reads the object of an ERROR event.
func parseError(content []byte, options ParseOptions) (runtime.Object, error) {
	o, err := Parse(content, options)
	if err != nil {
		return nil, err
	}
	if o.Kind() != "Status" {
		return o, nil
	}
	status := &metav1.Status{}
	if err := json.Unmarshal(content, status); err != nil {
		return nil, fmt.Errorf("decoding an error of the API server: %w", err)
	}
	return status, nil
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

// List is a list of objects, as the API server sent it.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta

	// Items are the objects.
	Items []*Object
}

// DeepCopyObject implements runtime.Object. The items are shared, since they never change.
func (l *List) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// GetObjectKind implements runtime.Object.
func (l *List) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// ReadList reads a list from a response, one element after the other: besides the elements it needs the memory of one. The
// error is io.ErrUnexpectedEOF when the response ends within the list. Elements that do not name their type get it from the
// list's: a PodList has Pods.
func ReadList(source io.Reader, o ParseOptions) (*List, error) {
	r := listReader{frames: framer{source: source}, options: o}
	if err := r.read(); err != nil {
		return nil, fmt.Errorf("reading a list: %w", err)
	}
	if !r.hasItems && !strings.HasSuffix(r.list.Kind, "List") {
		// A CustomResourceDefinition names the kind of its lists as it likes; such lists have items.
		return nil, fmt.Errorf("reading a list: found the kind %q", r.list.Kind)
	}
	return &r.list, nil
}

type listReader struct {
	frames  framer
	options ParseOptions
	list    List
	// waiting are elements that came before the type of the list.
	waiting  [][]byte
	hasItems bool
}

func (r *listReader) read() error {
	if err := each(&r.frames, '{', '}', r.member); err != nil {
		return err
	}
	for _, data := range r.waiting {
		if err := r.add(data); err != nil {
			return err
		}
	}
	return nil
}

func (r *listReader) member(first byte) error {
	if first != '"' {
		return fmt.Errorf("found %q, want a key", first)
	}
	raw, err := r.value()
	if err != nil {
		return err
	}
	key := unquote(raw)
	if err := r.frames.skip(':'); err != nil {
		return err
	}
	if key == "items" {
		r.hasItems = true
		return r.items()
	}
	if raw, err = r.value(); err != nil {
		return err
	}
	switch key {
	case "apiVersion":
		return setText(&r.list.APIVersion, key, raw)
	case "kind":
		return setText(&r.list.Kind, key, raw)
	case "metadata":
		return r.list.readMetadata(raw)
	}
	return nil
}

// value reads one value, and checks it.
func (r *listReader) value() (string, error) {
	data, err := r.frames.next()
	if err != nil {
		return "", within(err)
	}
	s := scanner{data: data}
	if _, err := s.value(); err != nil {
		return "", err
	}
	if s.pos < len(data) {
		return "", s.fail("the end of a value")
	}
	return string(data), nil
}

func (r *listReader) items() error {
	// The last of duplicate fields counts.
	r.list.Items, r.waiting = nil, nil
	first, err := r.frames.peek()
	if err != nil {
		return within(err)
	}
	if first == '[' {
		return each(&r.frames, '[', ']', r.element)
	}
	if raw, err := r.value(); err != nil || !isNull(raw) {
		return errors.Join(errors.New("items is not an array"), err)
	}
	return nil
}

func (r *listReader) element(byte) error {
	data, err := r.frames.next()
	if err != nil {
		return within(err)
	}
	if r.list.Kind == "" || r.list.APIVersion == "" {
		r.waiting = append(r.waiting, bytes.Clone(data))
		return nil
	}
	return r.add(data)
}

// add parses an element of a list whose type is known.
func (r *listReader) add(data []byte) error {
	o := r.options
	o.APIVersion = r.list.APIVersion
	if kind, ok := strings.CutSuffix(r.list.Kind, "List"); ok {
		o.Kind = kind
	}
	item, err := Parse(data, o)
	if err != nil {
		return fmt.Errorf("parsing element %d: %w", len(r.list.Items), err)
	}
	r.list.Items = append(r.list.Items, item)
	return nil
}

// each walks over what stands between two brackets, and calls read at the first byte of each part, with that byte.
func each(f *framer, opening, closing byte, read func(first byte) error) error {
	if err := f.skip(opening); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := f.peek()
		if err != nil {
			return within(err)
		}
		if c == closing && first {
			return f.skip(closing)
		}
		if err := read(c); err != nil {
			return err
		}
		if c, err = f.peek(); err != nil {
			return within(err)
		}
		if c == closing {
			return f.skip(closing)
		}
		if err := f.skip(','); err != nil {
			return err
		}
	}
}

func (l *List) readMetadata(data string) error {
	l.ListMeta = metav1.ListMeta{}
	for name, to := range map[string]*string{"resourceVersion": &l.ResourceVersion, "continue": &l.Continue} {
		if raw, ok := member(data, name); ok {
			if err := setText(to, name, raw); err != nil {
				return err
			}
		}
	}
	if raw, ok := member(data, "remainingItemCount"); ok && !isNull(raw) {
		n, err := strconv.ParseInt(raw, 10, 64)
		if err != nil {
			return fmt.Errorf("reading remainingItemCount: %w", err)
		}
		l.RemainingItemCount = &n
	}
	return nil
}
