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
	"sync"

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
	shared  *dependencies.Shared
	spec    *v1alpha1.DecoratorControllerSpec
	name    string
	sources []*reconciler.Source
	rules   []children.Rule
	missing []v1alpha1.ResourceRule

	mu      sync.Mutex
	targets map[parent.Key]struct{}
}

// New builds the controller of a DecoratorController. It resolves the kinds that the definition names. The error is a
// *discovery.NotFoundError if no kind of targets is served, and a *definition.InvalidError if the definition has to be changed.
func New(ctx context.Context, shared *dependencies.Shared, d definition.Definition) (*reconciler.Controller, error) {
	spec, ok := d.Spec.(*v1alpha1.DecoratorControllerSpec)
	if !ok {
		return nil, fmt.Errorf("building a DecoratorController from a %T", d.Spec)
	}
	k := &kind{shared: shared, spec: spec, name: d.Meta.Name, targets: map[parent.Key]struct{}{}}
	if err := k.resolveTargets(ctx); err != nil {
		return nil, err
	}
	if err := k.resolveAttachments(ctx); err != nil {
		return nil, err
	}
	return reconciler.New(reconciler.Config{
		Dependencies: shared, Definition: d, Kind: k, Sources: k.sources, Children: k.rules, Missing: k.missing,
	})
}

// resolve finds a declared kind. It is noted as missing if it is not served; found is false then.
func (k *kind) resolve(ctx context.Context, rule v1alpha1.ResourceRule) (resource discovery.Resource, found bool, err error) {
	resource, err = k.shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		k.missing = append(k.missing, rule)
		return resource, false, nil
	}
	return resource, err == nil, err
}

// resolveTargets finds the kinds of the targets, of which one at least must be served.
func (k *kind) resolveTargets(ctx context.Context) error {
	for i := range k.spec.Resources {
		declared := &k.spec.Resources[i]
		selector, err := newSelector(declared)
		if err != nil {
			return &definition.InvalidError{Reason: fmt.Sprintf("spec.resources[%d].%v", i, err)}
		}
		resource, found, err := k.resolve(ctx, declared.ResourceRule)
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
	if len(k.missing) == 0 {
		return &definition.InvalidError{Reason: "no resources defined; set spec.resources"}
	}
	return fmt.Errorf("resource: %w", &discovery.NotFoundError{APIVersion: k.missing[0].APIVersion, Resource: k.missing[0].Resource})
}

// resolveAttachments finds the kinds of the attachments.
func (k *kind) resolveAttachments(ctx context.Context) error {
	for i := range k.spec.Attachments {
		declared := &k.spec.Attachments[i]
		resource, found, err := k.resolve(ctx, declared.ResourceRule)
		if err != nil {
			return fmt.Errorf("attachment: %w", err)
		}
		if !found {
			continue
		}
		rule := k.shared.Options.ChildRule(resource)
		if strategy := declared.UpdateStrategy; strategy != nil {
			rule.Method = strategy.Method
			k.shared.Options.ApplyTo(&rule, strategy.Apply, strategy.Force)
		}
		k.rules = append(k.rules, rule)
	}
	return nil
}

// Acquire implements reconciler.Kind.
func (k *kind) Acquire(*informers.Set) {}

// Remember implements reconciler.Kind.
func (k *kind) Remember(key parent.Key, _ *object.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.targets[key] = struct{}{}
}

// Forget implements reconciler.Kind.
func (k *kind) Forget(key parent.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.targets[key]
	delete(k.targets, key)
	return ok
}

// Len implements reconciler.Kind.
func (k *kind) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.targets)
}

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
