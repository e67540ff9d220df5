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

package decoratorcontroller

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Attributes returns what lists and watches can select by: the labels, the name, and the resources of the targets.
func Attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	o, ok := object.(*metacontroller.DecoratorController)
	if !ok {
		return nil, nil, fmt.Errorf("selecting a %T as a DecoratorController", object)
	}
	set := fields.Set{}
	for i := range o.Spec.Resources {
		for label, value := range map[string]string{
			v1alpha1.FieldTargetAPIVersion: o.Spec.Resources[i].APIVersion, v1alpha1.FieldTargetResource: o.Spec.Resources[i].Resource,
		} {
			name, is := v1alpha1.FieldOfTarget(label, value)
			set[name] = is
		}
	}
	return o.Labels, generic.AddObjectMetaFieldsSet(set, &o.ObjectMeta, false), nil
}

// Predicate selects by labels and by the fields that [Attributes] has.
func Predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: Attributes}
}
