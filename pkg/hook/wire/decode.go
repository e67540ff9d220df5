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
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// value is a JSON value that is decoded later. It shares the memory of the body. It is empty when the field was absent.
type value []byte

// UnmarshalJSON keeps data, which is a part of the body and is not modified.
func (v *value) UnmarshalJSON(data []byte) error {
	*v = data
	return nil
}

// absent reports whether the field was missing or null, which mean the same wherever the protocol allows null.
func (v value) absent() bool { return len(v) == 0 || v[0] == 'n' }

// decoding reads one response. After the first violation its methods return zero values.
type decoding struct {
	options ResponseOptions
	// violation is why the response is rejected; nil if it is not.
	violation *hook.RejectedError
	// unexpected are unknown and duplicate fields, and ignored those of a response that is not read strictly.
	unexpected, ignored []string
	// lacks is the name of the list of children if the response does not have it. An unknown field may be meant for it.
	lacks string
}

// maxUnexpected is how many unknown or duplicate fields are named in messages.
const maxUnexpected = 5

// maxValues is how many JSON values a response may hold. Decoded, each takes some 64 bytes, although it may be as short as "0,":
// the limit on bytes alone would let one response fill a gigabyte. Ten thousand children of common size are below it.
const maxValues = 1_000_000

func (d *decoding) rejectf(field, format string, args ...any) {
	if d.violation == nil {
		d.violation = &hook.RejectedError{Field: field, Detail: fmt.Sprintf(format, args...)}
	}
}

// finish returns the violation, if any. Unknown and duplicate fields are one when reading is strict.
func (d *decoding) finish() error {
	if d.violation == nil && d.options.Strict && len(d.unexpected) > 0 {
		found := strings.Join(d.unexpected, ", ")
		if d.lacks != "" && slices.ContainsFunc(d.unexpected, ofEnvelope) {
			found += " and no " + d.lacks
		}
		d.rejectf("", "the response is read strictly and has %s; correct the hook, or set responseUnMarshallMode: loose", found)
	}
	if d.violation != nil {
		return d.violation
	}
	d.ignored = d.unexpected
	return nil
}

// ofEnvelope reports whether an error is about an unknown field of the outermost object.
func ofEnvelope(unexpected string) bool {
	field, ok := strings.CutPrefix(unexpected, "unknown field ")
	return ok && !strings.ContainsAny(field, ".[")
}

// unmarshal decodes data into target, which is at field within the response, and collects unknown and duplicate fields.
func (d *decoding) unmarshal(data []byte, target any, field string) error {
	strict, err := json.UnmarshalStrict(data, target)
	for _, found := range strict {
		if len(d.unexpected) == maxUnexpected {
			break
		}
		if fieldError, ok := errors.AsType[json.FieldError](found); ok && field != "" {
			fieldError.SetFieldPath(field + "." + fieldError.FieldPath())
		}
		d.unexpected = append(d.unexpected, found.Error())
	}
	return err
}

// envelope decodes the outermost object. Fields of it that are lists must be []value, all others value.
func (d *decoding) envelope(body []byte, target any) {
	if wrong := notAnObject(body, d.options.ContentType); wrong != "" {
		d.rejectf("", "%s", wrong)
		return
	}
	if moreValuesThan(body, maxValues) {
		d.rejectf("", "the response holds more than %d values; let the hook return less", maxValues)
		return
	}
	if err := d.unmarshal(body, target, ""); err != nil {
		d.rejectDecoding("", err)
	}
}

// object decodes a JSON object with unknown fields, or returns nil when it is absent.
func (d *decoding) object(field string, v value) map[string]any {
	if d.violation != nil || v.absent() {
		return nil
	}
	if v[0] != '{' {
		d.rejectf(field, "must be an object, is %s", describe(v))
		return nil
	}
	object := map[string]any{}
	if err := d.unmarshal(v, &object, field); err != nil {
		d.rejectDecoding(field, err)
	}
	return object
}

// list returns the text of a JSON list, empty when it is absent or has no elements.
func (d *decoding) list(field string, v value) []byte {
	if d.violation != nil || v.absent() {
		return nil
	}
	if v[0] != '[' {
		d.rejectf(field, "must be a list, is %s", describe(v))
		return nil
	}
	if len(bytes.TrimLeft(v[1:], " \t\r\n")) == 1 {
		return nil
	}
	return slices.Clip(v)
}

// children decodes a list that is not empty.
func (d *decoding) children(field string, list []byte) []map[string]any {
	var values []value
	if err := json.UnmarshalCaseSensitivePreserveInts(list, &values); err != nil {
		d.rejectDecoding(field, err)
		return nil
	}
	children := make([]map[string]any, 0, len(values))
	for i, v := range values {
		at := index(field, i)
		if len(v) == 0 || v[0] != '{' {
			d.rejectf(at, "must be an object, is %s", describe(v))
			return nil
		}
		// The inside of children is the business of the API server, unknown and duplicate fields too (docs/reference/contract.md#s2.5).
		object := map[string]any{}
		if err := json.UnmarshalCaseSensitivePreserveInts(v, &object); err != nil {
			d.rejectDecoding(at, err)
			return nil
		}
		if kind, ok := object["kind"].(string); !ok || kind == "" {
			d.rejectf(at, "has no kind; each child needs apiVersion, kind and metadata.name")
			return nil
		}
		children = append(children, object)
	}
	return children
}

func (d *decoding) rules(field string, values []value) []hook.RelatedResourceRule {
	if d.violation != nil || len(values) == 0 {
		return nil
	}
	rules := make([]hook.RelatedResourceRule, len(values))
	for i, v := range values {
		at := index(field, i)
		if len(v) == 0 || v[0] != '{' {
			d.rejectf(at, "must be an object, is %s", describe(v))
			return nil
		}
		if err := d.unmarshal(v, &rules[i], at); err != nil {
			d.rejectDecoding(at, err)
			return nil
		}
		if err := rules[i].Validate(); err != nil {
			d.rejectf(at, "%v", err)
			return nil
		}
	}
	return rules
}

// stringsOrNull decodes labels or annotations, where null is a value with a meaning.
func (d *decoding) stringsOrNull(field string, v value) map[string]*string {
	if d.violation != nil || v.absent() {
		return nil
	}
	if v[0] != '{' {
		d.rejectf(field, "must be an object, is %s", describe(v))
		return nil
	}
	values := map[string]value{}
	if err := d.unmarshal(v, &values, field); err != nil {
		d.rejectDecoding(field, err)
		return nil
	}
	decoded := make(map[string]*string, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		item := values[key]
		if item.absent() {
			decoded[key] = nil
			continue
		}
		text := ""
		if item[0] != '"' || json.UnmarshalCaseSensitivePreserveInts(item, &text) != nil {
			d.rejectf(fmt.Sprintf("%s[%q]", field, key), "must be a string or null, is %s", describe(item))
			return nil
		}
		decoded[key] = &text
	}
	return decoded
}

// seconds decodes a number of seconds, at most hook.MaxDelay. Negative numbers mean the same as 0.
func (d *decoding) seconds(field string, v value) time.Duration {
	if d.violation != nil || v.absent() {
		return 0
	}
	seconds, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		d.rejectf(field, "must be a number, is %s", describe(v))
		return 0
	case math.IsNaN(seconds) || seconds <= 0:
		return 0
	case seconds >= hook.MaxDelay.Seconds():
		return hook.MaxDelay
	}
	// A positive time never becomes 0, which would mean "none".
	return max(time.Duration(seconds*float64(time.Second)), 1)
}

func (d *decoding) boolean(field string, v value) bool {
	if d.violation != nil || v.absent() {
		return false
	}
	if v[0] != 't' && v[0] != 'f' {
		d.rejectf(field, "must be true or false, is %s", describe(v))
	}
	return v[0] == 't'
}

func index(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

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
	if !utf8.Valid(start) || bytes.ContainsFunc(start, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }) {
		return ""
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
