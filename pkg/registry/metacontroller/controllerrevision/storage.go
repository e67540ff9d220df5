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

package controllerrevision

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/ratcheting"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/table"
)

// deleteWorkers is how many revisions are deleted at the same time when a namespace ends.
const deleteWorkers = 8

// REST serves ControllerRevisions.
type REST struct {
	*genericregistry.Store
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.StorageWithReadiness = &REST{}
)

// NewREST builds the store for objects of scheme.
func NewREST(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*REST, error) {
	strategy := NewStrategy(scheme)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &metacontroller.ControllerRevision{} },
		NewListFunc:               func() runtime.Object { return &metacontroller.ControllerRevisionList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("controllerrevisions"),
		SingularQualifiedResource: v1alpha1.Resource("controllerrevision"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            Table(),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		return nil, err
	}
	store.DeleteCollectionWorkers = max(store.DeleteCollectionWorkers, deleteWorkers)
	return &REST{store}, nil
}

// Categories are the groups of kinds to which kubectl counts this one.
func (*REST) Categories() []string { return []string{"metacontroller"} }

// Table returns the columns of kubectl get controllerrevisions.metacontroller.k8s.io.
func Table() table.Convertor {
	return table.Convertor{
		Columns: []metav1.TableColumnDefinition{
			table.NameColumn(),
			{Name: "Parent", Type: "string", Description: "Object whose revision this is: its kind and name."},
			{Name: "Latest", Type: "boolean", Description: "Whether this is the parent's latest revision; the others go when no child is on them."},
			{Name: "Children", Type: "integer", Description: "Number of children that are on this revision."},
			table.AgeColumn(),
		},
		Cells: cells,
		Clock: clock.RealClock{},
	}
}

func cells(object runtime.Object, now time.Time) ([]any, error) {
	o, ok := object.(*metacontroller.ControllerRevision)
	if !ok {
		return nil, fmt.Errorf("printing a %T as a ControllerRevision", object)
	}
	children := int64(0)
	for _, kind := range o.Children {
		children += int64(len(kind.Names))
	}
	_, superseded := o.Annotations[v1alpha1.AnnotationSuperseded]
	return []any{o.Name, parent(o), !superseded, children, table.Age(o, now)}, nil
}

func parent(o *metacontroller.ControllerRevision) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return table.None
	}
	gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	return gvk.GroupKind().String() + "/" + owner.Name
}

// Strategy rules writes of ControllerRevisions. Create it with NewStrategy.
type Strategy struct {
	ratcheting.Validation
	names.NameGenerator
}

var (
	_ rest.RESTCreateStrategy            = Strategy{}
	_ rest.RESTUpdateStrategy            = Strategy{}
	_ rest.RESTDeleteStrategy            = Strategy{}
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
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.ValidateControllerRevision(o)
}

// NamespaceScoped is true.
func (Strategy) NamespaceScoped() bool { return true }

// PrepareForCreate starts the generation.
func (Strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	o.Generation = 1
}

// PrepareForUpdate counts the generation up when anything outside of the metadata changes, as with custom resources.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	if !validation.SamePatch(o.ParentPatch.Raw, was.ParentPatch.Raw) || !apiequality.Semantic.DeepEqual(o.Children, was.Children) {
		o.Generation = was.Generation + 1
	}
}

// Validate checks what the generated validation cannot.
func (Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return rules(obj)
}

// WarningsOnCreate tells what is said twice.
func (Strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.WarningsForControllerRevision(o)
}

// ValidateUpdate checks the same, where what was wrong before and did not change is no error, and that parentPatch stays as it is:
// hooks are shown what is in it as the parent's. The engine alone changes it, to repair what is damaged.
func (Strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	errs := rules(obj)
	if !validation.SamePatch(o.ParentPatch.Raw, was.ParentPatch.Raw) && !byServer(ctx) {
		errs = append(errs, field.Forbidden(field.NewPath("parentPatch"), "may not change; only this server writes it"))
	}
	return errs
}

// byServer reports whether the request was made by this server itself, through its loopback client.
func byServer(ctx context.Context) bool {
	requester, ok := request.UserFrom(ctx)
	return ok && requester.GetName() == user.APIServerUser && slices.Contains(requester.GetGroups(), user.SystemPrivilegedGroup)
}

// WarningsOnUpdate tells the same when the children change.
func (s Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	if apiequality.Semantic.DeepEqual(o.Children, was.Children) {
		return nil
	}
	return s.WarningsOnCreate(ctx, obj)
}
