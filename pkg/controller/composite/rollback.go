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
	"errors"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
)

var _ reconciler.Reviser = &kind{}

// Former implements reconciler.Reviser.
func (k *kind) Former(s *reconciler.Sync, name string) (reconciler.Former, error) {
	if !k.planner.Active() {
		return reconciler.Former{}, fmt.Errorf("%w: no kind of children is updated by a rolling method, so that there are no revisions",
			reconciler.ErrNoRevision)
	}
	content, err := s.Parent.Decode()
	if err != nil {
		return reconciler.Former{}, err
	}
	stored, err := k.storedRevisions(s)
	if err != nil {
		return reconciler.Former{}, err
	}
	revisions, err := k.planner.Revisions(content, stored)
	if err != nil {
		return reconciler.Former{}, fmt.Errorf("reading the revisions: %w", err)
	}
	former, err := rollout.Former(revisions, name)
	if errors.Is(err, rollout.ErrNoFormer) || errors.Is(err, rollout.ErrUnknown) {
		return reconciler.Former{}, fmt.Errorf("%w: %w", reconciler.ErrNoRevision, err)
	}
	if err != nil {
		return reconciler.Former{}, err
	}
	return reconciler.Former{Name: former.Object.Name, Latest: revisions[0].Object.Name, Parent: former.Parent}, nil
}
