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
	"context"
	"errors"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// Write implements reconciler.Kind: the finalizer, the children and the status, in this order (docs/reference/contract.md#s6).
func (k *kind) Write(ctx context.Context, s *reconciler.Sync) error {
	if s.Decision.Finalized {
		if err := s.RemoveFinalizer(ctx); err != nil {
			return parent.IgnoreGone(err)
		}
	}
	var err error
	if s.ManagesChildren() {
		err = s.ReconcileChildren(ctx, "children")
	}
	return errors.Join(err, parent.IgnoreGone(k.writeStatus(ctx, s)))
}

// writeStatus replaces the parent's status by the hook's, if they differ.
func (k *kind) writeStatus(ctx context.Context, s *reconciler.Sync) error {
	if !s.Source.Resource.HasStatus {
		return nil
	}
	status := s.Decision.Status
	if status == nil {
		status = map[string]any{}
	}
	status["observedGeneration"] = s.Parent.Generation()
	err := s.WriteParent(func(api *client.Client) (*object.Object, error) {
		return parent.WriteStatus(ctx, api, s.Target, s.Parent, status)
	})
	if err != nil {
		return fmt.Errorf("can't update status for %s: %w", s.Parent, err)
	}
	return nil
}
