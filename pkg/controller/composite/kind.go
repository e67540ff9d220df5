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

package composite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// kind implements reconciler.Kind for one CompositeController.
type kind struct {
	shared    *reconciler.Shared
	spec      *v1alpha1.CompositeControllerSpec
	generates bool // selectors
	resource  discovery.Resource
	planner   *rollout.Planner
	revisions *cache.Informer // nil unless something rolls
	doubts    doubts
}

// New builds the controller of a CompositeController. It resolves the kinds that the definition names. The error is a
// *discovery.NotFoundError if the parents are not served, and a *reconciler.InvalidError if the definition has to be changed.
func New(ctx context.Context, shared *reconciler.Shared, d reconciler.Definition) (*reconciler.Controller, error) {
	spec, ok := d.Spec.(*v1alpha1.CompositeControllerSpec)
	if !ok {
		return nil, fmt.Errorf("building a CompositeController from a %T", d.Spec)
	}
	k := &kind{shared: shared, spec: spec, generates: ptr.Deref(spec.GenerateSelector, false)}
	r, rule := &reconciler.Resolver{Shared: shared}, &spec.ParentResource
	source, err := r.Source(ctx, "spec.parentResource", rule.ResourceRule, rule.LabelSelector, nil, rule.IgnoreStatusChanges)
	if err == nil && source == nil {
		err = r.NotFound()
	}
	if err != nil {
		return nil, fmt.Errorf("parent resource: %w", err)
	}
	source.ReportsGeneration, k.resource = source.Resource.HasStatus, source.Resource
	source.KeepsSynced = slices.Contains(rule.Conditions, v1alpha1.ParentConditionSynced)
	if err := k.resolveChildren(ctx, r); err != nil {
		return nil, err
	}
	label := ""
	if k.generates {
		label = rollout.LabelControllerUID
	}
	return reconciler.New(reconciler.Config{Resolver: *r, Definition: d, Kind: k, Selectors: related.NewSelectors(label)})
}

// resolveChildren finds the kinds of the children, and how those that roll do so. Of two rules for one kind the last one counts.
func (k *kind) resolveChildren(ctx context.Context, r *reconciler.Resolver) error {
	rolling := map[schema.GroupKind]v1alpha1.CompositeControllerChildUpdateStrategy{}
	var missing []schema.GroupVersionResource
	for i := range k.spec.ChildResources {
		declared := &k.spec.ChildResources[i]
		strategy := ptr.Deref(declared.UpdateStrategy, v1alpha1.CompositeControllerChildUpdateStrategy{})
		rule, found, err := r.Child(ctx, declared.ResourceRule, strategy.Method, strategy.Apply, strategy.Force, declared.OnParentDeletion)
		if err != nil {
			return fmt.Errorf("child resource: %w", err)
		}
		rolls := rollout.Rolls(strategy.Method)
		if !found {
			if version, err := schema.ParseGroupVersion(declared.APIVersion); err == nil && rolls {
				missing = append(missing, version.WithResource(declared.Resource))
			}
			continue
		}
		delete(rolling, rule.Kind.GroupKind())
		if rolls {
			rolling[rule.Kind.GroupKind()] = strategy
		}
	}
	config := rollout.Config{
		HistoryLimit: rollout.DefaultHistoryLimit,
		Resource:     k.resource.GroupVersionResource, GenerateSelector: k.generates,
		Namespace: k.shared.Options.ServerNamespace, Rules: rolling, Unserved: children.NewRules(r.Children, missing...).MayBeMissing,
	}
	if history := k.spec.ParentResource.RevisionHistory; history != nil {
		config.FieldPaths = history.FieldPaths
		if history.Limit != nil {
			config.HistoryLimit = int(*history.Limit)
		}
	}
	k.planner = rollout.New(config)
	return nil
}

// Acquire implements reconciler.Kind.
func (k *kind) Acquire(set *expectations.Informers, enqueue func(parent.Key, v1alpha1.SyncReason)) {
	if !k.planner.Active() {
		return
	}
	k.revisions = set.Acquire(k.shared.Own.Cache, cache.Query{Resource: revisionResource})
	set.Keep(k.revisions, k.revisions.Subscribe(func(e cache.Event) {
		revision := cmp.Or(e.New, e.Old)
		if ended, ok := k.doubts.end(types.NamespacedName{Namespace: revision.Namespace(), Name: revision.Name()}); ok {
			enqueue(ended.parent, ended.reason)
		}
	}))
}

// Forget implements reconciler.Kind.
func (k *kind) Forget(key parent.Key) { k.doubts.forget(key) }

// Count implements reconciler.Kind.
func (k *kind) Count(r *metrics.Remembered) { r.Revisions = k.doubts.len() }

// Owns implements reconciler.Kind: whatever a parent controls is its child.
func (k *kind) Owns(*object.Object) bool { return true }

// Decide implements reconciler.Kind.
func (k *kind) Decide(ctx context.Context, s *reconciler.Sync) error {
	if !s.ManagesChildren() {
		s.Rollout(false, 0, 0) // One that was under way has ended with that, whatever becomes of the call.
		return s.Decide(ctx)
	}
	if k.planner.Active() {
		return k.decideRollout(ctx, s)
	}
	return s.Decide(ctx)
}

// Write implements reconciler.Kind: the finalizer, the children and the status, in this order (docs/reference/contract.md#s6). The
// finalizer of a parent that opts out follows its children.
func (k *kind) Write(ctx context.Context, s *reconciler.Sync) error {
	var err error
	last := s.OptsOut()
	if last {
		err = s.ReconcileChildren(ctx, "children")
		err = errors.Join(err, s.PutOffFinalizer())
	}
	if s.Decision.Finalized {
		if err := s.RemoveFinalizer(ctx); err != nil {
			return parent.IgnoreGone(err)
		}
		if parent.Ended(s.Parent) {
			return nil
		}
	}
	switch {
	case last:
	case s.ManagesChildren():
		err = s.ReconcileChildren(ctx, "children")
	default:
		s.LeaveChildren()
	}
	return errors.Join(err, parent.IgnoreGone(k.writeStatus(ctx, s, err == nil)))
}

// writeStatus replaces the parent's status by the hook's, if they differ. One of a sync that did not fail may be written later. A built-in kind
// keeps the status that it has if the hook returns none.
func (k *kind) writeStatus(ctx context.Context, s *reconciler.Sync, deferrable bool) error {
	status := s.Decision.Status
	if !s.Source.Resource.HasStatus || status == nil && s.BuiltIn() && !s.Source.KeepsSynced {
		return nil
	}
	if status == nil && !s.BuiltIn() {
		status = map[string]any{}
	}
	if status != nil {
		s.Complete(status)
	}
	if err := s.WriteStatus(ctx, status, deferrable); err != nil {
		return reconciler.InContext(fmt.Sprintf("can't update status for %s", s.Parent), err)
	}
	return nil
}
