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
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/ratcheting"
)

// Strategy rules writes of a CompositeController itself. Create it with NewStrategy.
type Strategy struct {
	ratcheting.Validation
	names.NameGenerator
}

var (
	_ rest.RESTCreateStrategy            = Strategy{}
	_ rest.RESTUpdateStrategy            = Strategy{}
	_ rest.RESTDeleteStrategy            = Strategy{}
	_ rest.ResetFieldsStrategy           = Strategy{}
	_ rest.DeclarativeValidationStrategy = Strategy{}
)

// NewStrategy returns the strategy for objects of scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy {
	return Strategy{
		ratcheting.Validation{
			DeclarativeValidation: rest.DeclarativeValidation{Scheme: scheme},
			Version:               v1alpha1.SchemeGroupVersion,
			Rules:                 rules,
		},
		names.SimpleNameGenerator,
	}
}

func rules(obj runtime.Object) field.ErrorList {
	o := obj.(*metacontroller.CompositeController) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.ValidateCompositeController(o)
}

// NamespaceScoped is false: the kind is cluster-scoped.
func (Strategy) NamespaceScoped() bool { return false }

// GetResetFields names what server-side apply must not own through this endpoint.
func (Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	}
}

// PrepareForCreate starts the generation and drops a status, which only the status endpoint may set.
func (Strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	o := obj.(*metacontroller.CompositeController) //nolint:forcetypeassert // The store holds objects of this kind alone.
	o.Status = metacontroller.CompositeControllerStatus{}
	o.Generation = 1
}

// PrepareForUpdate keeps the status, and counts the generation up when the definition changes.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o, was := pair(obj, old)
	o.Status = was.Status
	if !apiequality.Semantic.DeepEqual(o.Spec, was.Spec) {
		o.Generation = was.Generation + 1
	}
}

// Validate checks the rules that join several fields; the generated validation checks the rest.
func (Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return rules(obj)
}

// ValidateUpdate checks a definition only when it changes. What was wrong before and did not change is no error then, so that
// objects stored under older rules can be labeled, finalized, deleted, and changed elsewhere.
func (Strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateCompositeControllerUpdate(pair(obj, old))
}

// WarningsOnCreate tells what in the definition has no effect or will keep the controller from running.
func (Strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	o := obj.(*metacontroller.CompositeController) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.WarningsForCompositeController(o)
}

// WarningsOnUpdate is the same for a changed definition.
func (Strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	o, was := pair(obj, old)
	if apiequality.Semantic.DeepEqual(o.Spec, was.Spec) {
		return nil
	}
	return validation.WarningsForCompositeController(o)
}

// Canonicalize changes nothing: objects are stored as their authors wrote them.
func (Strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate is false: PUT of an object that does not exist is NotFound, as with custom resources.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: PUT needs a resourceVersion, as with custom resources.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

func pair(obj, old runtime.Object) (o, was *metacontroller.CompositeController) {
	o = obj.(*metacontroller.CompositeController)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was = old.(*metacontroller.CompositeController) //nolint:forcetypeassert // The same.
	return o, was
}
