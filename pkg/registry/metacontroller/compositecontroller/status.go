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

package compositecontroller

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// StatusStrategy rules writes through the status endpoint. Create it with NewStatusStrategy.
type StatusStrategy struct {
	Strategy
}

var (
	_ rest.RESTUpdateStrategy  = StatusStrategy{}
	_ rest.ResetFieldsStrategy = StatusStrategy{}
)

// NewStatusStrategy returns the status strategy that belongs to strategy.
func NewStatusStrategy(strategy Strategy) StatusStrategy { return StatusStrategy{strategy} }

// GetResetFields names what server-side apply must not own through this endpoint.
func (StatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")),
	}
}

// PrepareForUpdate keeps everything but the status. The managed fields are kept as well, since they say who wrote it.
func (StatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o, was := pair(obj, old)
	uid, status, managed := o.UID, o.Status, o.ManagedFields
	was.DeepCopyInto(o)
	// A UID that is not the object's is kept, so that validation refuses it.
	o.UID, o.Status, o.ManagedFields = cmp.Or(uid, was.UID), status, managed
}

// ValidateUpdate leaves the status to the generated validation.
func (StatusStrategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return nil
}

// WarningsOnUpdate returns nothing: who writes the status did not write the definition.
func (StatusStrategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }
