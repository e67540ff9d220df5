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

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// Desired is what a [Typed] hook returns: a [CompositeResponse] with Go types.
type Desired[S any] struct {
	// Status becomes the status of the parent, as a whole.
	Status S
	// Children are all children that shall exist: typed objects or [Object]. Those of Kubernetes' own kinds need no TypeMeta. Their status, and
	// creationTimestamps that are not set, are left out.
	Children []runtime.Object
	// ResyncAfter, when greater than 0, calls the hook again after that time, even if nothing changed.
	ResyncAfter time.Duration
	// Finalized says that nothing is left to clean up.
	Finalized bool
}

// Typed returns a hook that calls f with its parent as a P, and has a status that is an S. A field of the parent that P does not have is left
// out, and the request has it.
func Typed[P, S any](f func(ctx context.Context, parent *P, request *CompositeRequest) (*Desired[S], error)) CompositeFunc {
	return func(ctx context.Context, request *CompositeRequest) (*CompositeResponse, error) {
		parent, err := As[P](request.Parent)
		if err != nil {
			return nil, err
		}
		desired, err := f(ctx, parent, request)
		if err != nil || desired == nil {
			return nil, err
		}
		response := &CompositeResponse{ResyncAfterSeconds: desired.ResyncAfter.Seconds(), Finalized: desired.Finalized}
		encoded, err := json.Marshal(desired.Status)
		if err != nil {
			return nil, fmt.Errorf("encoding the status: %w", err)
		}
		if err := utiljson.Unmarshal(encoded, &response.Status); err != nil { // It leaves integers what they are.
			return nil, fmt.Errorf("the status, a %T, is not an object: %w", desired.Status, err)
		}
		for i, child := range desired.Children {
			o, err := hook.FromTyped(withKind(child))
			if err != nil {
				return nil, fmt.Errorf("children[%d]: %w", i, err)
			}
			response.Children = append(response.Children, o)
		}
		return response, nil
	}
}

// withKind returns an object with its apiVersion and kind, if it is of one of Kubernetes' own types.
func withKind(o runtime.Object) runtime.Object {
	if o == nil || !o.GetObjectKind().GroupVersionKind().Empty() {
		return o
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil || len(kinds) == 0 {
		return o // Who converts it says what it lacks.
	}
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	return o
}

// As returns an observed object as a T, such as appsv1.Deployment; nil for nil, which is what there is before a child is created.
func As[T any](o *Object) (*T, error) {
	if o == nil {
		return nil, nil
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		return nil, fmt.Errorf("reading the %s %s as a %T: %w", o.GetKind(), o.GetName(), *typed, err)
	}
	return typed, nil
}
