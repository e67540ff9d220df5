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

package reconciler

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// relevant reports whether the controller handles o: it is selected, or carries the controller's finalizer
// (docs/reference/contract.md#s5.1, docs/reference/contract.md#s17.1).
func (c *Controller) relevant(s *Source, o *object.Object) bool {
	return s.Selected(o) || c.finalizer.On(o)
}

// stripped reports whether a parent lost the finalizer that it must have while the controller finalizes.
func (c *Controller) stripped(e cache.Event) bool {
	return e.Old != nil && c.finalizer.Enabled && c.finalizer.On(e.Old) && !c.finalizer.On(e.New)
}

// parentEvent handles a change of an object of a parent kind.
func (c *Controller) parentEvent(s *Source, e cache.Event) {
	if e.Type == cache.Deleted {
		key := s.key(e.Old)
		c.parents.remove(key)
		c.forget(s, e.Old)
		return
	}
	key := s.key(e.New)
	if !c.relevant(s, e.New) {
		if c.parents.remove(key) {
			c.forget(s, e.New)
		}
		return
	}
	c.parents.add(key)
	c.config.Kind.Remember(key, e.New)
	if e.Old != nil && (e.Old.Generation() != e.New.Generation() || e.Old.Deleting() != e.New.Deleting() || c.stripped(e)) {
		// What failed before the change says nothing about the syncs after it.
		c.pool.Reset(key)
	}
	switch {
	case e.Initial && !s.unsettled(e.New):
		// Nothing is known to have changed: parents that do change meanwhile go first.
		c.pool.EnqueueBecause(key, workqueue.Resync, c.parentChanged(e, false))
	case s.IgnoreStatus && parent.StatusOnly(e.Old, e.New) && !c.stripped(e) && !c.ownWrites.InDoubt(e.New):
	case c.ownWrites.Quiet(e.New):
	default:
		urgency, own := c.ownWrites.Urgency(e.New)
		if urgency == workqueue.Live && !e.New.Deleting() && c.stripped(e) {
			c.strippedBy(key, e)
		}
		c.pool.EnqueueBecause(key, urgency, c.parentChanged(e, own))
	}
}

// childEvent handles a change of an object of a child kind.
func (c *Controller) childEvent(e cache.Event) {
	if e.Old != nil && (e.New == nil || !sameController(e.Old, e.New) || c.config.Kind.Owns(e.Old) && !c.config.Kind.Owns(e.New)) {
		// A parent that loses a child by an edit of another client has to know even when its selector no longer matches.
		c.enqueueOwner(e.Old, v1alpha1.SyncChildDeleted, e)
		for _, key := range c.obstacles.Blocked(children.KeyOf(e.Old)) {
			c.pool.EnqueueBecause(key, workqueue.Live, c.childChanged(v1alpha1.SyncObstacleGone, e))
		}
	}
	if e.New == nil {
		return
	}
	switch _, controlled := e.New.ControllerUID(); {
	case controlled && e.New.Deleting() && (e.Old == nil || !e.Old.Deleting()):
		c.enqueueOwner(e.New, v1alpha1.SyncChildDeleted, e)
	case controlled:
		c.enqueueOwner(e.New, v1alpha1.SyncChildChanged, e)
	case !e.New.Deleting():
		c.config.Kind.Orphan(e.New, func(key parent.Key) {
			c.settling.Outside(key)
			c.pool.EnqueueBecause(key, workqueue.Live, c.childChanged(v1alpha1.SyncChildChanged, e))
		})
	}
}

// sameController reports whether two states of a child have the same controlling owner, or both none.
func sameController(before, after *object.Object) bool {
	a, was := before.ControllerUID()
	b, is := after.ControllerUID()
	return was == is && a == b
}

// enqueueOwner enqueues the parent that controls a child, if it is one of this controller (docs/reference/contract.md#s5.2).
func (c *Controller) enqueueOwner(child *object.Object, reason v1alpha1.SyncReason, e cache.Event) {
	if s, o, ok := c.owner(child); ok {
		c.pool.EnqueueBecause(s.key(o), workqueue.Live, c.childChanged(reason, e))
	}
}

// owner returns the parent that controls a child, if it is one of this controller.
func (c *Controller) owner(child *object.Object) (*Source, *object.Object, bool) {
	if _, controlled := child.ControllerUID(); !controlled || !c.config.Kind.Owns(child) {
		return nil, nil, false
	}
	owner := child.Controller()
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, nil, false
	}
	s, ok := c.byKind[schema.GroupKind{Group: version.Group, Kind: owner.Kind}]
	if !ok {
		return nil, nil, false
	}
	namespace := ""
	if s.Resource.Namespaced {
		namespace = child.Namespace()
	}
	o, ok := s.informer.Get(namespace, owner.Name)
	return s, o, ok && o.UID() == owner.UID && c.relevant(s, o)
}

// resyncPeriodically enqueues every parent once in each period (docs/reference/contract.md#s5.3).
func (c *Controller) resyncPeriodically(ctx context.Context) {
	ticker := time.NewTicker(c.shared.Options.ResyncPeriod(c.config.Definition.ResyncPeriodSeconds))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.enqueueAll(ctx, v1alpha1.SyncResyncPeriod, func(parent.Key, *object.Object) bool { return true })
		}
	}
}

// enqueueAll enqueues the parents that are to be synced although nothing of them changed.
func (c *Controller) enqueueAll(ctx context.Context, reason v1alpha1.SyncReason, which func(parent.Key, *object.Object) bool) {
	_ = recovery.Call(ctx, "enqueuing all parents", func() error { // It is logged, and repeated by the next resync.
		for _, s := range c.config.Sources {
			for o := range s.informer.All("") {
				if key := s.key(o); c.relevant(s, o) && which(key, o) {
					c.pool.EnqueueBecause(key, workqueue.Resync, trigger.Of(reason))
				}
			}
		}
		return nil
	})
}

// forget drops everything that is remembered about a parent that is gone, or that the controller no longer handles. What a sync that is
// under way remembers afterwards is dropped when it ends.
func (c *Controller) forget(s *Source, o *object.Object) {
	key := s.key(o)
	c.config.Kind.Forget(key)
	c.pool.Forget(key)
	c.forgetSynced(key, s.root(o), o.UID())
	c.active()
}

// forgetSynced drops what syncs of a parent remember.
func (c *Controller) forgetSynced(key parent.Key, root webhook.RootKey, uid types.UID) {
	c.expectations.Forget(key)
	c.finalizing.forget(key)
	c.obstacles.Record(key, nil)
	c.settling.Forget(key)
	c.guard.Forget(key)
	c.customizer.Forget(key)
	c.children.Forget(uid)
	c.ownWrites.Forget(uid)
	c.history.Forget(key)
	c.hooks.Forget(root)
}

func (s *Source) root(o *object.Object) webhook.RootKey {
	key := s.key(o)
	return webhook.RootKey{Group: s.Resource.Group, Kind: s.Resource.Kind, Namespace: key.Namespace, Name: key.Name}
}

// credentialsChanged retries failed parents: credentials may have been the cause.
func (c *Controller) credentialsChanged(r credentials.Reference) {
	if c.hooks.Reads(webhook.Reference(r)) {
		c.pool.RetryFailed(nil)
		select {
		case c.recheck <- struct{}{}:
		default:
		}
	}
}

// kindsChanged retries parents whose customize hook names a kind that was not served, has children tried of which the API server may make
// something else now, and has it looked whether responses of the customize hook name kinds that are served in another way.
func (c *Controller) kindsChanged() {
	c.pool.RetryFailed(func(err error) bool {
		_, unresolved := errors.AsType[*related.UnresolvedError](err)
		return unresolved
	})
	c.retryOutdated()
	select {
	case c.relatedKinds <- struct{}{}:
	default:
	}
}

// watchRelatedKinds enqueues parents whose customize hook is to be asked again, because a kind that it named is served in another way or not
// any more. It is no part of kindsChanged, since it may wait for the API server, and other controllers are to be notified meanwhile.
func (c *Controller) watchRelatedKinds(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.relatedKinds:
		}
		_ = recovery.Call(ctx, "comparing the kinds of related objects", func() error { // It is logged, and repeated by the next change.
			if outdated := sets.New(c.customizer.KindsChanged(ctx)...); len(outdated) > 0 {
				c.enqueueKindChanged(ctx, outdated.Has)
				c.active()
			}
			return nil
		})
	}
}

// enqueueKindChanged enqueues parents for which a kind changed. Those that are held back are synced, too.
func (c *Controller) enqueueKindChanged(ctx context.Context, which func(parent.Key) bool) {
	c.enqueueAll(ctx, v1alpha1.SyncKindChanged, func(key parent.Key, _ *object.Object) bool {
		changed := which(key)
		if changed {
			c.settling.Outside(key)
		}
		return changed
	})
}

// failed records a failed sync on the parent.
func (c *Controller) failed(_ context.Context, key parent.Key, err error) {
	if !c.parents.has(key) {
		return // It left meanwhile, and what was remembered of it is forgotten.
	}
	c.parents.synced(key)
	c.obstacles.Record(key, err)
	if hook.IsRejected(err) {
		c.rejected.Add(1)
	}
	if o, ok := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name); ok {
		text := "Sync error: " + message(err)
		if out := c.wayOut(key, o, err); out != "" {
			text = eventrecorder.Shorten(text, maxMessage) + out
		}
		c.recorder.Warning(childcontrol.Reference(o), nil, eventrecorder.ReasonSyncError, text)
	}
}

// recovered records that a parent is synced again.
func (c *Controller) recovered(key parent.Key) {
	c.obstacles.Record(key, nil)
	if o, ok := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name); ok {
		c.recorder.NormalAlways(childcontrol.Reference(o), eventrecorder.ReasonSyncRecovered, "Synced again after errors")
	}
}

// notAsShown has a parent synced that is not, after a write, what hooks were shown: the state before with that status. The API server may have made
// something else of the status, and what it stores it writes as the kind is defined now, with other fields pruned and defaulted than before.
func (c *Controller) notAsShown(key parent.Key, before, written *object.Object, status map[string]any) {
	if same, err := parent.HasStatus(written, status); !same || err != nil {
		c.statusChanged(key)
	}
	if parentState(before).Content != parentState(written).Content {
		c.pool.Enqueue(key, workqueue.Live)
	}
}

// statusChanged enqueues a parent with another status than what hooks were shown, as the event of an own write does.
func (c *Controller) statusChanged(key parent.Key) {
	if !c.byResource[key.Resource()].IgnoreStatus {
		c.pool.EnqueueBecause(key, workqueue.SelfTriggered, trigger.Of(v1alpha1.SyncOwnWrite))
	}
}
