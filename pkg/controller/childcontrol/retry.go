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

package childcontrol

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Outdated returns the children of a parent that may have to be written because the schema of their kind changed, or what mutates them.
func (c *Control) Outdated(m *Memory) []children.Key {
	records, _ := m.known()
	keys := records.Outdated(c.followed)
	return slices.DeleteFunc(keys, func(key children.Key) bool {
		rule, _ := c.config.Rules.For(key.GroupKind())
		return rule.Method == v1alpha1.ChildUpdateOnDelete // It is not written.
	})
}

// Retry asks the API server once more what it makes of a child of a parent, if what is known of that is outdated: of what was applied to the
// child last, without the hook. It writes nothing. It reports whether the parent is to be synced: the child has to be written, or only the
// hook knows what is desired, or something failed. That sync does not ask again what was answered, and asks about the parent's other children
// of which the knowledge is outdated.
func (c *Control) Retry(ctx context.Context, m *Memory, parent *object.Object, key children.Key) (sync bool) {
	in := c.input(parent)
	records, _ := m.known()
	known := records.Get(key)
	if known == nil || len(plan.Records{known}.Outdated(c.followed)) == 0 {
		return false
	}
	in.Records = plan.Records{known.Unsettled()} // A parent may have very many others.
	for _, informer := range c.config.Informers[key.GroupKind()] {
		o, ok := informer.Get(key.Namespace, key.Name)
		if !ok || !c.config.Mine(parent, o) {
			continue
		}
		if d, ok := in.Applied(o); ok && d.APIVersion == o.APIVersion() {
			in.Observed, in.Desired = []*object.Object{o}, []children.Desired{d}
			break
		}
	}
	next, sync := in.Records, true
	if len(in.Desired) > 0 {
		next, sync = c.retry(ctx, in)
	}
	records = records.With(next...)
	if sync {
		records = records.Unsettled(records.Outdated(c.followed)...)
	}
	m.keep(records)
	return sync
}

// retry returns the records after a plan for one child that is not carried out, and whether it is to be.
func (c *Control) retry(ctx context.Context, in plan.Input) (next plan.Records, carryOut bool) {
	in, err := c.Complete(ctx, in)
	if err != nil {
		return in.Records, true
	}
	p, err := c.makePlan(in)
	if err != nil {
		return in.Records, true
	}
	step := &p.Steps[0]
	return p.Next(in.Records, nil, 0), step.Action != plan.Leave || step.Reason != plan.Same && step.Reason != plan.Deleting
}

// followed returns the latest epoch of a declared kind that API servers follow.
func (c *Control) followed(kind schema.GroupKind) int64 {
	return c.config.Cluster.Discovery.Followed(c.resource(kind))
}

// resource returns the resource of a declared kind.
func (c *Control) resource(kind schema.GroupKind) schema.GroupResource {
	rule, _ := c.config.Rules.For(kind)
	return rule.Resource.GroupResource()
}
