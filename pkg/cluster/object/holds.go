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
	"slices"
	"strconv"
)

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
