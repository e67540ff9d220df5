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

package controller

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/table"
)

// Object is a hub type of controllers, as a pointer.
type Object[O any] interface {
	runtime.Object
	metav1.Object
	DeepCopyInto(to O)
}

// Kind is what one kind of controllers has of its own. Set every field; it is safe for concurrent use.
type Kind[O Object[O]] struct {
	// Resource is the name in paths, and Singular that of one object.
	Resource, Singular string
	// ShortNames are the names that kubectl accepts beside those (docs/reference/contract.md#s1).
	ShortNames []string
	// New returns an empty object.
	New func() O
	// NewList returns an empty list.
	NewList func() runtime.Object
	// Spec returns the definition, to be compared with another one.
	Spec func(o O) any
	// SetStatus gives an object the status of another one.
	SetStatus func(o, from O)
	// Validate checks the rules that join several fields of a new object.
	Validate func(o O) field.ErrorList
	// ValidateUpdate checks them for an object whose definition was another one, and returns nothing if it was the same.
	ValidateUpdate func(o, was O) field.ErrorList
	// Warnings tells what in a definition has no effect or will keep the controller from running.
	Warnings func(o O) []string
	// Fields are what objects are selected by beside their names.
	Fields func(o O) fields.Set
	// Table prints objects.
	Table table.Convertor
}

// Attributes returns what lists and watches can select by: the labels, the name, and the fields of the kind.
func (k Kind[O]) Attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	o, ok := object.(O)
	if !ok {
		return nil, nil, fmt.Errorf("selecting a %T as a %T", object, o)
	}
	set := k.Fields(o)
	set["metadata.name"] = o.GetName()
	return o.GetLabels(), set, nil
}

// Predicate selects by labels and by the fields that Attributes has.
func (k Kind[O]) Predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.Attributes}
}
