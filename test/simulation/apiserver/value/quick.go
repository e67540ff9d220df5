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

package value

import (
	"strconv"
	"unicode/utf8"
)

// deepest is how deeply JSON is nested that quick decodes.
const deepest = 100

// quick decodes a JSON object several times as fast as a library would, which knows more: it returns false for what it does not know for
// sure to be a JSON object. The strings of the object share the memory of one copy of the data.
func quick(data []byte) (Object, bool) {
	p := parser{text: string(data)}
	p.space()
	if p.next() != '{' {
		return nil, false
	}
	o, ok := p.object(0)
	p.space()
	return o, ok && p.at == len(p.text)
}

// parser is at a place in a text.
type parser struct {
	text string
	at   int
}

// next returns the byte at the place, 0 at the end.
func (p *parser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// take goes behind a byte if it is the next one behind space.
func (p *parser) take(b byte) bool {
	p.space()
	if p.next() != b {
		return false
	}
	p.at++
	return true
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) object(depth int) (Object, bool) {
	p.at++
	o := Object{}
	if p.take('}') {
		return o, true
	}
	for depth < deepest {
		p.space()
		name, ok := p.string()
		if !ok || !p.take(':') {
			return nil, false
		}
		p.space()
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		o[name] = v
		if p.take('}') {
			return o, true
		}
		if !p.take(',') {
			return nil, false
		}
	}
	return nil, false
}

func (p *parser) list(depth int) ([]any, bool) {
	p.at++
	list := []any{}
	if p.take(']') {
		return list, true
	}
	for depth < deepest {
		p.space()
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, v)
		if p.take(']') {
			return list, true
		}
		if !p.take(',') {
			return nil, false
		}
	}
	return nil, false
}

func (p *parser) value(depth int) (any, bool) {
	switch p.next() {
	case '{':
		return pair(p.object(depth))
	case '[':
		return pair(p.list(depth))
	case '"':
		return pair(p.string())
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	return p.number()
}

// pair makes an interface of a value.
func pair[T any](v T, ok bool) (any, bool) { return v, ok }

func (p *parser) word(w string) bool {
	if end := p.at + len(w); end <= len(p.text) && p.text[p.at:end] == w {
		p.at = end
		return true
	}
	return false
}

// number decodes an integer of up to 18 digits. There are few others.
func (p *parser) number() (any, bool) {
	const most = 18
	begin := p.at
	if p.next() == '-' {
		p.at++
	}
	digits := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	switch n := p.at - digits; {
	case n == 0 || n > most || n > 1 && p.text[digits] == '0':
		return nil, false
	case p.next() == '.' || p.next() == 'e' || p.next() == 'E':
		return nil, false
	}
	number, err := strconv.ParseInt(p.text[begin:p.at], 10, 64)
	return number, err == nil
}

func (p *parser) string() (string, bool) {
	if p.next() != '"' {
		return "", false
	}
	p.at++
	begin, ascii := p.at, true
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			s := p.text[begin:p.at]
			p.at++
			return s, ascii || utf8.ValidString(s)
		case c == '\\':
			return p.escaped(begin)
		case c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
		p.at++
	}
	return "", false
}

// escapes are the characters that stand for others behind a backslash.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped decodes a string that begins at a place and has a backslash.
func (p *parser) escaped(begin int) (string, bool) {
	s := append(make([]byte, 0, 2*(p.at-begin)+64), p.text[begin:p.at]...)
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == '"':
			return string(s), utf8.Valid(s)
		case c < ' ':
			return "", false
		case c != '\\':
			s = append(s, c)
		case p.next() == 'u':
			r, ok := p.rune()
			if !ok {
				return "", false
			}
			s = utf8.AppendRune(s, r)
		default:
			known := escapes[p.next()]
			if known == 0 {
				return "", false
			}
			s = append(s, known)
			p.at++
		}
	}
	return "", false
}

// rune decodes what stands behind a backslash and begins with u, unless it is half of a pair.
func (p *parser) rune() (rune, bool) {
	const length = len("u0000")
	if p.at+length > len(p.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.text[p.at+1:p.at+length], 16, 16)
	p.at += length
	return rune(n), err == nil && utf8.ValidRune(rune(n))
}
