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
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/deletion"
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
	// Status returns the status of an object, to be read or replaced.
	Status func(o O) *v1alpha1.ControllerStatus
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

// Storage is every endpoint of a kind.
type Storage struct {
	// Objects serves the objects.
	Objects *REST
	// Status serves their status.
	Status *StatusREST
}

// REST serves controllers of one kind.
type REST struct {
	*deletion.Store

	// Admitted, unless it is nil, is called once in each request with an object whose definition is new or changed, after everything has admitted
	// it and before it is stored. Was is the stored one, nil for a new object. It is set before anything is served.
	Admitted func(ctx context.Context, o, was runtime.Object, write Write)

	shortNames []string
}

// Write says how an object is written.
type Write struct {
	// DryRun says that nothing is stored.
	DryRun bool
	// Manager is the field manager that the request names, if any.
	Manager string
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.StorageWithReadiness = &REST{}
)

// NewStorage builds the store and its endpoints for objects of scheme.
func (k Kind[O]) NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	strategy := k.Strategy(scheme)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return k.New() },
		NewListFunc:               k.NewList,
		DefaultQualifiedResource:  v1alpha1.Resource(k.Resource),
		SingularQualifiedResource: v1alpha1.Resource(k.Singular),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		ResetFieldsStrategy:       strategy,
		TableConvertor:            k.Table,
		PredicateFunc:             k.Predicate,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: k.Attributes}); err != nil {
		return nil, err
	}
	ofStatus, status := *store, strategy.ForStatus()
	ofStatus.UpdateStrategy, ofStatus.ResetFieldsStrategy = status, status
	return &Storage{Objects: &REST{Store: deletion.NewStore(store), shortNames: k.ShortNames}, Status: &StatusREST{&ofStatus}}, nil
}

// Create creates an object.
func (r *REST) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	validate, _ = r.telling(validate, nil, Write{DryRun: dryrun.IsDryRun(options.DryRun), Manager: options.FieldManager})
	return r.Store.Create(ctx, o, validate, options)
}

// Update changes an object, or creates it for server-side apply.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	create, update := r.telling(createValidation, updateValidation, Write{DryRun: dryrun.IsDryRun(options.DryRun), Manager: options.FieldManager})
	return r.Store.Update(ctx, name, info, create, update, forceAllowCreate, options)
}

// telling returns what admission does, followed by Admitted. A write that is tried again because of a conflict is told once.
func (r *REST) telling(
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, write Write,
) (rest.ValidateObjectFunc, rest.ValidateObjectUpdateFunc) {
	if r.Admitted == nil {
		return create, update
	}
	told := false
	tell := func(ctx context.Context, o, was runtime.Object) {
		if !told {
			told = true
			r.Admitted(ctx, o, was, write)
		}
	}
	return func(ctx context.Context, o runtime.Object) error {
			if create != nil {
				if err := create(ctx, o); err != nil {
					return err
				}
			}
			tell(ctx, o, nil)
			return nil
		}, func(ctx context.Context, o, was runtime.Object) error {
			if update != nil {
				if err := update(ctx, o, was); err != nil {
					return err
				}
			}
			if redefined(o, was) {
				tell(ctx, o, was)
			}
			return nil
		}
}

// redefined reports whether an update changes the definition, which has the generation counted up.
func redefined(o, was runtime.Object) bool {
	now, err := meta.Accessor(o)
	if err != nil {
		return false
	}
	before, err := meta.Accessor(was)
	return err == nil && now.GetGeneration() != before.GetGeneration()
}

// ShortNames are the names that kubectl accepts for the kind.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories are the groups of kinds to which kubectl counts this one.
func (*REST) Categories() []string { return []string{"metacontroller"} }

// StatusREST serves the status of controllers of one kind, from the store of the objects themselves.
type StatusREST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = &StatusREST{}
	_ rest.ResetFieldsStrategy = &StatusREST{}
)

// New returns an empty object.
func (r *StatusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the store belongs to REST.
func (*StatusREST) Destroy() {}

// Get returns the object.
func (r *StatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update writes the status of an object that exists.
func (r *StatusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	// A status must not create its object, not even by server-side apply, which asks for it.
	return r.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

// GetResetFields names what server-side apply must not own through this endpoint.
func (r *StatusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable prints the object.
func (r *StatusREST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
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
