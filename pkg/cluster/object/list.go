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
	c.Items = append([]*Object(nil), l.Items...)
	return &c
}

// GetObjectKind implements runtime.Object.
func (l *List) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// ParseList takes in a list. The data may be reused by the caller afterwards.
func ParseList(data []byte, p ParseOptions) (*List, error) {
	list := &List{}
	var items []byte
	s := scanner{data: data}
	err := s.members(func(key []byte) (bool, error) {
		var err error
		switch string(key) {
		case "apiVersion":
			list.APIVersion, err = s.shared()
		case "kind":
			list.Kind, err = s.shared()
		case "metadata":
			err = list.readMetadata(&s)
		case "items":
			if s.null() {
				return true, nil
			}
			items, err = s.value()
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("parsing a list: %w", err)
	}
	if items == nil {
		return list, nil
	}
	p.APIVersion, p.Kind = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
	s = scanner{data: items}
	err = s.elements(func() error {
		element, err := s.value()
		if err != nil {
			return err
		}
		o, err := Parse(element, p)
		list.Items = append(list.Items, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("parsing a list: %w", err)
	}
	return list, nil
}

func (l *List) readMetadata(s *scanner) error {
	if s.null() {
		return nil
	}
	return s.members(func(key []byte) (bool, error) {
		var err error
		switch string(key) {
		case "resourceVersion":
			l.ResourceVersion, err = s.shared()
		case "continue":
			l.Continue, err = s.shared()
		case "remainingItemCount":
			var n int64
			n, err = s.integer()
			l.RemainingItemCount = &n
		default:
			return false, nil
		}
		return true, err
	})
}
