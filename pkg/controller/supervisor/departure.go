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

package supervisor

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// HoldFinalizer is the finalizer that keeps a controller object that has a finalize hook until its own finalizer is off
// all parents (docs/reference/compatibility.md#d15).
const HoldFinalizer = "metacontroller.k8s.io/parents"

// A Keeper keeps controller objects from disappearing before their parents are released.
type Keeper interface {
	// Hold puts HoldFinalizer on the object of d.
	Hold(ctx context.Context, d Definition) error
	// Let takes HoldFinalizer off the object of d.
	Let(ctx context.Context, d Definition) error
	// Release takes the controller's finalizer off all parents. It tells how many are left whenever that changes.
	Release(ctx context.Context, d Definition, left func(int)) error
}

// held reports whether the object of d waits for its parents.
func held(d Definition) bool { return slices.Contains(d.Meta().Finalizers, HoldFinalizer) }

// depart releases the parents of a controller that is being deleted, and then the controller itself.
func (h *Host) depart(ctx context.Context, d Definition) error {
	if !held(d) {
		return nil
	}
	klog.FromContext(ctx).Info("Taking the finalizer off the parents of a controller that is being deleted")
	if err := h.releaseParents(ctx, d); err != nil {
		return err
	}
	return h.config.Keeper.Let(ctx, d)
}

func (h *Host) releaseParents(ctx context.Context, d Definition) error {
	return h.config.Keeper.Release(ctx, d, func(left int) {
		h.report.notReady(d, v1alpha1.ReasonTerminating, fmt.Sprintf("Taking the finalizer off the parents; %d left.", left))
	})
}

// hold makes sure that the object stays until its parents are released, before any parent can get the finalizer.
func (h *Host) hold(ctx context.Context, d Definition) error {
	if !d.Finalizes() || held(d) || d.Meta().DeletionTimestamp != nil {
		return nil
	}
	if err := h.config.Keeper.Hold(ctx, d); err != nil {
		return fmt.Errorf("holding %s %s until its parents are released: %w", d.Kind(), d.Meta().Name, err)
	}
	return nil
}
