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

package decorator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// Write implements reconciler.Kind: the target first, then its attachments. A target that cannot be written, for example because
// another client wrote it first, does not keep the attachments waiting
// (docs/reference/compatibility.md#d6, docs/reference/compatibility.md#d17.3).
func (k *kind) Write(ctx context.Context, s *reconciler.Sync) error {
	// Attachments of a target that is finalized in this sync are still managed in it (docs/reference/contract.md#s15).
	manages := s.ManagesChildren()
	errTarget := k.writeTarget(ctx, s)
	if apierrors.IsNotFound(errTarget) {
		// Attachments of a target that is gone would only be collected again.
		return nil
	}
	if errTarget == nil && s.Decision.Delete && !s.Parent.Deleting() {
		// The attachments go with the target, or are finalized.
		return s.DeleteParent(ctx)
	}
	var errAttachments error
	if manages {
		errAttachments = s.ReconcileChildren(ctx, "attachments")
	}
	return errors.Join(errTarget, errAttachments)
}

// writeTarget gives the target the status, labels and annotations of the response, and takes the finalizer off when the hook
// is done. Nothing is sent when nothing changes (docs/reference/contract.md#s17.3).
func (k *kind) writeTarget(ctx context.Context, s *reconciler.Sync) error {
	status := s.Decision.Status
	if status != nil && s.Source.Resource.HasStatus {
		err := s.WriteParent(func(api *client.Client) (*object.Object, error) {
			return parent.WriteStatus(ctx, api, s.Target, s.Parent, status)
		})
		if err != nil {
			return fmt.Errorf("can't update status for %s: %w", s.Parent, err)
		}
		status = nil
	}
	changes := parent.Changes{Labels: s.Decision.Labels, Annotations: s.Decision.Annotations, Status: status}
	if s.Decision.Finalized {
		changes.DropFinalizer = s.FinalizerName()
	}
	err := s.WriteParent(func(api *client.Client) (*object.Object, error) { return changes.Write(ctx, api, s.Target, s.Parent) })
	if err != nil {
		return fmt.Errorf("can't update %s: %w", s.Parent, err)
	}
	return nil
}
