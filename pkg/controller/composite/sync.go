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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// scope is what the phases of one sync share.
type scope struct {
	key    parent.Key
	target client.Target
	root   webhook.RootKey
	// parent is the parent; a phase that writes it puts the new state here.
	parent *object.Object
	// selector selects the parent's children.
	selector labels.Selector
	// shown are the observed children as the hook is shown them, by rule.
	shown []wire.Group
	// observed are the observed children as they are now.
	observed []*object.Object
	// related are the related objects.
	related []wire.Group
	// response stands for the children that the hook wants, zero for those of a rollout.
	response record.Fingerprint
	// decision is what the hook decided.
	decision decision
}

// decision is what the hook, asked once or once for each revision, wants.
type decision struct {
	// settled says that nothing is to be done about the children; they are not in desired then.
	settled bool
	// desired are the children that shall be.
	desired []children.Desired
	// observed are the children that are looked at: a rollout leaves some alone.
	observed    []*object.Object
	status      map[string]any
	resyncAfter time.Duration
	finalized   bool
}

// sync brings one parent to its desired state (docs/reference/contract.md#s6).
func (c *Controller) sync(ctx context.Context, key parent.Key) (worker.Result, error) {
	s := c.open(key)
	if s == nil {
		return worker.Result{}, nil
	}
	for _, phase := range []func(context.Context, *scope) error{c.ensureFinalizer, c.claim, c.gatherRelated, c.decide} {
		if err := phase(ctx, s); err != nil {
			return worker.Result{ResyncAfter: s.decision.resyncAfter}, err
		}
		if s.parent == nil {
			return worker.Result{}, nil
		}
	}
	again, err := c.act(ctx, s)
	return worker.Result{ResyncAfter: worker.Earliest(s.decision.resyncAfter, again)}, err
}

// open returns the scope of a parent, nil if there is nothing to do for it.
func (c *Controller) open(key parent.Key) *scope {
	o, ok := c.parents.Get(key.Namespace, key.Name)
	if !ok || !c.relevant(o) {
		// A sync that was under way when the parent went may have put it back.
		c.customizer.Forget(key)
		return nil
	}
	return &scope{
		key:    key,
		parent: o,
		target: client.Target{Resource: c.parentResource.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()},
		root: webhook.RootKey{
			Group: c.parentResource.Group, Kind: c.parentResource.Kind, Namespace: o.Namespace(), Name: o.Name(),
		},
	}
}

// ensureFinalizer puts the finalizer on the parent or takes it off (docs/reference/contract.md#s15).
func (c *Controller) ensureFinalizer(ctx context.Context, s *scope) error {
	written, changed, err := c.finalizer.Sync(ctx, c.shared.Cluster.Client, s.target, s.parent)
	if apierrors.IsNotFound(err) {
		// Only here it means that the parent is gone; a hook's Secret, for one, may be missing as well.
		s.parent = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("can't sync finalizer for %s: %w", s.parent, err)
	}
	if changed {
		c.wroteParent(s, written)
		if !c.relevant(written) {
			s.parent = nil
		}
	}
	return nil
}

// wroteParent takes the state of the parent after a write.
func (c *Controller) wroteParent(s *scope, written *object.Object) {
	s.parent = written
	c.shared.Cluster.Barrier.WroteObject(written.UID(), c.parents, written)
}

// gatherRelated finds the objects that the customize hook asks for (docs/reference/contract.md#s16).
func (c *Controller) gatherRelated(ctx context.Context, s *scope) error {
	var err error
	s.related, err = c.customizer.Related(ctx, s.key, s.root, *c.encoded.Load(), s.parent)
	return err
}

// finalizing reports whether the finalize hook is asked in place of the sync hook.
func (c *Controller) finalizing(o *object.Object) bool {
	return c.hooks.Finalize != nil && (o.Deleting() || !c.selected(o))
}

// managesChildren reports whether children are touched: not those of a parent that is being deleted, unless it is being
// finalized (docs/reference/contract.md#s15).
func (c *Controller) managesChildren(o *object.Object) bool {
	return !o.Deleting() || c.finalizer.ShouldFinalize(o)
}

// decide asks the hook what shall be, and judges the response.
func (c *Controller) decide(ctx context.Context, s *scope) error {
	if c.planner.Active() && c.managesChildren(s.parent) {
		return c.decideRollout(ctx, s)
	}
	response, err := c.ask(ctx, s, s.parent, func(array []byte) bool {
		s.response = c.converger.Fingerprint(array, c.judgedBy(s))
		return c.converger.Settled(s.parent.UID(), s.response, s.observed)
	})
	if err != nil {
		return err
	}
	s.decision = decision{
		settled: response.Known, observed: s.observed, status: response.Status, resyncAfter: response.ResyncAfter, finalized: response.Finalized,
	}
	if !response.Known {
		s.decision.desired, err = c.judge(s, response)
	}
	return err
}

// judgedBy is what of the parent decides about the children of a response and may change.
func (c *Controller) judgedBy(s *scope) string {
	if c.generatesSelector() {
		return ""
	}
	return s.selector.String()
}

// ask asks the hook about a parent, which may be a former revision of it. The response leaves out children that are known.
func (c *Controller) ask(ctx context.Context, s *scope, shown wire.Object, known hookclient.Known) (*wire.CompositeResponse, error) {
	finalizing := c.finalizing(s.parent)
	var asked *hookclient.Hook
	switch {
	case finalizing:
		asked = c.hooks.Finalize
	case c.hooks.Sync != nil:
		asked = c.hooks.Sync
	default:
		return nil, fmt.Errorf("sync hook not defined for %s: %w", s.parent, errNoHook)
	}
	response, err := asked.Composite(ctx, s.root, wire.Composite(wire.Request{
		Version: asked.Version, Controller: *c.encoded.Load(), Parent: shown,
		Children: s.shown, Related: s.related, Finalizing: finalizing,
	}), known)
	if err != nil {
		return nil, fmt.Errorf("sync hook failed for %s: %w", s.parent, err)
	}
	if len(response.Ignored) > 0 {
		logger(ctx).V(4).Info("Hook's response has fields that are ignored", "parent", s.parent, "fields", response.Ignored)
	}
	return response, nil
}

// judge completes and checks the children of a response.
func (c *Controller) judge(s *scope, response *wire.CompositeResponse) ([]children.Desired, error) {
	list := make([]map[string]any, len(response.Children))
	for i := range response.Children {
		list[i] = response.Children[i].Object
	}
	scope := children.Scope{
		Field: "children", Declared: "spec.childResources", Namespace: s.parent.Namespace(), Selector: s.selector,
	}
	if c.generatesSelector() {
		scope.Labels = map[string]string{uidLabel: string(s.parent.UID())}
	}
	desired, _, err := children.Validate(scope, c.rules, list)
	if err != nil {
		return nil, fmt.Errorf("response refused for %s: %w", s.parent, err)
	}
	return desired, nil
}

// act does what was decided: the finalizer, the children, the status, in this order (docs/reference/contract.md#s6).
func (c *Controller) act(ctx context.Context, s *scope) (time.Duration, error) {
	if s.decision.finalized {
		if err := c.finalized(ctx, s); err != nil {
			return 0, parent.IgnoreGone(err)
		}
	}
	var again time.Duration
	var errChildren error
	if c.managesChildren(s.parent) && !s.decision.settled {
		in, err := c.converger.Gather(ctx, s.parent, s.decision.observed, s.decision.desired)
		if err != nil {
			return 0, err
		}
		if again, errChildren = c.converger.Reconcile(ctx, s.key, s.parent, in, s.response); errChildren != nil {
			errChildren = fmt.Errorf("can't reconcile children for %s: %w", s.parent, errChildren)
		}
	}
	return again, errors.Join(errChildren, parent.IgnoreGone(c.writeStatus(ctx, s)))
}

// finalized takes our finalizer off the parent.
func (c *Controller) finalized(ctx context.Context, s *scope) error {
	written, changed, err := c.finalizer.Remove(ctx, c.shared.Cluster.Client, s.target, s.parent)
	if err != nil {
		return fmt.Errorf("can't remove finalizer for %s: %w", s.parent, err)
	}
	if changed {
		c.wroteParent(s, written)
	}
	return nil
}

// writeStatus replaces the parent's status by the hook's, if they differ.
func (c *Controller) writeStatus(ctx context.Context, s *scope) error {
	if !c.parentResource.HasStatus {
		return nil
	}
	status := s.decision.status
	if status == nil {
		status = map[string]any{}
	}
	status["observedGeneration"] = s.parent.Generation()
	written, mistaken, err := c.echoes.Write(c.parents, s.parent, func() (*object.Object, error) {
		return parent.WriteStatus(ctx, c.shared.Cluster.Client, s.target, s.parent, status)
	})
	if mistaken {
		c.loop.Enqueue(s.key, workqueue.Live)
	}
	if err != nil {
		return fmt.Errorf("can't update status for %s: %w", s.parent, err)
	}
	if written != nil {
		c.wroteParent(s, written)
	}
	return nil
}
