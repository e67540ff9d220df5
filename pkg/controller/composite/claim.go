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
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/claim"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// claim finds the parent's children, adopts orphans that it selects and releases children that it no longer does
// (docs/reference/contract.md#s8).
func (c *Controller) claim(ctx context.Context, s *scope) error {
	selector, err := c.selectors.of(s.key, s.parent)
	if err != nil {
		return fmt.Errorf("can't claim children for %s: %w", s.parent, err)
	}
	s.selector = selector
	claiming := claiming{
		Controller: c, scope: s,
		parent: claim.Parent{UID: s.parent.UID(), Deleting: s.parent.Deleting(), Selector: selector},
	}
	for i, r := range c.childResources {
		claimed, err := claiming.rule(ctx, r, c.children[i])
		if err != nil {
			return fmt.Errorf("can't claim %s children: %w", r.Kind, err)
		}
		s.shown = append(s.shown, wire.GroupOf(hook.TypeKey(r.APIVersion(), r.Kind), claimed))
	}
	return nil
}

// claiming is the claiming of one sync.
type claiming struct {
	*Controller
	scope  *scope
	parent claim.Parent
	// alive is known once the API server was asked whether the parent still lives, which is done at most once a sync.
	asked, alive bool
}

// rule claims the children of one kind and returns them as the hook is shown them.
func (c *claiming) rule(ctx context.Context, r discovery.Resource, informer *cache.Informer) ([]*object.Object, error) {
	namespace := ""
	if c.parentResource.Namespaced {
		namespace = c.scope.key.Namespace
	}
	candidates := informer.ControlledBy(c.parent.UID)
	if !c.parent.Deleting {
		candidates = append(candidates, informer.Orphans(namespace, c.parent.Selector)...)
	}
	var claimed []*object.Object
	var errs []error
	for _, o := range candidates {
		if namespace != "" && o.Namespace() != namespace {
			continue
		}
		now, err := c.one(ctx, r, informer, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if now != nil {
			claimed = append(claimed, o)
			c.scope.observed = append(c.scope.observed, now)
		}
	}
	return claimed, errors.Join(errs...)
}

// one does with a candidate what is to be done, and returns it as it is then, nil if it is not a child.
func (c *claiming) one(ctx context.Context, r discovery.Resource, informer *cache.Informer, o *object.Object) (*object.Object, error) {
	target := client.Target{Resource: r.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()}
	switch c.parent.Decide(o) {
	case claim.Claim:
		return o, nil
	case claim.Adopt:
		return c.adopt(ctx, target, informer, o)
	case claim.Release:
		return nil, c.release(ctx, target, informer, o)
	case claim.Ignore:
	}
	return nil, nil
}

func (c *claiming) adopt(ctx context.Context, target client.Target, informer *cache.Informer, o *object.Object) (*object.Object, error) {
	if alive, err := c.parentLives(ctx); err != nil || !alive {
		return nil, err
	}
	patch, err := claim.AdoptPatch(o, claim.OwnerOf(c.scope.parent))
	if err != nil {
		return nil, err
	}
	logger(ctx).Info("Adopting child", "parent", c.scope.parent, "child", o)
	written, err := c.shared.Cluster.Client.Patch(ctx, target, types.MergePatchType, patch)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("adopting %s: %w", o, err)
	}
	c.shared.Cluster.Barrier.WroteObject(c.parent.UID, informer, written)
	c.shared.Recorder.Normal(childcontrol.Reference(c.scope.parent), "ChildAdopted", "Adopted "+o.String())
	return written, nil
}

func (c *claiming) release(ctx context.Context, target client.Target, informer *cache.Informer, o *object.Object) error {
	patch, err := claim.ReleasePatch(o, c.parent.UID)
	if err != nil {
		return err
	}
	logger(ctx).Info("Releasing child whose labels no longer match", "parent", c.scope.parent, "child", o)
	written, err := c.shared.Cluster.Client.Patch(ctx, target, types.MergePatchType, patch)
	if apierrors.IsNotFound(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("releasing %s: %w", o, err)
	}
	c.shared.Cluster.Barrier.WroteObject(c.parent.UID, informer, written)
	c.shared.Recorder.Normal(childcontrol.Reference(c.scope.parent), "ChildReleased",
		"Released "+o.String()+", whose labels do not match the selector any more")
	return nil
}

// parentLives asks the API server, not the cache, whether the parent is still there: what is adopted by a parent that was
// just deleted is deleted with it.
func (c *claiming) parentLives(ctx context.Context) (bool, error) {
	if c.asked {
		return c.alive, nil
	}
	live, err := c.shared.Cluster.Client.Get(ctx, c.scope.target)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("asking whether %s still lives: %w", c.scope.parent, err)
	}
	c.asked = true
	c.alive = err == nil && live.UID() == c.parent.UID && !live.Deleting()
	return c.alive, nil
}
