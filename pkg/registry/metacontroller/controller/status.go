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
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// StatusStrategy rules writes through the status endpoint. Create it with Strategy.ForStatus.
type StatusStrategy[O Object[O]] struct {
	Strategy[O]
}

var (
	_ rest.RESTUpdateStrategy  = StatusStrategy[*metacontroller.CompositeController]{}
	_ rest.ResetFieldsStrategy = StatusStrategy[*metacontroller.CompositeController]{}
)

// ForStatus returns the status strategy that belongs to the strategy.
func (s Strategy[O]) ForStatus() StatusStrategy[O] { return StatusStrategy[O]{s} }

// GetResetFields names what server-side apply must not own through this endpoint.
func (StatusStrategy[O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return fieldSet("metadata", "spec")
}

// PrepareForUpdate keeps everything but the status. The managed fields are kept as well, since they say who wrote it.
func (s StatusStrategy[O]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o, was, written := of[O](obj), of[O](old), s.kind.New()
	s.kind.SetStatus(written, o)
	uid, managed := o.GetUID(), o.GetManagedFields()
	was.DeepCopyInto(o)
	s.kind.SetStatus(o, written)
	// A UID that is not the object's is kept, so that validation refuses it.
	o.SetUID(cmp.Or(uid, was.GetUID()))
	o.SetManagedFields(managed)
}

// ValidateUpdate leaves the status to the generated validation.
func (StatusStrategy[O]) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return nil
}

// WarningsOnUpdate returns nothing: who writes the status did not write the definition.
func (StatusStrategy[O]) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string {
	return nil
}
