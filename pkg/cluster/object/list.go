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
	"fmt"
	"math"
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

// ParseList reads a list. The data may be reused by the caller afterwards. Elements that do not name their type get it from
// the list's: a PodList has Pods.
func ParseList(data []byte, o ParseOptions) (*List, error) {
	if int64(len(data)) > math.MaxInt32 {
		return nil, fmt.Errorf("parsing a list: %d bytes are too many", len(data))
	}
	list := &List{}
	items, err := list.read(data)
	if err != nil {
		return nil, fmt.Errorf("parsing a list: %w", err)
	}
	o.APIVersion, o.Kind = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
	list.Items = make([]*Object, 0, len(items))
	for _, at := range items {
		item, err := Parse(data[at.start:at.end], o)
		if err != nil {
			return nil, fmt.Errorf("parsing element %d of a list: %w", len(list.Items), err)
		}
		list.Items = append(list.Items, item)
	}
	return list, nil
}

// read reads the list itself, and returns where its elements are.
func (l *List) read(data []byte) (items []span, err error) {
	s := scanner{data: data}
	if s.space() != '{' {
		return nil, s.fail("a list")
	}
	text := func(to *string) error {
		at, err := s.value()
		if err == nil {
			err = setText(to, "field", string(data[at.start:at.end]))
		}
		return err
	}
	err = s.members(func(key span, _ bool) error {
		switch unquote(stringOf(data[key.start:key.end])) {
		case "apiVersion":
			return text(&l.APIVersion)
		case "kind":
			return text(&l.Kind)
		case "metadata":
			at, err := s.value()
			if err != nil {
				return err
			}
			return l.readMetadata(string(data[at.start:at.end]))
		case "items":
			items = nil
			switch s.space() {
			case '[':
			case 'n':
				return s.literal("null")
			default:
				return s.fail("an array as items")
			}
			return s.elements(func() error {
				at, err := s.value()
				items = append(items, at)
				return err
			})
		default:
			_, err := s.value()
			return err
		}
	})
	return items, err
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
	if raw, ok := member(data, "remainingItemCount"); ok && raw != "null" {
		n, err := strconv.ParseInt(raw, 10, 64)
		if err != nil {
			return fmt.Errorf("reading remainingItemCount: %w", err)
		}
		l.RemainingItemCount = &n
	}
	return nil
}
