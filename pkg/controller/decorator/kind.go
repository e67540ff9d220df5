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
	"slices"

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// kind implements reconciler.Kind for one DecoratorController.
type kind struct{ name string }

// New builds the controller of a DecoratorController. It resolves the kinds that the definition names. The error is a
// *discovery.NotFoundError if no kind of targets is served, and a *reconciler.InvalidError if the definition has to be changed.
func New(ctx context.Context, shared *reconciler.Shared, d reconciler.Definition) (*reconciler.Controller, error) {
	spec, ok := d.Spec.(*v1alpha1.DecoratorControllerSpec)
	if !ok {
		return nil, fmt.Errorf("building a DecoratorController from a %T", d.Spec)
	}
	r := &reconciler.Resolver{Shared: shared}
	for i := range spec.Resources {
		rule := &spec.Resources[i]
		source, err := r.Source(ctx, fmt.Sprintf("spec.resources[%d]", i), rule.ResourceRule, rule.LabelSelector, rule.AnnotationSelector, rule.IgnoreStatusChanges)
		if err != nil {
			return nil, fmt.Errorf("resource: %w", err)
		}
		if source != nil {
			source.AllowDelete = ptr.Deref(rule.AllowDelete, false)
			source.KeepsSynced = slices.Contains(rule.Conditions, v1alpha1.ParentConditionSynced)
		}
	}
	if len(spec.Resources) == 0 {
		return nil, &reconciler.InvalidError{Reason: "no resources defined; set spec.resources"}
	}
	if len(r.Sources) == 0 {
		return nil, fmt.Errorf("resource: %w", r.NotFound())
	}
	for i := range spec.Attachments {
		declared := &spec.Attachments[i]
		strategy := ptr.Deref(declared.UpdateStrategy, v1alpha1.DecoratorControllerAttachmentUpdateStrategy{})
		_, _, err := r.Child(ctx, declared.ResourceRule, strategy.Method, strategy.Apply, strategy.Force, declared.OnParentDeletion)
		if err != nil {
			return nil, fmt.Errorf("attachment: %w", err)
		}
	}
	return reconciler.New(reconciler.Config{Resolver: *r, Definition: d, Kind: &kind{d.Meta.Name}})
}

// Acquire implements reconciler.Kind.
func (k *kind) Acquire(*expectations.Informers, func(parent.Key, v1alpha1.SyncReason)) {}

// Forget implements reconciler.Kind.
func (k *kind) Forget(parent.Key) {}

// Count implements reconciler.Kind: it remembers nothing.
func (k *kind) Count(*metrics.Remembered) {}

// Owns implements reconciler.Kind: an attachment carries the controller's mark.
func (k *kind) Owns(o *object.Object) bool {
	by, ok := o.Annotation(children.DecoratorMark)
	return ok && by == k.name
}

// Observe implements reconciler.Kind: attachments are what the target controls and what carries the controller's mark
// (docs/reference/contract.md#s17.2).
func (k *kind) Observe(_ context.Context, s *reconciler.Sync) error {
	s.Scope = children.Scope{
		Field: "attachments", Declared: "spec.attachments", Namespace: s.Parent.Namespace(),
		Annotations: map[string]string{children.DecoratorMark: k.name},
	}
	return s.Children(func(i int, _ *children.Rule, informer *cache.Informer) error {
		var found []*object.Object
		for _, o := range informer.ControlledBy(s.Parent.UID()) {
			if k.Owns(o) && (!s.Source.Resource.Namespaced || o.Namespace() == s.Key.Namespace) {
				found = append(found, o)
			}
		}
		s.Show(i, found, found)
		return nil
	})
}

// Decide implements reconciler.Kind.
func (k *kind) Decide(ctx context.Context, s *reconciler.Sync) error { return s.Decide(ctx) }

// Write implements reconciler.Kind: the target first, then its attachments; the other way round for a target that opts out, or that the response
// deselects, which waits until all is done with its attachments: nobody looks at it again. Any other target that cannot be written, for example
// because another client wrote it first, does not keep the attachments waiting
// (docs/reference/compatibility.md#d6, docs/reference/compatibility.md#d17.3).
func (k *kind) Write(ctx context.Context, s *reconciler.Sync) error {
	// Attachments of a target that is finalized in this sync are still managed in it (docs/reference/contract.md#s15).
	manages := s.ManagesChildren()
	if !manages {
		s.LeaveChildren()
	}
	if s.OptsOut() && !s.Decision.Delete {
		err := s.ReconcileChildren(ctx, "attachments")
		err = errors.Join(err, s.PutOffFinalizer())
		return errors.Join(parent.IgnoreGone(k.writeTarget(ctx, s, err == nil)), err)
	}
	last := k.statusLast(s)
	if manages && (last || k.deselects(s)) {
		err := s.ReconcileChildren(ctx, "attachments")
		if !last && err == nil && s.ChildrenDone() {
			return parent.IgnoreGone(k.writeTarget(ctx, s, s.Decision.Settled))
		}
		return errors.Join(parent.IgnoreGone(k.writeStatus(ctx, s, err == nil)), err)
	}
	if s.Decision.Delete && !s.Parent.Deleting() {
		// The finalizer stays on until the finalize hook is done with a target that is deleted.
		s.Decision.Finalized = false
	}
	errTarget := k.writeTarget(ctx, s, s.Decision.Settled) // Else the attachments are still to be written.
	if client.IsGone(errTarget) {
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
// is done. Nothing is sent when nothing changes (docs/reference/contract.md#s17.3). Last says that all else of the sync is done and ended well.
func (k *kind) writeTarget(ctx context.Context, s *reconciler.Sync, last bool) error {
	changes := k.metadata(s)
	if s.Source.Resource.HasStatus {
		if err := k.writeStatus(ctx, s, last); err != nil {
			return err
		}
	} else {
		changes.Status = s.Status()
	}
	if err := s.WriteParent(ctx, changes); err != nil {
		return reconciler.InContext(fmt.Sprintf("can't update %s", s.Parent), err)
	}
	return nil
}

// statusLast reports whether nothing of the target may change but its status, while its attachments may have to be written: the status
// that follows from those is the one to write.
func (k *kind) statusLast(s *reconciler.Sync) bool {
	return !s.Decision.Settled && !s.Decision.Delete && !s.Decision.Finalized && !k.metadata(s).OfMetadata(s.Parent)
}

// deselects reports whether the target is selected, and not any more with the labels and annotations of the response.
func (k *kind) deselects(s *reconciler.Sync) bool {
	if s.Decision.Delete || s.Decision.Finalized || len(s.Decision.Labels)+len(s.Decision.Annotations) == 0 || !s.Source.Selected(s.Parent) {
		return false
	}
	return !s.Source.SelectedWith(parent.Changed(s.Parent.Labels(), s.Decision.Labels), parent.Changed(s.Parent.Annotations(), s.Decision.Annotations))
}

// metadata returns what the hook wants to change of the target's metadata.
func (k *kind) metadata(s *reconciler.Sync) parent.Changes {
	changes := parent.Changes{Labels: s.Decision.Labels, Annotations: s.Decision.Annotations}
	if s.Decision.Finalized {
		changes.DropFinalizer = s.FinalizerName()
	}
	return changes
}

// writeStatus gives the target the status of the response.
func (k *kind) writeStatus(ctx context.Context, s *reconciler.Sync, deferrable bool) error {
	if err := s.WriteStatus(ctx, s.Decision.Status, deferrable); err != nil {
		return reconciler.InContext(fmt.Sprintf("can't update status for %s", s.Parent), err)
	}
	return nil
}
