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

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// errNoHook is the error of a parent for which no hook is declared (docs/reference/contract.md#s17.3).
var errNoHook = errors.New("no enabled hooks found")

func typeKey(kind schema.GroupVersionKind) string {
	return hook.TypeKey(kind.GroupVersion().String(), kind.Kind)
}

// finalizing reports whether the finalize hook is called in place of the sync hook.
func (s *Sync) finalizing() bool {
	return s.controller.hooks.Finalize != nil && (s.Parent.Deleting() || !s.Source.Selected(s.Parent))
}

// Call calls the hook about the parent, shown as it is or as it was in a former revision. The response is released with the sync.
func (s *Sync) Call(ctx context.Context, shown wire.Object) (*hookclient.Response, error) {
	c, finalizing := s.controller, s.finalizing()
	var called *hookclient.Hook
	switch {
	case finalizing:
		called = c.hooks.Finalize
	case c.hooks.Sync != nil:
		called = c.hooks.Sync
	default:
		return nil, fmt.Errorf("sync hook not defined for %s: %w", s.Parent, errNoHook)
	}
	request := wire.Request{
		Version: called.Version, Controller: *c.encoded.Load(), Parent: shown,
		Children: s.Shown, Related: s.Related, Finalizing: finalizing,
	}
	var response *hookclient.Response
	var err error
	if c.config.Definition.Kind == definition.KindDecorator {
		response, err = called.Decorator(ctx, s.Root, wire.Decorator(request))
	} else {
		response, err = called.Composite(ctx, s.Root, wire.Composite(request))
	}
	if err != nil {
		return nil, fmt.Errorf("sync hook failed for %s: %w", s.Parent, err)
	}
	s.responses = append(s.responses, response)
	if len(response.Ignored) > 0 {
		klog.FromContext(ctx).V(4).Info("Response of the hook has fields that are ignored", "parent", s.Parent, "fields", response.Ignored)
	}
	return response, nil
}

// Decide calls the hook once and takes its response as the Decision.
func (s *Sync) Decide(ctx context.Context) error {
	response, err := s.Call(ctx, s.Parent)
	if err != nil {
		return err
	}
	s.Decision = Decision{
		Observed: s.Observed, Status: response.Status, Labels: response.Labels, Annotations: response.Annotations,
		ResyncAfter: response.ResyncAfter, Finalized: response.Finalized, Delete: response.Delete,
	}
	scope := ""
	if s.Scope.Selector != nil {
		scope = s.Scope.Selector.String()
	}
	s.fingerprint = record.FingerprintOf(response.RawChildren, scope)
	if s.controller.children.Settled(s.Parent.UID(), s.fingerprint, s.Observed) {
		s.Decision.Settled = true
		return nil
	}
	s.Decision.Desired, s.Decision.Unserved, err = s.Validate(response)
	if len(s.Decision.Unserved) > 0 {
		// The response is not settled before these children are there.
		s.fingerprint = 0
	}
	return err
}

// Validate decodes and validates the children of a response. Those of kinds that are declared and not served are not among the desired
// ones.
func (s *Sync) Validate(response *hookclient.Response) ([]children.Desired, []children.Key, error) {
	list, err := response.Children()
	if err != nil {
		return nil, nil, fmt.Errorf("sync hook failed for %s: %w", s.Parent, err)
	}
	desired, unserved, err := children.Validate(s.Scope, s.controller.rules, list)
	if err != nil {
		response.Reject()
		return nil, nil, fmt.Errorf("response refused for %s: %w", s.Parent, err)
	}
	return desired, unserved, nil
}
