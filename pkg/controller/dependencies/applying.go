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
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// childRule returns how children of a resource are written, where an update strategy says what the others are: empty and nil leave it
// to the defaults.
func (o Options) childRule(
	r discovery.Resource, method v1alpha1.ChildUpdateMethod, apply v1alpha1.ChildApplyStrategy, force *bool,
) children.Rule {
	rule := children.Rule{
		Kind: r.GroupVersionKind(), Resource: r.GroupVersionResource, Namespaced: r.Namespaced, HasStatus: r.HasStatus,
		Method: cmp.Or(method, v1alpha1.ChildUpdateOnDelete), ServerSide: o.ServerSideApply, Force: force == nil || *force,
	}
	switch apply {
	case v1alpha1.ChildApplyServerSide:
		rule.ServerSide = true
	case v1alpha1.ChildApplyMerge:
		rule.ServerSide = false
	}
	return rule
}

// Resolver finds the kinds that a definition names.
type Resolver struct {
	// Shared has the cluster and the defaults.
	Shared *Shared
	// Children are the kinds of children that Child found, in order.
	Children []children.Rule
	// Missing are the kinds that the cluster does not serve at present.
	Missing []v1alpha1.ResourceRule
}

// Find finds a declared kind. If it is not served it is noted as missing, and found is false.
func (r *Resolver) Find(ctx context.Context, rule v1alpha1.ResourceRule) (resource discovery.Resource, found bool, err error) {
	resource, err = r.Shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		r.Missing = append(r.Missing, rule)
		return resource, false, nil
	}
	return resource, err == nil, err
}

// Child finds a declared kind of children. The method, apply and force are those of its update strategy; empty and nil mean the defaults.
func (r *Resolver) Child(
	ctx context.Context, rule v1alpha1.ResourceRule, method v1alpha1.ChildUpdateMethod, apply v1alpha1.ChildApplyStrategy, force *bool,
) (child children.Rule, found bool, err error) {
	resource, found, err := r.Find(ctx, rule)
	if !found {
		return child, false, err
	}
	child = r.Shared.Options.childRule(resource, method, apply, force)
	r.Children = append(r.Children, child)
	return child, true, nil
}
