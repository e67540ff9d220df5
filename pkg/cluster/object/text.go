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
	"strings"
	"unsafe"
)

// stringOf returns b as a string without copying. The string is valid as long as nobody writes to b.
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
	if err := json.Unmarshal(bytesOf(quoted), &text); err != nil {
		// Not reached: the scanner accepted it.
		return ""
	}
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

// member returns the value of a key of an object, the last if there are many. The JSON was checked.
func member(data, key string) (value string, ok bool) {
	if data == "" || data[0] != '{' {
		return "", false
	}
	s := scanner{data: bytesOf(data)}
	err := s.members(func(at span, escaped bool) error {
		raw := data[at.start:at.end]
		same := raw[1:len(raw)-1] == key
		if escaped {
			same = unquote(raw) == key
		}
		found, err := s.value()
		if same {
			value, ok = data[found.start:found.end], true
		}
		return err
	})
	return value, ok && err == nil
}

// texts calls each with the keys and values of an object of strings. A null is an empty string.
func texts(data string, each func(key, value string)) {
	if data == "" {
		return
	}
	s := scanner{data: bytesOf(data)}
	err := s.members(func(at span, _ bool) error {
		value, err := s.value()
		if err == nil {
			each(unquote(data[at.start:at.end]), textOrNull(data[value.start:value.end]))
		}
		return err
	})
	if err != nil {
		// Not reached: the scanner accepted the data before.
		return
	}
}

func textOrNull(raw string) string {
	if isNull(raw) {
		return ""
	}
	return unquote(raw)
}

func isNull(raw string) bool { return raw == "null" }
