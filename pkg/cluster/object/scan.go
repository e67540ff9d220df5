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
	"encoding/json"
	"errors"
	"unsafe"
)

// errSyntax is the error of input that is not JSON. The API server does not send such; Decode says more about it.
var errSyntax = errors.New("malformed JSON")

// scanner walks over JSON without decoding it. It relies on the input being valid where nothing depends on it: a value
// that is skipped is searched for its end only. No input makes it read out of bounds or recurse.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return errSyntax
	}
	s.pos++
	return nil
}

// quoted skips a string and returns it with its quotes.
func (s *scanner) quoted() ([]byte, error) {
	if s.peek() != '"' {
		return nil, errSyntax
	}
	start := s.pos
	for i := start + 1; i < len(s.data); i++ {
		switch s.data[i] {
		case '\\':
			i++
		case '"':
			s.pos = i + 1
			return s.data[start:s.pos], nil
		}
	}
	return nil, errSyntax
}

// value skips a value of any kind and returns its bytes.
func (s *scanner) value() ([]byte, error) {
	start := s.pos
	switch s.peek() {
	case 0:
		return nil, errSyntax
	case '"':
		start = s.pos
		_, err := s.quoted()
		return s.data[start:s.pos], err
	case '{', '[':
		start = s.pos
		return s.container(start)
	}
	start = s.pos
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ',', '}', ']', ' ', '\t', '\n', '\r', ':', '"':
			if s.pos == start {
				return nil, errSyntax
			}
			return s.data[start:s.pos], nil
		}
		s.pos++
	}
	return s.data[start:s.pos], nil
}

// container skips an object or array by counting brackets.
func (s *scanner) container(start int) ([]byte, error) {
	depth := 0
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '"':
			if _, err := s.quoted(); err != nil {
				return nil, err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				s.pos++
				return s.data[start:s.pos], nil
			}
		}
		s.pos++
	}
	return nil, errSyntax
}

// members calls visit for every member of an object, with the scanner standing at the member's value. visit either
// consumes the value or returns false, and it is skipped. The key is valid until the next member only.
func (s *scanner) members(visit func(key []byte) (consumed bool, err error)) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch s.peek() {
		case '}':
			s.pos++
			return nil
		case ',':
			if first {
				return errSyntax
			}
			s.pos++
		default:
			if !first {
				return errSyntax
			}
		}
		key, err := s.quoted()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		s.space()
		consumed, err := visit(key[1 : len(key)-1])
		if err != nil {
			return err
		}
		if !consumed {
			if _, err := s.value(); err != nil {
				return err
			}
		}
	}
}

// elements calls visit for every element of an array, with the scanner standing at the element, which visit consumes.
func (s *scanner) elements(visit func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch s.peek() {
		case ']':
			s.pos++
			return nil
		case ',':
			if first {
				return errSyntax
			}
			s.pos++
		default:
			if !first {
				return errSyntax
			}
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// null skips a null, if there is one.
func (s *scanner) null() bool {
	if s.peek() == 'n' {
		if v, err := s.value(); err == nil && string(v) == "null" {
			return true
		}
	}
	return false
}

// text reads a string value that is part of memory which is never changed again: the result shares that memory.
func (s *scanner) text() (string, error) {
	if s.null() {
		return "", nil
	}
	quoted, err := s.quoted()
	if err != nil {
		return "", err
	}
	return unquote(quoted)
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) (string, error) { return plain(quoted[1 : len(quoted)-1]) }

// plain returns the text of a JSON string without its quotes. It shares memory with its argument unless there are
// escapes in it.
func plain(inner []byte) (string, error) {
	for _, c := range inner {
		if c == '\\' || c < ' ' || c >= 0x80 {
			quoted := make([]byte, 0, len(inner)+2)
			quoted = append(quoted, '"')
			quoted = append(quoted, inner...)
			var text string
			if err := json.Unmarshal(append(quoted, '"'), &text); err != nil {
				return "", errSyntax
			}
			return text, nil
		}
	}
	if len(inner) == 0 {
		return "", nil
	}
	// The memory behind inner is never changed: it is that of an Object, or is used no longer than the caller's own.
	return unsafe.String(&inner[0], len(inner)), nil
}
