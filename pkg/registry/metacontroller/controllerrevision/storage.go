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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
