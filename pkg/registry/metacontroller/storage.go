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
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/compositecontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/decoratorcontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/inspect"
)

// KeyRoot is the default of --etcd-prefix, the root of all keys in etcd. Below it, an object has the key
// /metacontroller.k8s.io/<resource>/[<namespace>/]<name>. It is not the root of Kubernetes, so that a server that is pointed at
// the cluster's own etcd by mistake does not write the objects of CustomResourceDefinitions.
const KeyRoot = "/metacontroller-apiserver"

// Storage is every endpoint of the group.
type Storage struct {
	// CompositeControllers are the endpoints of CompositeController.
	CompositeControllers *controller.Storage
	// DecoratorControllers are the endpoints of DecoratorController.
	DecoratorControllers *controller.Storage
	// ControllerRevisions is the endpoint of ControllerRevision.
	ControllerRevisions *controllerrevision.REST
	// Inspection are the endpoints by their paths that say what controllers do, and store nothing.
	Inspection map[string]rest.Storage
}

// NewStorage builds the stores, each with one watch cache, for objects of scheme. Inspection is what the endpoints need that store nothing.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, inspection inspect.Config) (*Storage, error) {
	composites, err := compositecontroller.Kind().NewStorage(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of compositecontrollers: %w", err)
	}
	decorators, err := decoratorcontroller.Kind().NewStorage(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of decoratorcontrollers: %w", err)
	}
	revisions, err := controllerrevision.NewREST(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of controllerrevisions: %w", err)
	}
	inspector := inspect.New(inspection)
	endpoints := inspector.Subresources(v1alpha1.KindComposite, "compositecontrollers", getFrom(composites.Objects.Store.Store))
	maps.Copy(endpoints, inspector.Subresources(v1alpha1.KindDecorator, "decoratorcontrollers", getFrom(decorators.Objects.Store.Store)))
	return &Storage{
		CompositeControllers: composites, DecoratorControllers: decorators, ControllerRevisions: revisions, Inspection: endpoints,
	}, nil
}

// getFrom returns what reads an object of a store.
func getFrom(store *genericregistry.Store) inspect.Get {
	return func(ctx context.Context, name string) (metav1.Object, error) {
		o, err := store.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return meta.Accessor(o)
	}
}

// Resources returns the endpoints by the path under which v1alpha1 serves them.
func (s *Storage) Resources() map[string]rest.Storage {
	endpoints := map[string]rest.Storage{
		"compositecontrollers":        s.CompositeControllers.Objects,
		"compositecontrollers/status": s.CompositeControllers.Status,
		"decoratorcontrollers":        s.DecoratorControllers.Objects,
		"decoratorcontrollers/status": s.DecoratorControllers.Status,
		"controllerrevisions":         s.ControllerRevisions,
	}
	maps.Copy(endpoints, s.Inspection)
	return endpoints
}
