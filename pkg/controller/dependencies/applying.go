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

package dependencies

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
)

// maxFieldManager is the longest name of a field manager that API servers accept, in bytes.
const maxFieldManager = 128

// FieldManagerOf returns the field manager of a controller for server-side apply: metacontroller/<kind>/<name>, with the kind in
// lower case, unless the options name another one for all controllers. Of a name that is too long the end is a hash.
func (o Options) FieldManagerOf(kind, name string) string {
	if o.FieldManager != "" {
		return o.FieldManager
	}
	manager := plan.LegacyManager + "/" + strings.ToLower(kind) + "/" + name
	if len(manager) <= maxFieldManager {
		return manager
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:8])
	return manager[:maxFieldManager-len(end)] + end
}

// Managers are how the names of the field managers begin of which the cache has to know what they have applied: the present one,
// and those of before the option was set.
func (o Options) Managers() []string {
	if o.FieldManager != "" {
		return []string{plan.LegacyManager, o.FieldManager}
	}
	return []string{plan.LegacyManager}
}

// ApplyTo completes a rule with how its children are written, which the controller may leave to the options.
func (o Options) ApplyTo(rule *children.Rule, strategy v1alpha1.ChildApplyStrategy, force *bool) {
	switch strategy {
	case v1alpha1.ChildApplyServerSide:
		rule.ServerSide = true
	case v1alpha1.ChildApplyMerge:
		rule.ServerSide = false
	default:
		rule.ServerSide = o.ServerSideApply
	}
	rule.Force = force == nil || *force
}

// ChildRule returns how children of a resource are written where their controller does not say: OnDelete, with the strategy that the options name.
func (o Options) ChildRule(r discovery.Resource) children.Rule {
	rule := children.Rule{
		Kind: r.GroupVersionKind(), Resource: r.GroupVersionResource, Namespaced: r.Namespaced, HasStatus: r.HasStatus,
		Method: v1alpha1.ChildUpdateOnDelete,
	}
	o.ApplyTo(&rule, "", nil)
	return rule
}
