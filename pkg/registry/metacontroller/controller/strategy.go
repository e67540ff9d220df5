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

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/ratcheting"
)

// Strategy rules writes of a controller itself. Create it with Kind.Strategy.
type Strategy[O Object[O]] struct {
	ratcheting.Validation
	names.NameGenerator

	kind Kind[O]
}

var (
	_ rest.RESTCreateStrategy            = Strategy[*metacontroller.CompositeController]{}
	_ rest.RESTUpdateStrategy            = Strategy[*metacontroller.CompositeController]{}
	_ rest.RESTDeleteStrategy            = Strategy[*metacontroller.CompositeController]{}
	_ rest.ResetFieldsStrategy           = Strategy[*metacontroller.CompositeController]{}
	_ rest.DeclarativeValidationStrategy = Strategy[*metacontroller.CompositeController]{}
)

// Strategy returns the strategy for objects of scheme.
func (k Kind[O]) Strategy(scheme *runtime.Scheme) Strategy[O] {
	return Strategy[O]{
		Validation: ratcheting.Validation{
			DeclarativeValidation: rest.DeclarativeValidation{Scheme: scheme},
			Version:               v1alpha1.SchemeGroupVersion,
			Rules:                 func(obj runtime.Object) field.ErrorList { return k.Validate(of[O](obj)) },
		},
		NameGenerator: names.SimpleNameGenerator,
		kind:          k,
	}
}

// of returns an object as what it is. The store holds objects of one kind alone.
func of[O Object[O]](obj runtime.Object) O { return obj.(O) } //nolint:forcetypeassert // See above.

// NamespaceScoped is false: the kinds are cluster-scoped.
func (Strategy[O]) NamespaceScoped() bool { return false }

// GetResetFields names what server-side apply must not own through this endpoint.
func (Strategy[O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return fieldSet("status")
}

func fieldSet(names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): set}
}

// PrepareForCreate starts the generation and drops a status, which only the status endpoint may set. In its place the object says that it is not
// ready: clients that know nothing of its kind take one without conditions for what it shall become.
func (s Strategy[O]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	o := of[O](obj)
	*s.kind.Status(o) = v1alpha1.ControllerStatus{Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending,
		Message: "No server has looked at this definition yet. If this stays, see the log of the server that runs controllers: it starts, or waits to " +
			"be elected.",
		LastTransitionTime: o.GetCreationTimestamp(),
	}}}
	o.SetGeneration(1)
}

// PrepareForUpdate keeps the status, and counts the generation up when the definition changes.
func (s Strategy[O]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o, was := of[O](obj), of[O](old)
	*s.kind.Status(o) = *s.kind.Status(was)
	if !s.sameSpec(o, was) {
		o.SetGeneration(was.GetGeneration() + 1)
	}
}

func (s Strategy[O]) sameSpec(o, was O) bool {
	return apiequality.Semantic.DeepEqual(s.kind.Spec(o), s.kind.Spec(was))
}

// Validate checks the rules that join several fields; the generated validation checks the rest.
func (s Strategy[O]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return s.Rules(obj)
}

// ValidateUpdate checks a definition only when it changes. What was wrong before and did not change is no error then, so that
// objects stored under older rules can be labeled, finalized, deleted, and changed elsewhere.
func (s Strategy[O]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.kind.ValidateUpdate(of[O](obj), of[O](old))
}

// WarningsOnCreate tells what in the definition has no effect or will keep the controller from running.
func (s Strategy[O]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return s.kind.Warnings(of[O](obj))
}

// WarningsOnUpdate is the same for a changed definition.
func (s Strategy[O]) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	o := of[O](obj)
	if s.sameSpec(o, of[O](old)) {
		return nil
	}
	return s.kind.Warnings(o)
}

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
	o, was := of[O](obj), of[O](old)
	written := *s.kind.Status(o)
	uid, managed := o.GetUID(), o.GetManagedFields()
	was.DeepCopyInto(o)
	*s.kind.Status(o) = written
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
