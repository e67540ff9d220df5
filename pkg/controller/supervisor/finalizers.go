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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
)

// HoldFinalizer is the finalizer that keeps a controller object until the controller's own finalizer is off all parents
// (docs/reference/compatibility.md#d15).
const HoldFinalizer = "metacontroller.k8s.io/parents"

// finalized returns the resources on whose objects the definition puts the controller's finalizer.
func finalized(d definition.Definition) []schema.GroupResource {
	if !d.Finalizes() || d.Meta.DeletionTimestamp != nil {
		return nil
	}
	return parents(d)
}

// parents returns the resources of the parents, each once, without their versions.
func parents(d definition.Definition) []schema.GroupResource {
	var list []schema.GroupResource
	for _, rule := range d.Parents {
		// A version that cannot be parsed is refused by validation, and served by no cluster.
		version, _ := schema.ParseGroupVersion(rule.APIVersion)
		if r := (schema.GroupResource{Group: version.Group, Resource: rule.Resource}); !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}

// without returns the resources of a list that are not in others.
func without(list []schema.GroupResource, others ...schema.GroupResource) []schema.GroupResource {
	var rest []schema.GroupResource
	for _, r := range list {
		if !slices.Contains(others, r) {
			rest = append(rest, r)
		}
	}
	return rest
}

// held reports whether the object of d stays until its parents are released.
func held(d definition.Definition) bool { return slices.Contains(d.Meta.Finalizers, HoldFinalizer) }

// prepare records which resources an instance of d may finalize, before it can do so.
func (s *Supervisor) prepare(ctx context.Context, d definition.Definition) error {
	declared := finalized(d)
	s.releaser.claim(declared)
	if len(declared) == 0 {
		return nil
	}
	s.report.record(declared)
	if err := s.hold(ctx, d); err != nil {
		return err
	}
	if err := s.report.publish(ctx); err != nil {
		return fmt.Errorf("recording the resources to finalize: %w", err)
	}
	return nil
}

// hold makes sure that the object has HoldFinalizer exactly while an object may carry the controller's finalizer.
func (s *Supervisor) hold(ctx context.Context, d definition.Definition) error {
	needed := len(s.report.recorded()) > 0 || len(finalized(d)) > 0
	finalizers := slices.Clone(d.Meta.Finalizers)
	switch {
	case needed && !held(d) && d.Meta.DeletionTimestamp == nil:
		finalizers = append(finalizers, HoldFinalizer)
	case !needed && held(d):
		finalizers = slices.DeleteFunc(finalizers, func(name string) bool { return name == HoldFinalizer })
	default:
		return nil
	}
	err := s.config.Objects.SetFinalizers(ctx, d, finalizers)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the finalizer that keeps %s %s until its parents are released: %w", d.Kind, d.Meta.Name, err)
	}
	return nil
}
