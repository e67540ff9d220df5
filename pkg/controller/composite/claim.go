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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
)

// Observe implements reconciler.Kind: it finds the parent's children, adopts orphans that it selects and releases children that it no
// longer does (docs/reference/contract.md#s8).
func (k *kind) Observe(ctx context.Context, s *reconciler.Sync) error {
	selector, err := s.Selector()
	if err != nil {
		return fmt.Errorf("can't claim children for %s: %w", s.Parent, err)
	}
	s.Scope = children.Scope{
		Field: "children", Declared: "spec.childResources", Namespace: s.Parent.Namespace(), Selector: selector,
	}
	if k.generates {
		s.Scope.Labels, s.Scope.Inherited = map[string]string{rollout.LabelControllerUID: string(s.Parent.UID())}, s.Parent.LabelSet()
	}
	claiming := claiming{
		kind: k, sync: s, released: map[children.Key]bool{},
		parent: children.Parent{UID: s.Parent.UID(), Deleting: s.Parent.Deleting(), Selector: selector},
	}
	return s.Children(func(i int, rule *children.Rule, informer *cache.Informer) error {
		shown, now, err := claiming.rule(ctx, rule, informer)
		if err != nil {
			return fmt.Errorf("can't claim %s children: %w", rule.Kind.Kind, err)
		}
		s.Show(i, shown, now)
		return nil
	})
}

// claiming is the claiming of one sync.
type claiming struct {
	*kind

	sync   *reconciler.Sync
	parent children.Parent
	// checked says that the API server was asked whether the parent is alive, which is done at most once a sync.
	checked, alive bool
	// released are the children that the sync has released.
	released map[children.Key]bool
}

// rule claims the children of one kind. It returns them as the hook is shown them, and as they are now.
func (c *claiming) rule(ctx context.Context, rule *children.Rule, informer *cache.Informer) (shown, now []*object.Object, err error) {
	namespace := c.sync.Key.Namespace
	candidates := informer.ControlledBy(c.parent.UID)
	if !c.parent.Deleting {
		candidates = append(candidates, informer.Orphans(namespace, c.parent.Selector)...)
	}
	var errs []error
	for _, o := range candidates {
		if namespace != "" && o.Namespace() != namespace {
			continue
		}
		claimed, err := c.one(ctx, rule, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if claimed != nil {
			shown, now = append(shown, o), append(now, claimed)
		}
	}
	return shown, now, errors.Join(errs...)
}

// one adopts or releases a candidate where that is due, and returns it as it is then, nil if it is not a child.
func (c *claiming) one(ctx context.Context, rule *children.Rule, o *object.Object) (*object.Object, error) {
	target := client.Target{Resource: rule.Resource, Namespace: o.Namespace(), Name: o.Name()}
	switch c.parent.Decide(o) {
	case children.Claim:
		return o, nil
	case children.Adopt:
		if c.sync.Observes(o) {
			// A rule for another version of the same kind has adopted it.
			return o, nil
		}
		if c.sync.LeavesOwner(ctx, target, o, true) {
			return nil, nil
		}
		return c.adopt(ctx, target, o)
	case children.Release:
		if key := children.KeyOf(o); !c.released[key] { // By a rule for another version of the same kind.
			c.released[key] = true
			if c.sync.LeavesOwner(ctx, target, o, false) {
				return nil, nil
			}
			return nil, c.release(ctx, target, o)
		}
	case children.Ignore:
	}
	return nil, nil
}

func (c *claiming) adopt(ctx context.Context, target client.Target, o *object.Object) (*object.Object, error) {
	if alive, err := c.parentLives(ctx); err != nil || !alive {
		return nil, err
	}
	patch, err := children.AdoptPatch(o, children.OwnerOf(c.sync.Parent))
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Adopting child", "parent", c.sync.Parent, "child", o)
	written, err := c.sync.Claim(ctx, v1alpha1.ChildAdopt, target, o, patch)
	if client.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("adopting %s: %w", o, err)
	}
	c.sync.Event("ChildAdopted", "Adopted "+o.String())
	return written, nil
}

func (c *claiming) release(ctx context.Context, target client.Target, o *object.Object) error {
	patch, err := children.ReleasePatch(o, c.parent.UID)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Releasing child whose labels no longer match", "parent", c.sync.Parent, "child", o)
	_, err = c.sync.Claim(ctx, v1alpha1.ChildRelease, target, o, patch)
	if client.IsGone(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("releasing %s: %w", o, err)
	}
	c.sync.Event("ChildReleased", "Released "+o.String()+", whose labels do not match the selector any more")
	return nil
}

// parentLives asks the API server, not the informer, whether the parent is alive: what is adopted by a parent that was
// just deleted is deleted with it.
func (c *claiming) parentLives(ctx context.Context) (bool, error) {
	if c.checked {
		return c.alive, nil
	}
	live, err := c.shared.Cluster.Client.Get(ctx, c.sync.Target)
	if err != nil && !client.IsGone(err) {
		return false, fmt.Errorf("reading whether %s is alive: %w", c.sync.Parent, err)
	}
	c.checked = true
	c.alive = err == nil && live.UID() == c.parent.UID && !live.Deleting()
	return c.alive, nil
}
