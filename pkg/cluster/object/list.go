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
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
