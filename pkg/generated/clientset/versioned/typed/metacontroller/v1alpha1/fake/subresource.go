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

package fake

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/testing"
)

// ReadAction is the action of a subresource that is read with options of its own, which are its Value.
type ReadAction struct {
	testing.GenericActionImpl

	// Name is that of the controller.
	Name string
}

// GetName returns the name of the controller.
func (a ReadAction) GetName() string { return a.Name }

// DeepCopy implements testing.Action. Options have no pointers.
func (a ReadAction) DeepCopy() testing.Action { return a }

// read has the reactors answer a ReadAction. Without one for it the result is the given one.
func read[T runtime.Object](fake *FakeMetacontrollerV1alpha1, resource schema.GroupVersionResource, name, subresource string, options any, none T) (T, error) {
	action := ReadAction{Name: name}
	action.Verb, action.Resource, action.Subresource, action.Value = "get", resource, subresource, options
	o, err := fake.Invokes(action, none)
	if o == nil {
		return none, err
	}
	result, ok := o.(T)
	if !ok && err == nil {
		err = fmt.Errorf("a reactor returned %T for the subresource %s, which is a %T", o, subresource, none)
	}
	return result, err
}
