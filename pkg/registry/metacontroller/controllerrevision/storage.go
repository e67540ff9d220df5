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
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
