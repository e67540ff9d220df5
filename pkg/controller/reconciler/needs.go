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

package reconciler

import (
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

func accountOf(ref *v1alpha1.ServiceAccountReference) *rights.Account {
	if ref == nil {
		return nil
	}
	return &rights.Account{Namespace: ref.Namespace, Name: ref.Name}
}

func needsOfComposite(spec *v1alpha1.CompositeControllerSpec) (rights.Needs, error) {
	var hub metacontroller.CompositeControllerSpec
	if err := v1alpha1.Convert_v1alpha1_CompositeControllerSpec_To_metacontroller_CompositeControllerSpec(spec, &hub, nil); err != nil {
		return rights.Needs{}, fmt.Errorf("converting the spec of a CompositeController: %w", err)
	}
	return rights.OfComposite(&hub), nil
}

func needsOfDecorator(spec *v1alpha1.DecoratorControllerSpec) (rights.Needs, error) {
	var hub metacontroller.DecoratorControllerSpec
	if err := v1alpha1.Convert_v1alpha1_DecoratorControllerSpec_To_metacontroller_DecoratorControllerSpec(spec, &hub, nil); err != nil {
		return rights.Needs{}, fmt.Errorf("converting the spec of a DecoratorController: %w", err)
	}
	return rights.OfDecorator(&hub), nil
}
