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
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
)

// writeTarget gives the target the status, labels and annotations of the response, and takes the finalizer off when the hook
// is done. Nothing is sent when nothing changes (docs/reference/contract.md#s17.3).
func (c *Controller) writeTarget(ctx context.Context, s *scope) error {
	api := c.shared.Cluster.Client
	status := s.response.Status
	if status != nil && s.rule.resource.HasStatus {
		err := c.write(s, func() (*object.Object, error) { return parent.WriteStatus(ctx, api, s.at, s.target, status) })
		if err != nil {
			return fmt.Errorf("can't update status for %s: %w", s.target, err)
		}
		status = nil
	}
	changes := parent.Changes{Labels: s.response.Labels, Annotations: s.response.Annotations, Status: status}
	if s.response.Finalized {
		changes.DropFinalizer = c.finalizer.Name
	}
	if err := c.write(s, func() (*object.Object, error) { return changes.Write(ctx, api, s.at, s.target) }); err != nil {
		return fmt.Errorf("can't update %s: %w", s.target, err)
	}
	return nil
}

// write does a write of the target that is the last one of a sync, or may be.
func (c *Controller) write(s *scope, do func() (*object.Object, error)) error {
	written, mistaken, err := c.echoes.Write(s.rule.informer, s.target, do)
	if mistaken {
		c.loop.Enqueue(s.key, workqueue.Live)
	}
	if err == nil && written != nil {
		c.wroteTarget(s, written)
	}
	return err
}

// deleteTarget deletes the target because the hook says so.
func (c *Controller) deleteTarget(ctx context.Context, s *scope) error {
	klog.FromContext(ctx).Info("Deleting target, as the hook asks", "target", s.target)
	err := c.shared.Cluster.Client.Delete(ctx, s.at, s.target.UID())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s.target, err)
	}
	c.shared.Cluster.Barrier.Deleted(s.target.UID(), s.rule.informer, s.target.Namespace(), s.target.Name(), s.target.UID())
	c.shared.Recorder.Normal(childcontrol.Reference(s.target), "TargetDeleted", "Deleted because the hook of "+c.name+" asked for it")
	return nil
}
