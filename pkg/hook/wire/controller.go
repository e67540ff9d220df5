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

package wire

import (
	"encoding/json"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// EncodeOptions say how a controller is shown to its hooks.
type EncodeOptions struct {
	// ManagedFields keeps metadata.managedFields, which are left out by default.
	ManagedFields bool
}

// EncodeComposite returns the bytes of the "controller" field of requests. Encode once for each version of the controller
// and use the bytes in all its requests. The status is shown empty, as it always was (docs/reference/contract.md#s9); it would otherwise
// change with the counters in it.
func EncodeComposite(c *v1alpha1.CompositeController, o EncodeOptions) ([]byte, error) {
	shown := *c
	shown.APIVersion = v1alpha1.SchemeGroupVersion.String()
	shown.Kind = "CompositeController"
	shown.Status = v1alpha1.CompositeControllerStatus{}
	if !o.ManagedFields {
		shown.ManagedFields = nil
	}
	return encode(&shown, shown.Kind, shown.Name)
}

// EncodeDecorator is [EncodeComposite] for the other kind.
func EncodeDecorator(c *v1alpha1.DecoratorController, o EncodeOptions) ([]byte, error) {
	shown := *c
	shown.APIVersion = v1alpha1.SchemeGroupVersion.String()
	shown.Kind = "DecoratorController"
	shown.Status = v1alpha1.DecoratorControllerStatus{}
	if !o.ManagedFields {
		shown.ManagedFields = nil
	}
	return encode(&shown, shown.Kind, shown.Name)
}

func encode(controller any, kind, name string) ([]byte, error) {
	data, err := json.Marshal(controller)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s for its hooks: %w", kind, name, err)
	}
	return data, nil
}
