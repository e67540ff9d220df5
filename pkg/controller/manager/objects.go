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

package manager

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
)

// fieldManager owns the status of controller objects.
const fieldManager = "metacontroller-apiserver"

// objects writes controller objects. It implements supervisor.Objects.
type objects struct {
	client typedv1alpha1.MetacontrollerV1alpha1Interface
}

// written are the parts of a controller object that the server writes.
type written struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        writtenMeta                `json:"metadata"`
	Status          *v1alpha1.ControllerStatus `json:"status,omitempty"`
}

type writtenMeta struct {
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Finalizers      []string  `json:"finalizers,omitzero"`
}

// PublishStatus implements supervisor.Objects by server-side apply, which needs no read before and writes nothing when
// nothing changed.
func (o objects) PublishStatus(ctx context.Context, d definition.Definition, status *v1alpha1.ControllerStatus) error {
	return o.applyStatus(ctx, d, "", status)
}

// applyStatus applies a status if the object is in a version still, in any if it is empty.
func (o objects) applyStatus(ctx context.Context, d definition.Definition, version string, status *v1alpha1.ControllerStatus) error {
	meta := writtenMeta{Name: d.Meta.Name, UID: d.Meta.UID, ResourceVersion: version}
	force := true
	return o.patch(ctx, d, types.ApplyPatchType, written{Metadata: meta, Status: status}, metav1.PatchOptions{Force: &force}, "status")
}

// SetFinalizers implements supervisor.Objects.
func (o objects) SetFinalizers(ctx context.Context, d definition.Definition, finalizers []string) error {
	if finalizers == nil {
		finalizers = []string{}
	}
	meta := writtenMeta{Name: d.Meta.Name, UID: d.Meta.UID, ResourceVersion: d.Meta.ResourceVersion, Finalizers: finalizers}
	return o.patch(ctx, d, types.MergePatchType, written{Metadata: meta}, metav1.PatchOptions{})
}

func (o objects) patch(
	ctx context.Context, d definition.Definition, patchType types.PatchType, w written, options metav1.PatchOptions, subresources ...string,
) error {
	w.APIVersion, w.Kind = v1alpha1.SchemeGroupVersion.String(), d.Kind
	body, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", d.Kind, d.Meta.Name, err)
	}
	options.FieldManager = fieldManager
	if d.Kind == definition.KindDecorator {
		_, err = o.client.DecoratorControllers().Patch(ctx, d.Meta.Name, patchType, body, options, subresources...)
	} else {
		_, err = o.client.CompositeControllers().Patch(ctx, d.Meta.Name, patchType, body, options, subresources...)
	}
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", d.Kind, d.Meta.Name, err)
	}
	return nil
}
