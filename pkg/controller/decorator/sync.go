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

package decorator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// errNoHook is the error of a target for which no hook is there (docs/reference/contract.md#s17.3).
var errNoHook = errors.New("no enabled hooks found")

// scope is what the phases of one sync share.
type scope struct {
	key  parent.Key
	rule *rule
	at   client.Target
	root webhook.RootKey
	// target is the target; a phase that writes it puts the new state here, and nil if there is nothing more to do.
	target *object.Object
	// shown are the observed attachments as the hook is shown them, by rule.
	shown []wire.Group
	// observed are the observed attachments.
	observed []*object.Object
	// related are the related objects.
	related []wire.Group
	// response is what the hook returned.
	response *wire.DecoratorResponse
	// attachments stands for the attachments of the response.
	attachments record.Fingerprint
	// desired are the attachments that shall be.
	desired []children.Desired
}

// sync brings one target to its desired state (docs/reference/contract.md#s17.3).
func (c *Controller) sync(ctx context.Context, key parent.Key) (worker.Result, error) {
	s := c.open(key)
	if s == nil {
		return worker.Result{}, nil
	}
	if err := c.ensureFinalizer(ctx, s); err != nil || s.target == nil {
		return worker.Result{}, parent.IgnoreGone(err)
	}
	c.observe(s)
	if err := c.gatherRelated(ctx, s); err != nil {
		return worker.Result{}, err
	}
	if err := c.decide(ctx, s); err != nil {
		return worker.Result{}, err
	}
	again, err := c.act(ctx, s)
	return worker.Result{ResyncAfter: worker.Earliest(s.response.ResyncAfter, again)}, err
}

// open returns the scope of a target, nil if there is nothing to do for it.
func (c *Controller) open(key parent.Key) *scope {
	r, o, ok := c.find(key)
	if !ok || !c.relevant(r, o) {
		c.customizer.Forget(key)
		return nil
	}
	return &scope{
		key: key, rule: r, target: o, root: rootOf(r, o),
		at: client.Target{Resource: r.resource.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()},
	}
}

// ensureFinalizer puts the finalizer on the target or takes it off (docs/reference/contract.md#s15).
func (c *Controller) ensureFinalizer(ctx context.Context, s *scope) error {
	written, changed, err := c.finalizer.Sync(ctx, c.shared.Cluster.Client, s.at, s.target)
	if err != nil {
		return fmt.Errorf("can't sync finalizer for %s: %w", s.target, err)
	}
	if changed {
		c.wroteTarget(s, written)
		if !c.relevant(s.rule, written) {
			s.target = nil
		}
	}
	return nil
}

// wroteTarget takes the state of the target after a write.
func (c *Controller) wroteTarget(s *scope, written *object.Object) {
	s.target = written
	c.shared.Cluster.Barrier.WroteObject(written.UID(), s.rule.informer, written)
}

// observe finds the target's attachments: those that it controls and that carry this controller's mark (docs/reference/contract.md#s17.2).
func (c *Controller) observe(s *scope) {
	for _, a := range c.attachments {
		var found []*object.Object
		for _, o := range a.informer.ControlledBy(s.target.UID()) {
			if c.marked(o) && (!s.rule.resource.Namespaced || o.Namespace() == s.key.Namespace) {
				found = append(found, o)
			}
		}
		s.shown = append(s.shown, wire.GroupOf(hook.TypeKey(a.resource.APIVersion(), a.resource.Kind), found))
		s.observed = append(s.observed, found...)
	}
}

// gatherRelated finds the objects that the customize hook asks for (docs/reference/contract.md#s16).
func (c *Controller) gatherRelated(ctx context.Context, s *scope) error {
	var err error
	s.related, err = c.customizer.Related(ctx, s.key, s.root, *c.encoded.Load(), s.target)
	return err
}

// decide asks the hook what shall be, and judges the response.
func (c *Controller) decide(ctx context.Context, s *scope) error {
	finalizing := c.hooks.Finalize != nil && (s.target.Deleting() || !s.rule.selector.matches(s.target))
	var asked *hookclient.Hook
	switch {
	case finalizing:
		asked = c.hooks.Finalize
	case c.hooks.Sync != nil:
		asked = c.hooks.Sync
	default:
		return errNoHook
	}
	var err error
	s.response, err = asked.Decorator(ctx, s.root, wire.Decorator(wire.Request{
		Version: asked.Version, Controller: *c.encoded.Load(), Parent: s.target,
		Children: s.shown, Related: s.related, Finalizing: finalizing,
	}), func(array []byte) bool {
		s.attachments = c.converger.Fingerprint(array, "")
		return c.converger.Settled(s.target.UID(), s.attachments, s.observed)
	})
	if err != nil {
		return err
	}
	if len(s.response.Ignored) > 0 {
		klog.FromContext(ctx).V(4).Info("Hook's response has fields that are ignored", "target", s.target, "fields", s.response.Ignored)
	}
	if s.response.Known {
		return nil
	}
	list := make([]map[string]any, len(s.response.Attachments))
	for i := range s.response.Attachments {
		list[i] = s.response.Attachments[i].Object
	}
	s.desired, _, err = children.Validate(children.Scope{
		Field: "attachments", Declared: "spec.attachments", Namespace: s.target.Namespace(),
		Annotations: map[string]string{Marker: c.name},
	}, c.attachmentRules, list)
	if err != nil {
		return fmt.Errorf("response refused for %s: %w", s.target, err)
	}
	return nil
}

// act does what was decided: the target first, then its attachments. A target that cannot be written, because somebody
// else wrote it first for example, does not keep the attachments waiting (docs/reference/compatibility.md#d6, docs/reference/compatibility.md#d17.3).
func (c *Controller) act(ctx context.Context, s *scope) (time.Duration, error) {
	// Attachments of a target that is finalized in this sync are still managed in it (docs/reference/contract.md#s15).
	manages := !s.target.Deleting() || c.finalizer.ShouldFinalize(s.target)
	errTarget := c.writeTarget(ctx, s)
	if apierrors.IsNotFound(errTarget) {
		// Attachments of a target that is gone would only be collected again.
		return 0, nil
	}
	if errTarget == nil && s.response.Delete && !s.target.Deleting() {
		// The attachments go with the target, or are finalized.
		return 0, c.deleteTarget(ctx, s)
	}
	var again time.Duration
	var errAttachments error
	if manages && !s.response.Known {
		in, err := c.converger.Gather(ctx, s.target, s.observed, s.desired)
		if err != nil {
			return 0, err
		}
		if again, errAttachments = c.converger.Reconcile(ctx, s.key, s.target, in, s.attachments); errAttachments != nil {
			errAttachments = fmt.Errorf("can't reconcile attachments for %s: %w", s.target, errAttachments)
		}
	}
	return again, errors.Join(errTarget, errAttachments)
}
