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

package metacontroller

import (
	"errors"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// SchemeGroupVersion is the hub version, which is never served nor stored.
var SchemeGroupVersion = schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}

// AddToScheme adds the hub types to a scheme, with their conversions and with the types of subresources.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&CompositeController{}, &CompositeControllerList{},
		&DecoratorController{}, &DecoratorControllerList{},
		&ControllerRevision{}, &ControllerRevisionList{},
	)
	v1alpha1.AddReports(scheme, SchemeGroupVersion)
	return errors.Join(
		addConversions[CompositeController, v1alpha1.CompositeController](scheme),
		addConversions[CompositeControllerList, v1alpha1.CompositeControllerList](scheme),
		addConversions[DecoratorController, v1alpha1.DecoratorController](scheme),
		addConversions[DecoratorControllerList, v1alpha1.DecoratorControllerList](scheme),
		addConversions[ControllerRevision, v1alpha1.ControllerRevision](scheme),
		addConversions[ControllerRevisionList, v1alpha1.ControllerRevisionList](scheme),
	)
}

// addConversions adds those from a hub type to its version and back. As with conversions that are generated, both share their memory: they must
// have the same layout, as the test of package install checks.
func addConversions[Hub, Version any](scheme *runtime.Scheme) error {
	return errors.Join(
		scheme.AddConversionFunc((*Hub)(nil), (*Version)(nil), convert[Hub, Version]),
		scheme.AddConversionFunc((*Version)(nil), (*Hub)(nil), convert[Version, Hub]),
	)
}

func convert[From, To any](from, to any, _ conversion.Scope) error {
	kind := to.(runtime.Object).GetObjectKind().(*metav1.TypeMeta) //nolint:forcetypeassert // All of them are objects.
	was := *kind
	*to.(*To) = *(*To)(unsafe.Pointer(from.(*From))) //nolint:forcetypeassert,gosec // The scheme calls it with what it is registered for.
	*kind = was                                      // The scheme gives an object its kind.
	return nil
}
