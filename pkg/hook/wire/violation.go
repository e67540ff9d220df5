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

package wire

import (
	"bytes"
	gojson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/json"
)

// maxQuoted is how many bytes of a response that is not JSON are quoted in a message.
const maxQuoted = 60

// byteOrderMark is what some programs write before a text in UTF-8. JSON must not have it (RFC 8259, 8.1).
var byteOrderMark = []byte("\ufeff")

// notAnObject returns what is wrong with a body that does not begin as a JSON object does, or "".
func notAnObject(body []byte, contentType string) string {
	const must = "the response must be a JSON object"
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		return must + ", is empty" + ofType(contentType) + "; to want no children, return {}"
	}
	switch c := trimmed[0]; {
	case c == '{':
		return ""
	case gojson.Valid(body):
		return must + ", is " + describe(trimmed) + ofType(contentType)
	}
	if bytes.HasPrefix(trimmed, byteOrderMark) {
		return must + ", begins with a byte order mark" + ofType(contentType) + "; write it as UTF-8 without one"
	}
	if quoted := quote(trimmed); quoted != "" {
		return must + ", is not JSON" + ofType(contentType) + ": it begins with " + quoted
	}
	return must + ", is not JSON and not text" + ofType(contentType)
}

// moreValuesThan reports whether a JSON text holds more than limit values. The result for a text that is not JSON is undefined.
func moreValuesThan(body []byte, limit int) bool {
	if len(body)/2 <= limit { // a value and what follows it take two bytes
		return false
	}
	count := 1
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case ',', '[', '{':
			count++
			if count > limit {
				return true
			}
		case '"':
			i = endOfString(body, i)
		}
	}
	return false
}

// endOfString returns the index of the quote that ends the string which begins at start, or the end of body.
func endOfString(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(body)
}

func ofType(contentType string) string {
	if contentType == "" {
		return " (no Content-Type)"
	}
	return fmt.Sprintf(" (Content-Type %.80q)", contentType)
}

// quote returns the beginning of a text on one line, or "" when it is not text.
func quote(body []byte) string {
	start := body[:min(len(body), maxQuoted)]
	for len(start) > 0 && !utf8.Valid(start) && len(start) > maxQuoted-utf8.UTFMax {
		start = start[:len(start)-1] // a character may have been cut in two
	}
	if !utf8.Valid(start) {
		return ""
	}
	for _, r := range string(start) {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return ""
		}
	}
	return fmt.Sprintf("%q", strings.Join(strings.Fields(string(start)), " "))
}

// describe names the type of a JSON value.
func describe(v []byte) string {
	if len(v) == 0 {
		return "missing"
	}
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// rejectDecoding turns an error of the decoder into a sentence for the author of the hook.
func (d *decoding) rejectDecoding(field string, err error) {
	if syntax, offset := json.SyntaxErrorOffset(err); syntax {
		d.rejectf(field, "the response is not valid JSON%s: %v, at byte %d", ofType(d.options.ContentType), err, offset)
		return
	}
	wrongType, ok := errors.AsType[*gojson.UnmarshalTypeError](err)
	if !ok {
		d.rejectf(field, "cannot be decoded: %v", err)
		return
	}
	at := strings.Trim(field+"."+wrongType.Field, ".")
	if number, ok := strings.CutPrefix(wrongType.Value, "number "); ok {
		d.rejectf(at, "holds the number %.40s, which is out of range", number)
		return
	}
	d.rejectf(at, "must be %s, is %s", describeGo(wrongType.Type), describeValue(wrongType.Value))
}

// describeGo names the JSON type that decodes into a Go type.
func describeGo(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	default:
		return "a " + t.Kind().String()
	}
}

// describeValue names a JSON type as the decoder's errors spell it.
func describeValue(value string) string {
	switch value {
	case "array":
		return "a list"
	case "bool":
		return "a boolean"
	case "object":
		return "an object"
	default:
		return "a " + value
	}
}
