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
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
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
	key := s.key(cmp.Or(e.New, e.Old))
	if e.Type == cache.Deleted || !c.relevant(s, e.New) {
		c.forget(s, key)
		return
	}
	r := c.parents.add(key)
	c.config.Selectors.Remember(key, &r.selector, e.New)
	c.noticeNoPause(e)
	if e.Old != nil && (e.Old.Generation() != e.New.Generation() || e.Old.Deleting() != e.New.Deleting() || c.stripped(e)) {
		// What failed before the change says nothing about the syncs after it.
		c.queue.Reset(key)
	}
	switch {
	case e.Initial && !s.unsettled(e.New):
		// Nothing is known to have changed: parents that do change meanwhile go first.
		c.queue.Add(key, queue.Resync, c.parentChanged(e, false))
	case s.IgnoreStatus && parent.StatusOnly(e.Old, e.New) && !c.stripped(e) && !r.own.InDoubt(e.New):
		r.own.Urgency(e.New) // It ends what is expected of an own write.
	case r.own.Quiet(e.New):
	case s.KeepsSynced && onlySynced(e) && !r.own.InDoubt(e.New):
	case s.KeepsSynced && !r.own.InDoubt(e.New) && c.restsWithoutSynced(key, e):
	default:
		urgency, own := r.own.Urgency(e.New)
		if urgency == queue.Live && !e.New.Deleting() && c.stripped(e) {
			c.strippedBy(r, e)
		}
		c.queue.Add(key, urgency, c.parentChanged(e, own))
	}
}

// childEvent handles a change of an object of a child kind.
func (c *Controller) childEvent(e cache.Event) {
	if e.Old != nil && (e.New == nil || !sameController(e.Old, e.New) || c.config.Kind.Owns(e.Old) && !c.config.Kind.Owns(e.New)) {
		// A parent that loses a child by an edit of another client has to know even when its selector no longer matches.
		c.enqueueOwner(e.Old, v1alpha1.SyncChildDeleted, e)
		for _, key := range c.parents.blockedBy(children.KeyOf(e.Old)) {
			c.queue.Add(key, queue.Live, c.childChanged(v1alpha1.SyncObstacleGone, e))
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
		c.config.Selectors.Adopting(e.New, func(key parent.Key) {
			c.parents.of(key).outside()
			c.queue.Add(key, queue.Live, c.childChanged(v1alpha1.SyncChildChanged, e))
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
		c.queue.Add(s.key(o), queue.Live, c.childChanged(reason, e))
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
					c.queue.Add(key, queue.Resync, history.Of(reason))
				}
			}
		}
		return nil
	})
}

// forget drops everything that is remembered about a parent that is gone, or that the controller no longer handles.
func (c *Controller) forget(s *Source, key parent.Key) {
	r := c.parents.remove(key)
	if r == nil {
		return
	}
	c.config.Selectors.Forget(key, &r.selector)
	c.config.Kind.Forget(key)
	c.queue.Forget(key)
	c.left(r, s.root(key))
	c.active()
}

// left drops what syncs of a parent that is gone remember elsewhere than in its record. A sync that is under way meanwhile does so when it ends.
func (c *Controller) left(r *record, root webhook.RootKey) {
	c.guard.Forget(&r.children.held)
	c.customizer.Forget(r.key, &r.related)
	c.history.Forget(r.key)
	c.hooks.Forget(root)
}

func (s *Source) root(key parent.Key) webhook.RootKey {
	return webhook.RootKey{Group: s.Resource.Group, Kind: s.Resource.Kind, Namespace: key.Namespace, Name: key.Name}
}

// credentialsChanged retries failed parents: credentials may have been the cause.
func (c *Controller) credentialsChanged(r credentials.Reference) {
	if c.hooks.Reads(webhook.Reference(r)) {
		c.queue.RetryFailed(nil)
		c.recheck.raise()
	}
}

// kindsChanged retries parents whose customize hook names a kind that was not served, has children tried of which the API server may make
// something else now, and has it looked whether responses of the customize hook name kinds that are served in another way, and whether inline
// hooks fit to the kinds.
func (c *Controller) kindsChanged() {
	c.queue.RetryFailed(func(err error) bool {
		rule, ok := errors.AsType[*related.RuleError](err)
		return ok && rule.Unresolved
	})
	c.retries.raise()
	c.relatedKinds.raise()
	if c.hooks.Inline() {
		c.recheck.raise()
	}
}

// watchRelatedKinds enqueues parents whose customize hook is to be asked again, because a kind that it named is served in another way or not
// any more, and those whose status may be stored now. It is no part of kindsChanged, since it may wait for the API server, and other controllers are to be notified meanwhile.
func (c *Controller) watchRelatedKinds(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.relatedKinds:
		}
		_ = recovery.Call(ctx, "comparing kinds", func() error { // It is logged, and repeated by the next change.
			c.enqueueRedefined()
			c.enqueueSyncedAgain(ctx)
			if outdated := sets.New(c.customizer.KindsChanged(ctx)...); len(outdated) > 0 {
				c.enqueueAll(ctx, v1alpha1.SyncKindChanged, func(key parent.Key, _ *object.Object) bool {
					if outdated.Has(key) {
						c.parents.of(key).outside() // One that is held back is synced, too.
					}
					return outdated.Has(key)
				})
				c.active()
			}
			return nil
		})
	}
}

// failed records a failed sync on the parent.
func (c *Controller) failed(ctx context.Context, key parent.Key, err error) {
	r := c.parents.of(key)
	if r == nil {
		return // It left meanwhile.
	}
	c.parents.change(r, func(r *record) { r.progress.synced, r.obstacles = true, conflicts(err) })
	if hook.IsRejected(err) {
		c.counted.rejected.Add(1)
	}
	if o, ok := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name); ok {
		const syncError = "Sync error: "
		text := syncError + message(err)
		if out := c.wayOut(key, o, err); out != "" {
			text = events.Shorten(text, maxMessage) + out
		}
		c.recorder.Warning(reference(o), nil, events.ReasonSyncError, text)
		c.report(ctx, key, v1alpha1.ParentFailing, events.Shorten(strings.TrimPrefix(text, syncError), maxCondition))
	}
}

// waits records on the parent that its syncs have to wait. Each other text is a write, so that the time of the next one is in those that are long alone.
func (c *Controller) waits(ctx context.Context, key parent.Key, err error, after time.Duration) {
	text := events.Shorten(message(err), maxCondition)
	if after >= time.Minute {
		text += "; the next sync is at " + time.Now().Add(after).UTC().Format(time.RFC3339)
	}
	c.report(ctx, key, v1alpha1.ParentWaiting, text)
}

// recovered records that a parent is synced again.
func (c *Controller) recovered(key parent.Key) {
	if r := c.parents.of(key); r != nil {
		c.parents.change(r, func(r *record) { r.obstacles = nil })
	}
	if o, ok := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name); ok {
		c.recorder.NormalAlways(reference(o), events.ReasonSyncRecovered, "Synced again after errors")
	}
}

// notAsShown has a parent synced that is not, after a write, what hooks were shown: the state before with that status. The API server may have made
// something else of the status, and what it stores it writes as the kind is defined now, with other fields pruned and defaulted than before.
func (c *Controller) notAsShown(key parent.Key, before, written *object.Object, status map[string]any) {
	if same, err := parent.HasStatus(written, status); !same || err != nil {
		c.statusChanged(key)
	}
	if parentState(before).Content != parentState(written).Content {
		c.queue.Add(key, queue.Live)
	}
}

// statusChanged enqueues a parent with another status than what hooks were shown, as the event of an own write does.
func (c *Controller) statusChanged(key parent.Key) {
	if !c.byResource[key.Resource()].IgnoreStatus {
		c.queue.Add(key, queue.SelfTriggered, history.Of(v1alpha1.SyncOwnWrite))
	}
}

// conflicts returns the objects that an error, or one that it wraps, names as not the parent's.
func conflicts(err error) (keys []children.Key) {
	for each := range causes(err) {
		if conflict, ok := each.(*apply.ConflictError); ok { //nolint:errorlint // What is wrapped has its turn.
			keys = append(keys, conflict.Key)
		}
	}
	return keys
}
