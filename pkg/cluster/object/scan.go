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
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// maxDepth is how deep values may be nested: as deep as encoding/json and the API server allow.
const maxDepth = 10000

// errTruncated is returned when the data end within a value.
var errTruncated = errors.New("unexpected end of JSON")

// A span is a part of the data: from start up to, not including, end. The zero span is none.
type span struct{ start, end uint32 }

func (s span) none() bool { return s.end == 0 }

// scanner walks over JSON and checks it against RFC 8259. Its methods expect pos at the first byte of what they read,
// and leave it behind the last.
type scanner struct {
	data  []byte
	pos   int
	depth int
}

func (s *scanner) fail(want string) error {
	if s.pos >= len(s.data) {
		return errTruncated
	}
	return fmt.Errorf("invalid JSON at offset %d: found %q, want %s", s.pos, s.data[s.pos], want)
}

// space skips white space and returns the byte behind it, 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// value skips white space and one value, and returns where the value is.
func (s *scanner) value() (span, error) {
	c := s.space()
	start := s.pos
	var err error
	switch {
	case c == '"':
		_, err = s.text()
	case c == '{':
		err = s.members(func(span, bool) error {
			_, err := s.value()
			return err
		})
	case c == '[':
		err = s.elements(func() error {
			_, err := s.value()
			return err
		})
	case c == '-' || c >= '0' && c <= '9':
		err = s.number()
	case c == 't':
		err = s.literal("true")
	case c == 'f':
		err = s.literal("false")
	case c == 'n':
		err = s.literal("null")
	default:
		err = s.fail("a value")
	}
	return span{uint32(start), uint32(s.pos)}, err //nolint:gosec // Longer data is refused before.
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if s.pos >= len(s.data) || s.data[s.pos] != word[i] {
			return s.fail(word)
		}
		s.pos++
	}
	return nil
}

func (s *scanner) number() error {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	switch {
	case s.pos < len(s.data) && s.data[s.pos] == '0':
		s.pos++
	case !s.digits():
		return s.fail("a digit")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return s.fail("a digit")
		}
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return s.fail("a digit")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// text reads a string and says whether it contains escapes.
func (s *scanner) text() (escaped bool, err error) {
	data, pos := s.data, s.pos+1
	for pos < len(data) {
		switch c := data[pos]; {
		case c == '"':
			s.pos = pos + 1
			return escaped, nil
		case c == '\\':
			escaped = true
			s.pos = pos
			if err := s.escape(); err != nil {
				return false, err
			}
			pos = s.pos
		case c < 0x20:
			s.pos = pos
			return false, s.fail("no control character in a string")
		default:
			pos++
		}
	}
	s.pos = pos
	return false, errTruncated
}

func (s *scanner) escape() error {
	s.pos++
	if s.pos >= len(s.data) {
		return errTruncated
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
	default:
		return s.fail("an escape")
	}
	for range 4 {
		if s.pos >= len(s.data) {
			return errTruncated
		}
		if c := s.data[s.pos]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return s.fail("a hexadecimal digit")
		}
		s.pos++
	}
	return nil
}

// members reads an object. It calls each with the place of every key, quotes included, when pos is behind the colon; each
// reads the value.
func (s *scanner) members(each func(key span, escaped bool) error) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.space() == '}' {
		return s.shut()
	}
	for {
		if s.space() != '"' {
			return s.fail("a key")
		}
		start := s.pos
		escaped, err := s.text()
		if err != nil {
			return err
		}
		key := span{uint32(start), uint32(s.pos)} //nolint:gosec // Longer data is refused before.
		if s.space() != ':' {
			return s.fail("a colon")
		}
		s.pos++
		if err := each(key, escaped); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			return s.shut()
		default:
			return s.fail("a comma or }")
		}
	}
}

// elements reads an array. It calls each before every element, which each reads.
func (s *scanner) elements(each func() error) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.space() == ']' {
		return s.shut()
	}
	for {
		if err := each(); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.pos++
		case ']':
			return s.shut()
		default:
			return s.fail("a comma or ]")
		}
	}
}

func (s *scanner) open() error {
	s.pos++
	if s.depth++; s.depth > maxDepth {
		return fmt.Errorf("invalid JSON at offset %d: nested deeper than %d", s.pos, maxDepth)
	}
	return nil
}

func (s *scanner) shut() error {
	s.pos++
	s.depth--
	return nil
}

// stringOf returns b as a string without copying. The string is valid as long as b is not written to.
func stringOf(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // Saves a copy of every key; see the callers.
}

// bytesOf returns s as bytes without copying. Nobody may write to them.
func bytesOf(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // Saves a copy of every object; JSON is documented as read-only.
}

// textIn decodes the string at a place of JSON that was checked. Unless it has escapes, the result is a part of the JSON.
func textIn(data string, at span) string {
	if at.start == at.end {
		return ""
	}
	return unquote(data[at.start:at.end])
}

func unquote(quoted string) string {
	if inner := quoted[1 : len(quoted)-1]; strings.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var text string
	_ = json.Unmarshal(bytesOf(quoted), &text) // The scanner accepted it.
	return text
}

func quote(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		// Not reached: every string can be encoded.
		return []byte(`""`)
	}
	return quoted
}

// EachPart calls visit with the members of a JSON object, or with the elements of a list, which have no name, in their order. The JSON is that of
// an [Object], or a part of it: it is not checked again. The bytes must not be modified.
func EachPart(data []byte, visit func(name string, value []byte)) {
	s := scanner{data: data}
	named := s.space() == '{'
	if !named && s.space() != '[' {
		return
	}
	for {
		s.pos++ // The bracket, or the comma.
		if c := s.space(); c == '}' || c == ']' {
			return
		}
		name := ""
		if named {
			end := textEnd(data, s.pos)
			name, s.pos = unquote(stringOf(data[s.pos:end])), end
			s.space()
			s.pos++ // The colon.
			s.space()
		}
		end := valueEnd(data, s.pos)
		visit(name, data[s.pos:end])
		if s.pos = end; s.space() != ',' {
			return
		}
	}
}

// valueEnd returns where the value ends that begins at a place of JSON that was checked.
func valueEnd(data []byte, pos int) int {
	for depth := 0; pos < len(data); pos++ {
		switch c := data[pos]; c {
		case '"':
			pos = textEnd(data, pos) - 1
			if depth == 0 {
				return pos + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return pos // The value before it has no end of its own.
			}
			if depth == 0 {
				return pos + 1
			}
		default:
			if depth == 0 && (c == ',' || isSpace(c)) {
				return pos
			}
		}
	}
	return pos
}

// textEnd returns where the text ends that begins at a place of JSON that was checked.
func textEnd(data []byte, pos int) int {
	for {
		next := bytes.IndexByte(data[pos+1:], '"')
		if next < 0 {
			return len(data) // Not reached.
		}
		pos += next + 1
		escapes := 0
		for data[pos-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return pos + 1
		}
	}
}

// member returns the value of a key of an object, the last if there are many. The JSON was checked.
func member(data, key string) (value string, ok bool) {
	if data == "" || data[0] != '{' {
		return "", false
	}
	EachPart(bytesOf(data), func(name string, found []byte) {
		if name == key {
			value, ok = stringOf(found), true
		}
	})
	return value, ok
}

// texts calls each with the keys and values of an object of strings. A null is an empty string.
func texts(data string, each func(key, value string)) {
	EachPart(bytesOf(data), func(name string, value []byte) { each(name, textOrNull(stringOf(value))) })
}

func textOrNull(raw string) string {
	if isNull(raw) {
		return ""
	}
	return unquote(raw)
}

func isNull(raw string) bool { return raw == "null" }

// Holds reports whether the object has each field that content has, with the same value: maps may have more, lists not. A null
// in content is held by a field that is missing, too. It is for a quick look at what is nearly always so, and allocates next to
// nothing; false can also mean that it is not sure, for example of two ways to write a number.
func (o *Object) Holds(content map[string]any) bool {
	s := scanner{data: bytesOf(o.json)}
	return s.space() == '{' && s.holds(content, false) == nil
}

// errOther says that the JSON is not known to hold what it should.
var errOther = errors.New("it is another value")

// equals reads a value and fails if it is not want. Maps may have more fields than want unless exact.
func (s *scanner) equals(want any, exact bool) error {
	c := s.space()
	switch want := want.(type) {
	case map[string]any:
		if c != '{' {
			return errOther
		}
		return s.holds(want, exact)
	case []any:
		if c != '[' {
			return errOther
		}
		return s.lists(want)
	}
	at, err := s.value()
	if err != nil {
		return err
	}
	if !isScalar(stringOf(s.data[at.start:at.end]), want) {
		return errOther
	}
	return nil
}

func (s *scanner) holds(want map[string]any, exact bool) error {
	var few [16]string
	found := few[:0]
	// many are what there is no room for in few.
	var many map[string]struct{}
	err := s.members(func(key span, _ bool) error {
		name := unquote(stringOf(s.data[key.start:key.end]))
		value, ok := want[name]
		switch {
		case ok && (slices.Contains(found, name) || has(many, name)):
			// Of a field given twice the last one counts; that is rare enough for not being sure.
			return errOther
		case ok:
			switch {
			case value == nil && !exact:
			case len(found) < len(few):
				found = append(found, name)
			default:
				if many == nil {
					many = map[string]struct{}{}
				}
				many[name] = struct{}{}
			}
			return s.equals(value, exact)
		case exact:
			return errOther
		}
		_, err := s.value()
		return err
	})
	if err != nil {
		return err
	}
	needed := len(want)
	for _, value := range want {
		if value == nil && !exact {
			needed--
		}
	}
	if len(found)+len(many) < needed {
		return errOther
	}
	return nil
}

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

func (s *scanner) lists(want []any) error {
	next := 0
	err := s.elements(func() error {
		if next == len(want) {
			return errOther
		}
		next++
		return s.equals(want[next-1], true)
	})
	if err == nil && next < len(want) {
		err = errOther
	}
	return err
}

// isScalar reports whether the JSON of a value that is no map and no list is want.
func isScalar(raw string, want any) bool {
	switch want := want.(type) {
	case nil:
		return isNull(raw)
	case bool:
		return raw == strconv.FormatBool(want)
	case string:
		return raw[0] == '"' && unquote(raw) == want
	case int64:
		var digits [20]byte
		return raw == string(strconv.AppendInt(digits[:0], want, 10))
	}
	return false
}
