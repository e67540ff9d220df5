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

package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// Deletes reports whether a step deletes a child, to create it again or not.
func (s Step) Deletes() bool { return s.Action == Delete || s.Action == Recreate }

// HoldsDeletion reports whether a child that is not wanted is left for a while, because somebody makes it again after each deletion.
func (s Step) HoldsDeletion() bool { return s.Reason == Flapping && s.desired == 0 }

// Deletions returns the children that the plan deletes.
func (p Plan) Deletions() []types.UID {
	var all []types.UID
	for i := range p.Steps {
		if p.Steps[i].Deletes() {
			all = append(all, p.Steps[i].Observed.UID())
		}
	}
	return all
}

// WithoutDeletions returns the plan in which the children that it would delete are kept as they are.
func (p Plan) WithoutDeletions() Plan {
	var kept []children.Key
	for i := range p.Steps {
		if p.Steps[i].Deletes() {
			kept = append(kept, p.Steps[i].Key)
		}
	}
	p.Kept = slices.Concat(p.Kept, kept)
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return s.Deletes() })
	return p
}
