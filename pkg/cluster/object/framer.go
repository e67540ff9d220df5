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
	"errors"
	"fmt"
	"io"
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
