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
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	composite "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/compositecontroller/storage"
	revision "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision/storage"
	decorator "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/decoratorcontroller/storage"
)

// KeyRoot is the default of --etcd-prefix, the root of all keys in etcd. Below it, an object has the key
// /metacontroller.k8s.io/<resource>/[<namespace>/]<name>. It is not the root of Kubernetes, so that a server that is pointed at
// the cluster's own etcd by mistake does not write the objects of CustomResourceDefinitions.
const KeyRoot = "/metacontroller-apiserver"

// Storage is every endpoint of the group.
type Storage struct {
	// CompositeControllers are the endpoints of CompositeController.
	CompositeControllers *composite.Storage
	// DecoratorControllers are the endpoints of DecoratorController.
	DecoratorControllers *decorator.Storage
	// ControllerRevisions is the endpoint of ControllerRevision.
	ControllerRevisions *revision.REST
}

// NewStorage builds the stores, each with one watch cache, for objects of scheme.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	composites, err := composite.NewStorage(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of compositecontrollers: %w", err)
	}
	decorators, err := decorator.NewStorage(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of decoratorcontrollers: %w", err)
	}
	revisions, err := revision.NewREST(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of controllerrevisions: %w", err)
	}
	return &Storage{CompositeControllers: composites, DecoratorControllers: decorators, ControllerRevisions: revisions}, nil
}

// Resources returns the endpoints by the path under which v1alpha1 serves them.
func (s *Storage) Resources() map[string]rest.Storage {
	return map[string]rest.Storage{
		"compositecontrollers":        s.CompositeControllers.CompositeController,
		"compositecontrollers/status": s.CompositeControllers.Status,
		"decoratorcontrollers":        s.DecoratorControllers.DecoratorController,
		"decoratorcontrollers/status": s.DecoratorControllers.Status,
		"controllerrevisions":         s.ControllerRevisions,
	}
}
