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
	"math"
	"strings"
	"unique"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ParseOptions say what of an object is kept.
type ParseOptions struct {
	// APIVersion and Kind are given to an object that does not name its own, as the elements of a list of a built-in kind do
	// not.
	APIVersion, Kind string
	// KeepManagedFields keeps metadata.managedFields in the object's JSON. By default it is cut out.
	KeepManagedFields bool
	// Managers are prefixes of the names of field managers. [Object.AppliedFields] knows what these managers applied. Empty: nothing.
	Managers []string
}

// errDuplicate says that a field that matters was there twice.
var errDuplicate = errors.New("duplicate field")

// Parse reads one API object. It checks all of the JSON, and fails if data is not one JSON object or a metadata field has
// the wrong type; fields that are missing or null are empty. Of a field given twice the last one counts, as everywhere in
// Kubernetes. Data is copied and may be used again by the caller.
func Parse(data []byte, o ParseOptions) (*Object, error) {
	object, err := parse(data, o)
	if err != nil {
		return nil, fmt.Errorf("parsing an object: %w", err)
	}
	return object, nil
}

func parse(data []byte, o ParseOptions) (*Object, error) {
	if int64(len(data)) > math.MaxInt32 {
		return nil, fmt.Errorf("%d bytes are more than an object can have", len(data))
	}
	f := fields{scanner: scanner{data: data}}
	err := f.read()
	if errors.Is(err, errDuplicate) {
		// Such JSON is legal and never sent by an API server, so it may cost.
		if data, err = deduplicate(data); err != nil {
			return nil, err
		}
		f = fields{scanner: scanner{data: data}}
		err = f.read()
	}
	if err != nil {
		return nil, err
	}
	return f.object(o)
}

func deduplicate(data []byte) ([]byte, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// fields is where the values of interest are in the data.
type fields struct {
	scanner

	whole, apiVersion, kind                          span
	name, namespace, uid, resourceVersion            span
	generation, created, deleted                     span
	labels, annotations, owners, finalizers, managed span
	metadata                                         bool
	// cut is the managedFields with the comma before or after it.
	cut span
}

func (f *fields) read() error {
	if f.space() != '{' {
		return f.fail("an object")
	}
	start := f.pos
	err := f.members(func(key span, escaped bool) error {
		switch f.key(key, escaped) {
		case "apiVersion":
			return f.put(&f.apiVersion, '"')
		case "kind":
			return f.put(&f.kind, '"')
		case "metadata":
			if f.metadata {
				return errDuplicate
			}
			f.metadata = true
			switch f.space() {
			case '{':
				return f.readMetadata()
			case 'n':
				return f.literal("null")
			default:
				return f.fail("an object as metadata")
			}
		default:
			_, err := f.value()
			return err
		}
	})
	if err != nil {
		return err
	}
	f.whole = span{uint32(start), uint32(f.pos)} //nolint:gosec // parse checked the length.
	if f.space(); f.pos < len(f.data) {
		return f.fail("nothing after the object")
	}
	return nil
}

func (f *fields) readMetadata() error {
	first, cutting := true, false
	return f.members(func(key span, escaped bool) error {
		if cutting {
			// managedFields came first, so the comma behind it goes too.
			f.cut.end, cutting = key.start, false
		}
		wasFirst := first
		first = false
		to, want := f.metadataField(f.key(key, escaped))
		if to == nil {
			_, err := f.value()
			return err
		}
		before := f.managed
		if err := f.put(to, want); err != nil {
			return err
		}
		if to == &f.managed && before.none() {
			f.cut = span{key.start, uint32(f.pos)} //nolint:gosec // parse checked the length.
			if wasFirst {
				cutting = true
			} else {
				f.cut.start = uint32(bytes.LastIndexByte(f.data[:key.start], ',')) //nolint:gosec // parse checked the length.
			}
		}
		return nil
	})
}

// metadataField returns where to put the place of a metadata field, and how its values begin. It returns nil for a field of
// no interest.
func (f *fields) metadataField(key string) (to *span, want byte) {
	switch key {
	case "name":
		return &f.name, '"'
	case "namespace":
		return &f.namespace, '"'
	case "uid":
		return &f.uid, '"'
	case "resourceVersion":
		return &f.resourceVersion, '"'
	case "generation":
		return &f.generation, '0'
	case "creationTimestamp":
		return &f.created, '"'
	case "deletionTimestamp":
		return &f.deleted, '"'
	case "labels":
		return &f.labels, '{'
	case "annotations":
		return &f.annotations, '{'
	case "ownerReferences":
		return &f.owners, '['
	case "finalizers":
		return &f.finalizers, '['
	case "managedFields":
		return &f.managed, '['
	default:
		return nil, 0
	}
}

// key returns the text of a key, valid until the data change.
func (f *fields) key(at span, escaped bool) string {
	raw := f.data[at.start:at.end]
	if escaped {
		return unquote(stringOf(raw))
	}
	return stringOf(raw[1 : len(raw)-1])
}

// put reads a value that begins with want into to, and nothing if it is null.
func (f *fields) put(to *span, want byte) error {
	if !to.none() {
		return errDuplicate
	}
	c := f.space()
	if c == 'n' {
		// A mark, so that a second value is noticed. An empty span is as good as none for all who read it.
		*to = span{uint32(f.pos), uint32(f.pos)} //nolint:gosec // parse checked the length.
		return f.literal("null")
	}
	isNumber := c == '-' || c >= '0' && c <= '9'
	if c != want && (want != '0' || !isNumber) {
		return f.fail("a value of another type")
	}
	var err error
	switch {
	case to == &f.labels || to == &f.annotations:
		*to, err = f.texts('{')
	case to == &f.finalizers:
		*to, err = f.texts('[')
	default:
		*to, err = f.value()
	}
	return err
}

// texts reads an object or an array whose values are strings or null.
func (f *fields) texts(kind byte) (span, error) {
	start := f.pos
	each := func() error {
		switch f.space() {
		case '"':
			_, err := f.text()
			return err
		case 'n':
			return f.literal("null")
		default:
			return f.fail("a string")
		}
	}
	var err error
	if kind == '{' {
		err = f.members(func(span, bool) error { return each() })
	} else {
		err = f.elements(each)
	}
	return span{uint32(start), uint32(f.pos)}, err //nolint:gosec // parse checked the length.
}

// object makes an object of what was read.
func (f *fields) object(options ParseOptions) (*Object, error) {
	cut := f.cut
	if options.KeepManagedFields || cut.start == cut.end {
		cut = span{f.whole.end, f.whole.end}
	}
	meta := typeMeta{f.textAt(f.apiVersion), f.textAt(f.kind)}
	var missing typeMeta
	if f.apiVersion.none() {
		missing.apiVersion, meta.apiVersion = options.APIVersion, options.APIVersion
	}
	if f.kind.none() {
		missing.kind, meta.kind = options.Kind, options.Kind
	}
	start, prefix := f.whole.start, ""
	if missing != (typeMeta{}) {
		// The prefix takes the place of the opening brace.
		prefix = missing.prefix(f.empty())
		start++
	}
	var b strings.Builder
	b.Grow(len(prefix) + int(f.whole.end-start) - int(cut.end-cut.start))
	b.WriteString(prefix)
	b.Write(f.data[start:cut.start])
	b.Write(f.data[cut.end:f.whole.end])

	at := mover{cut: cut, start: start, prefix: uint32(len(prefix))} //nolint:gosec // A type's name is short.
	o := &Object{
		json:            b.String(),
		typ:             unique.Make(meta),
		namespace:       unique.Make(f.textAt(f.namespace)),
		name:            at.move(f.name),
		uid:             at.move(f.uid),
		resourceVersion: at.move(f.resourceVersion),
		labels:          at.move(f.labels),
		annotations:     at.move(f.annotations),
		owners:          at.move(f.owners),
		finalizers:      at.move(f.finalizers),
		created:         at.move(f.created),
		deleted:         at.move(f.deleted),
	}
	if m := f.managed; !m.none() {
		o.applied = appliedIn(f.data[m.start:m.end], options.Managers)
	}
	if err := o.complete(at.move(f.generation)); err != nil {
		return nil, err
	}
	return o, nil
}

// empty says whether the object has no fields.
func (f *fields) empty() bool {
	s := scanner{data: f.data, pos: int(f.whole.start) + 1}
	return s.space() == '}'
}

// textAt returns the text of a string, valid until the data change.
func (f *fields) textAt(at span) string { return textIn(stringOf(f.data), at) }

// mover tells where a part of the data is in the object's JSON.
type mover struct {
	cut           span
	start, prefix uint32
}

func (m mover) move(s span) span {
	if s.start == s.end {
		return span{}
	}
	if s.start >= m.cut.end {
		gone := m.cut.end - m.cut.start
		s.start, s.end = s.start-gone, s.end-gone
	}
	return span{s.start - m.start + m.prefix, s.end - m.start + m.prefix}
}
