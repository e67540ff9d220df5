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

package storage

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/decoratorcontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/deletion"
)

// Storage is every endpoint of the kind.
type Storage struct {
	// DecoratorController serves the objects.
	DecoratorController *REST
	// Status serves their status.
	Status *StatusREST
}

// REST serves DecoratorControllers.
type REST struct {
	*deletion.Store
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.StorageWithReadiness = &REST{}
)

// NewStorage builds the store and its endpoints for objects of scheme.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	strategy := decoratorcontroller.NewStrategy(scheme)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &metacontroller.DecoratorController{} },
		NewListFunc:               func() runtime.Object { return &metacontroller.DecoratorControllerList{} },
		DefaultQualifiedResource:  metacontroller.Resource("decoratorcontrollers"),
		SingularQualifiedResource: metacontroller.Resource("decoratorcontroller"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		ResetFieldsStrategy:       strategy,
		TableConvertor:            decoratorcontroller.Table(),
		PredicateFunc:             decoratorcontroller.Predicate,
	}
	options := &generic.StoreOptions{RESTOptions: getter, AttrFunc: decoratorcontroller.Attributes}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, err
	}
	return &Storage{DecoratorController: &REST{deletion.NewStore(store)}, Status: newStatusREST(store, decoratorcontroller.NewStatusStrategy(strategy))}, nil
}

// ShortNames are the names that kubectl accepts for the kind (docs/reference/contract.md#s1).
func (*REST) ShortNames() []string { return []string{"dc", "dec", "decorators"} }

// Categories are the groups of kinds to which kubectl counts this one.
func (*REST) Categories() []string { return []string{"metacontroller"} }
