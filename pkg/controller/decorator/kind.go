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

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/claim"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/dependencies"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/informers"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// kind implements reconciler.Kind for one DecoratorController.
type kind struct {
	name    string
	sources []*reconciler.Source
}

// New builds the controller of a DecoratorController. It resolves the kinds that the definition names. The error is a
// *discovery.NotFoundError if no kind of targets is served, and a *definition.InvalidError if the definition has to be changed.
func New(ctx context.Context, shared *dependencies.Shared, d definition.Definition) (*reconciler.Controller, error) {
	spec, ok := d.Spec.(*v1alpha1.DecoratorControllerSpec)
	if !ok {
		return nil, fmt.Errorf("building a DecoratorController from a %T", d.Spec)
	}
	k := &kind{name: d.Meta.Name}
	resolver := &dependencies.Resolver{Shared: shared}
	if err := k.resolveTargets(ctx, resolver, spec.Resources); err != nil {
		return nil, err
	}
	for i := range spec.Attachments {
		declared := &spec.Attachments[i]
		strategy := ptr.Deref(declared.UpdateStrategy, v1alpha1.DecoratorControllerAttachmentUpdateStrategy{})
		if _, _, err := resolver.Child(ctx, declared.ResourceRule, strategy.Method, strategy.Apply, strategy.Force); err != nil {
			return nil, fmt.Errorf("attachment: %w", err)
		}
	}
	return reconciler.New(reconciler.Config{
		Dependencies: shared, Definition: d, Kind: k, Sources: k.sources, Children: resolver.Children, Missing: resolver.Missing,
	})
}

// resolveTargets finds the kinds of the targets, of which one at least must be served.
func (k *kind) resolveTargets(ctx context.Context, r *dependencies.Resolver, resources []v1alpha1.DecoratorControllerResourceRule) error {
	for i := range resources {
		declared := &resources[i]
		selector, err := newSelector(declared)
		if err != nil {
			return &definition.InvalidError{Reason: fmt.Sprintf("spec.resources[%d].%v", i, err)}
		}
		resource, found, err := r.Find(ctx, declared.ResourceRule)
		if err != nil {
			return fmt.Errorf("resource: %w", err)
		}
		if found {
			k.sources = append(k.sources, &reconciler.Source{
				Resource: resource, Selected: selector.matches, Labels: selector.labels,
				IgnoreStatus: declared.IgnoreStatusChanges != nil && *declared.IgnoreStatusChanges,
			})
		}
	}
	if len(k.sources) > 0 {
		return nil
	}
	if len(r.Missing) == 0 {
		return &definition.InvalidError{Reason: "no resources defined; set spec.resources"}
	}
	return fmt.Errorf("resource: %w", &discovery.NotFoundError{APIVersion: r.Missing[0].APIVersion, Resource: r.Missing[0].Resource})
}

// Acquire implements reconciler.Kind.
func (k *kind) Acquire(*informers.Set) {}

// Remember implements reconciler.Kind.
func (k *kind) Remember(parent.Key, *object.Object) {}

// Forget implements reconciler.Kind.
func (k *kind) Forget(parent.Key) {}

// Owns implements reconciler.Kind: an attachment carries the controller's mark.
func (k *kind) Owns(o *object.Object) bool {
	by, ok := o.Annotation(claim.DecoratorMark)
	return ok && by == k.name
}

// Selects implements reconciler.Kind.
func (k *kind) Selects(_, o *object.Object) bool { return k.Owns(o) }

// Orphan implements reconciler.Kind: decorators do not adopt (docs/reference/contract.md#s17.1).
func (k *kind) Orphan(*object.Object, func(parent.Key)) {}

// Observe implements reconciler.Kind: attachments are what the target controls and what carries the controller's mark
// (docs/reference/contract.md#s17.2).
func (k *kind) Observe(_ context.Context, s *reconciler.Sync) error {
	s.Scope = children.Scope{
		Field: "attachments", Declared: "spec.attachments", Namespace: s.Parent.Namespace(),
		Annotations: map[string]string{claim.DecoratorMark: k.name},
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
