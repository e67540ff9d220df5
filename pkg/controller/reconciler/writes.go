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
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
)

// Wrote takes the state of the parent after a write.
func (s *Sync) Wrote(written *object.Object) {
	s.Parent = written
	s.controller.expectations.Wrote(s.Key, s.Source.informer, written)
}

// WriteStatus makes status the status of the parent, of a kind with that subresource, as a whole.
func (s *Sync) WriteStatus(ctx context.Context, status map[string]any) error {
	target := s.Target
	target.Subresource = "status"
	return s.change(ctx, target, parent.Changes{Status: status})
}

// ChangeParent makes changes of the parent. It writes nothing if the parent is like that already.
func (s *Sync) ChangeParent(ctx context.Context, changes parent.Changes) error {
	return s.change(ctx, s.Target, changes)
}

func (s *Sync) change(ctx context.Context, target client.Target, changes parent.Changes) error {
	if s.preview != nil {
		return s.preview.notes.ChangeParent(s.Parent, changes)
	}
	return s.WriteParent(func(api *client.Client) (*object.Object, error) { return changes.Write(ctx, api, target, s.Parent) })
}

// WriteParent does a write of the parent that may be the last one of the sync, and tells its event from those of other clients.
// A write that turns out to be unnecessary returns nil. It is not for previews; see ChangeParent.
func (s *Sync) WriteParent(write func(*client.Client) (*object.Object, error)) error {
	c := s.controller
	written, mistaken, err := c.ownWrites.Write(s.Source.informer, s.Parent, func() (*object.Object, error) {
		return write(c.shared.Cluster.Client)
	})
	if mistaken {
		c.pool.Enqueue(s.Key, workqueue.Live)
	}
	if err == nil && written != nil {
		s.Wrote(written)
		s.wroteParent = true
	}
	return err
}

// RemoveFinalizer takes the controller's finalizer off the parent.
func (s *Sync) RemoveFinalizer(ctx context.Context) error {
	c := s.controller
	if s.preview != nil {
		return s.preview.notes.ChangeParent(s.Parent, parent.Changes{DropFinalizer: c.finalizer.Name})
	}
	written, changed, err := c.finalizer.Remove(ctx, c.shared.Cluster.Client, s.Target, s.Parent)
	if err != nil {
		return InContext(fmt.Sprintf("can't remove finalizer for %s", s.Parent), err)
	}
	if changed {
		s.Wrote(written)
	}
	return nil
}

// FinalizerName returns the name of the controller's finalizer.
func (s *Sync) FinalizerName() string { return s.controller.finalizer.Name }

// DeleteParent deletes the parent because the hook says so. One that is gone is no error.
func (s *Sync) DeleteParent(ctx context.Context) error {
	c := s.controller
	if s.preview != nil {
		s.preview.notes.Plan.Delete = true
		return nil
	}
	klog.FromContext(ctx).Info("Deleting target, as the hook asks", "target", s.Parent)
	err := c.shared.Cluster.Client.Delete(ctx, s.Target, s.Parent.UID(), s.Parent.ResourceVersion())
	if client.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s.Parent, err)
	}
	c.expectations.Deleted(s.Key, s.Source.informer, s.Parent)
	s.Event("TargetDeleted", "Deleted because the hook of "+c.config.Definition.Meta.Name+" asked for it")
	return nil
}

// Event records a Normal event on the parent.
func (s *Sync) Event(reason, message string) {
	if s.preview != nil {
		return
	}
	s.controller.recorder.Normal(childcontrol.Reference(s.Parent), nil, reason, message)
}

// ManagesChildren reports whether children are touched: not those of a parent that is being deleted, unless it is being
// finalized (docs/reference/contract.md#s15).
func (s *Sync) ManagesChildren() bool {
	return !s.Parent.Deleting() || s.controller.finalizer.ShouldFinalize(s.Parent)
}

// Gather returns the input that tells whether the desired children would change the observed ones. ReconcileChildren reads nothing
// of it again.
func (s *Sync) Gather(ctx context.Context, desired []children.Desired) (plan.Input, error) {
	var err error
	s.gathered, err = s.controller.children.Gather(ctx, s.Parent, s.Observed, desired, true)
	return s.gathered, err
}

// ReconcileChildren makes the observed children of the Decision the desired ones. noun is what they are to people.
func (s *Sync) ReconcileChildren(ctx context.Context, noun string) error {
	if s.Decision.Settled {
		if s.preview != nil {
			s.preview.notes.LeaveAll(s.Observed)
			return nil
		}
		s.controller.guard.Admit(s.Key, 0, time.Now()) // No deletion is wanted.
		return nil
	}
	c, in := s.controller.children, s.gathered
	var err error
	if in.Parent == "" {
		in, err = c.Gather(ctx, s.Parent, s.Decision.Observed, s.Decision.Desired, false)
	} else {
		in.Observed, in.Desired, in.Kept, in.Comparing = s.Decision.Observed, s.Decision.Desired, s.kept(), false
		in, err = c.Complete(ctx, in)
	}
	if err == nil && s.preview != nil {
		err = s.preview.children(ctx, s, in)
	} else if err == nil {
		s.result, err = c.Reconcile(ctx, s.Key, s.Parent, in, s.fingerprint)
	}
	if err = errors.Join(err, s.unserved()); err != nil {
		return InContext(fmt.Sprintf("can't reconcile %s for %s", noun, s.Parent), err)
	}
	return nil
}

// kept returns the observed children that the Decision leaves out.
func (s *Sync) kept() []children.Key {
	if len(s.Decision.Observed) == len(s.Observed) {
		return nil
	}
	decided := make(map[children.Key]bool, len(s.Decision.Observed))
	for _, o := range s.Decision.Observed {
		decided[children.KeyOf(o)] = true
	}
	var kept []children.Key
	for _, o := range s.Observed {
		if key := children.KeyOf(o); !decided[key] {
			kept = append(kept, key)
		}
	}
	return kept
}

// unserved is the error about desired children that cannot be written now.
func (s *Sync) unserved() error {
	if len(s.Decision.Unserved) == 0 {
		return nil
	}
	names := make([]string, len(s.Decision.Unserved))
	for i, key := range s.Decision.Unserved {
		names[i] = key.String()
	}
	return fmt.Errorf("the cluster does not serve the kind of %s; install it, or take it out of the spec and of the response", strings.Join(names, ", "))
}

// AdoptChild makes the parent the controller of an object, by a merge patch, and returns the object as it is then.
func (s *Sync) AdoptChild(ctx context.Context, t client.Target, informer *cache.Informer, o *object.Object, patch []byte) (*object.Object, error) {
	if s.preview != nil {
		return s.preview.notes.Claim(v1alpha1.ChildAdopt, o, patch)
	}
	return s.patchChild(ctx, t, informer, patch)
}

// ReleaseChild takes the parent off the owners of an object, by a merge patch.
func (s *Sync) ReleaseChild(ctx context.Context, t client.Target, informer *cache.Informer, o *object.Object, patch []byte) error {
	if s.preview != nil {
		_, err := s.preview.notes.Claim(v1alpha1.ChildRelease, o, patch)
		return err
	}
	_, err := s.patchChild(ctx, t, informer, patch)
	return err
}

func (s *Sync) patchChild(ctx context.Context, t client.Target, informer *cache.Informer, patch []byte) (*object.Object, error) {
	written, err := s.controller.shared.Applier.Patch(ctx, t, patch)
	if err == nil {
		s.controller.expectations.Wrote(s.Key, informer, written)
	}
	return written, err
}

// WroteVersion expects an informer to show a version that a write of this sync made.
func (s *Sync) WroteVersion(informer *cache.Informer, version string) {
	s.controller.expectations.WroteVersion(s.Key, informer, version)
}

// Deleted expects an informer to show that an object, which this sync deleted, is gone.
func (s *Sync) Deleted(informer *cache.Informer, o *object.Object) {
	s.controller.expectations.Deleted(s.Key, informer, o)
}
