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

package parent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Finalizer is the finalizer that one controller adds to its parents while it has a finalize hook (docs/reference/contract.md#s15).
type Finalizer struct {
	// Name is the finalizer's name, see CompositeFinalizer and DecoratorFinalizer.
	Name string
	// Enabled says whether the controller has a finalize hook.
	Enabled bool
}

// CompositeFinalizer returns the name of the finalizer of a CompositeController.
func CompositeFinalizer(controller string) string {
	return "metacontroller.io/compositecontroller-" + controller
}

// DecoratorFinalizer returns the name of the finalizer of a DecoratorController.
func DecoratorFinalizer(controller string) string {
	return "metacontroller.io/decoratorcontroller-" + controller
}

// On reports whether the finalizer is on o.
func (f Finalizer) On(o *object.Object) bool { return slices.Contains(o.Finalizers(), f.Name) }

// ShouldFinalize reports whether children of a parent that is being deleted are still managed: the finalize hook is
// declared, its finalizer is on the parent, and the parent was not deleted with a propagation policy by which the garbage collector
// deletes or orphans the children (docs/reference/contract.md#s15).
func (f Finalizer) ShouldFinalize(o *object.Object) bool {
	if !f.Enabled || !f.On(o) {
		return false
	}
	return !slices.Contains(o.Finalizers(), metav1.FinalizerDeleteDependents) &&
		!slices.Contains(o.Finalizers(), metav1.FinalizerOrphanDependents)
}

// Sync adds the finalizer to a parent that needs it, and removes it from one whose controller has no finalize hook. It
// returns the parent as it is afterwards, and whether it was written.
func (f Finalizer) Sync(ctx context.Context, c *client.Client, t client.Target, o *object.Object) (*object.Object, bool, error) {
	switch on := f.On(o); {
	case f.Enabled && !on && !o.Deleting():
		return f.write(ctx, c, t, o, append(slices.Clone(o.Finalizers()), f.Name))
	case !f.Enabled && on:
		return f.Remove(ctx, c, t, o)
	}
	return o, false, nil
}

// Remove removes the finalizer from o if it is there.
func (f Finalizer) Remove(ctx context.Context, c *client.Client, t client.Target, o *object.Object) (*object.Object, bool, error) {
	if !f.On(o) {
		return o, false, nil
	}
	rest := slices.DeleteFunc(slices.Clone(o.Finalizers()), func(name string) bool { return name == f.Name })
	return f.write(ctx, c, t, o, rest)
}

func (f Finalizer) write(ctx context.Context, c *client.Client, t client.Target, o *object.Object, finalizers []string) (*object.Object, bool, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             o.UID(),
		"resourceVersion": o.ResourceVersion(),
		"finalizers":      finalizers,
	}})
	if err != nil {
		return o, false, fmt.Errorf("encoding the finalizers: %w", err)
	}
	written, err := c.Patch(ctx, t, types.MergePatchType, patch)
	if err != nil {
		return o, false, fmt.Errorf("writing finalizer %s: %w", f.Name, err)
	}
	return written, true, nil
}
