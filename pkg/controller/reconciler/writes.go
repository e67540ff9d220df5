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
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/deferredstatus"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Wrote takes the state of the parent after a write, which changed it at the given places.
func (s *Sync) Wrote(written *object.Object, places ...string) {
	s.recording.Parent(written, places...)
	s.stored, s.Parent = written, s.controller.shown(s.Key, written)
	s.controller.expectations.Wrote(s.Key, s.Source.informer, written)
}

// WriteParent makes changes of the parent in one request, if they change anything. Its event is told from those of other clients.
// Status is that of a kind without a status subresource.
func (s *Sync) WriteParent(ctx context.Context, changes parent.Changes) error {
	return s.write(ctx, s.Target, changes)
}

// WriteStatus makes status the status of the parent as a whole; nil leaves it as hooks were shown it. If it is deferrable and the sync
// wrote children, so that another sync follows that makes it anew, it is not written now but when that sync does not come in time
// (docs/reference/compatibility.md#d6).
func (s *Sync) WriteStatus(ctx context.Context, status map[string]any, deferrable bool) error {
	if status == nil {
		deferred, ok := s.controller.deferred.Get(s.Key)
		if !ok {
			return nil
		}
		status = deferred.Content
	}
	if deferrable && s.wroteChildren() {
		if deferred, err := s.deferStatus(status); deferred || err != nil {
			return err
		}
	}
	return s.write(ctx, s.statusTarget(), parent.Changes{Status: status})
}

func (s *Sync) statusTarget() client.Target {
	t := s.Target
	if s.Source.Resource.HasStatus {
		t.Subresource = "status"
	}
	return t
}

// write makes changes of the parent. Hooks were shown what was deferred, so that its event enqueues nothing. What was deferred and has
// become unnecessary is a change for them, of which no event comes.
func (s *Sync) write(ctx context.Context, t client.Target, changes parent.Changes) error {
	c := s.controller
	if s.preview != nil {
		if c.pointless(s.Key, changes.Status, s.stored) {
			changes.Status = nil
		}
		return s.preview.notes.ChangeParent(s.Parent, changes)
	}
	write, shown := c.ownWrites.Write, false
	if s.Parent != s.stored && changes.Status != nil && !changes.OfMetadata(s.stored) {
		var err error
		if shown, err = parent.HasStatus(s.Parent, changes.Status); err != nil {
			return err
		}
		if shown {
			write = c.ownWrites.WriteShown
		}
	}
	changes.Places = s.recording.Places()
	written, mistaken, err := write(s.Source.informer, s.stored, func() (*object.Object, error) {
		return s.insist(ctx, changes, func(o *object.Object) (*object.Object, error) {
			return c.send(ctx, s.Key, t, changes, o)
		})
	})
	if mistaken {
		c.pool.Enqueue(s.Key, workqueue.Live)
	}
	if err != nil {
		c.outdated(s.Key, s.Source, s.stored, err)
		return err
	}
	if changes.Status != nil {
		c.deferred.Drop(s.Key)
	}
	switch {
	case written != nil:
		before := s.stored
		changed := written.ResourceVersion() != before.ResourceVersion() // Not if the API server left out what differed.
		s.Wrote(written, changes.Places.List()...)
		s.wroteParent = s.wroteParent || !shown && changed
		c.noticeLost(s.Source, changes.Status, written)
		if shown {
			c.notAsShown(s.Key, before, written, changes.Status)
		}
	case s.Parent != s.stored && changes.Status != nil:
		s.Parent, s.wroteParent = s.stored, true
		c.statusChanged(s.Key)
	}
	return nil
}

// DeleteParent deletes the parent because the hook says so. One that is gone is no error.
func (s *Sync) DeleteParent(ctx context.Context) error {
	c := s.controller
	if s.preview != nil {
		s.preview.notes.Plan.Delete = true
		return nil
	}
	if s.insistent != nil {
		return fmt.Errorf("deleting %s: %w", s.Parent, s.outpaced())
	}
	klog.FromContext(ctx).Info("Deleting target, as the hook asks", "target", s.Parent)
	err := c.shared.Cluster.Client.Delete(ctx, s.Target, s.Parent.UID(), s.Parent.ResourceVersion())
	if client.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s.Parent, err)
	}
	c.expectations.Deleted(s.Key, s.Source.informer, s.Parent)
	s.Event("TargetDeleted", "Deleted because the hook of "+c.config.Definition.Meta.Name+" asked for it")
	return nil
}

// Event records a Normal event on the parent.
func (s *Sync) Event(reason, message string) {
	if s.preview != nil {
		return
	}
	s.controller.recorder.Normal(childcontrol.Reference(s.Parent), nil, reason, message)
}

// ManagesChildren reports whether children are touched: not those of a parent that is being deleted, unless it is being
// finalized (docs/reference/contract.md#s15).
func (s *Sync) ManagesChildren() bool {
	return !s.Parent.Deleting() || s.controller.finalizer.ShouldFinalize(s.Parent)
}

// Gather returns the input that tells whether the desired children would change the observed ones. ReconcileChildren reads nothing
// of it again.
func (s *Sync) Gather(ctx context.Context, desired []children.Desired) (plan.Input, error) {
	var err error
	s.gathered, err = s.controller.children.Gather(ctx, s.Parent, s.Observed, desired, true)
	return s.gathered, err
}

// ReconcileChildren makes the observed children of the Decision the desired ones. noun is what they are to people.
func (s *Sync) ReconcileChildren(ctx context.Context, noun string) error {
	if s.Decision.Settled {
		if s.preview != nil {
			s.preview.notes.LeaveAll(s.Observed)
		}
		s.LeaveChildren()
		s.deletedChildren = true
		return nil
	}
	c, in := s.controller.children, s.gathered
	var err error
	if in.Parent == "" {
		in, err = c.Gather(ctx, s.Parent, s.Decision.Observed, s.Decision.Desired, false)
	} else {
		in.Observed, in.Desired, in.Kept, in.Comparing = s.Decision.Observed, s.Decision.Desired, s.kept(), false
		in, err = c.Complete(ctx, in)
	}
	switch {
	case err != nil:
	case s.preview != nil:
		err = s.preview.children(ctx, s, in)
	default:
		err = meanwhile(func(ctx context.Context, s *Sync) (err error) {
			s.result, err = c.Reconcile(ctx, s.Key, s.Parent, in, s.fingerprint)
			s.deletedChildren = err == nil && deletedAll(&s.result)
			s.recording.Children(&s.result, s.controller.rules)
			return err
		})(ctx, s)
	}
	if err = errors.Join(err, s.unserved()); err != nil {
		return InContext(fmt.Sprintf("can't reconcile %s for %s", noun, s.Parent), err)
	}
	return nil
}

// LeaveChildren is what a sync does in place of ReconcileChildren for a parent whose children it does not manage. No deletion is wanted, also
// none that former syncs wanted.
func (s *Sync) LeaveChildren() {
	if s.preview == nil {
		s.controller.guard.Admit(s.Key, nil, time.Now())
	}
}

// kept returns the observed children that the Decision leaves out.
func (s *Sync) kept() []children.Key {
	if len(s.Decision.Observed) == len(s.Observed) {
		return nil
	}
	decided := make(map[children.Key]bool, len(s.Decision.Observed))
	for _, o := range s.Decision.Observed {
		decided[children.KeyOf(o)] = true
	}
	var kept []children.Key
	for _, o := range s.Observed {
		if key := children.KeyOf(o); !decided[key] {
			kept = append(kept, key)
		}
	}
	return kept
}

// claims is what a sync did about the owners of children.
type claims struct {
	// written are the children that it adopted or released, and reported those of which it reported that it leaves them.
	written, reported []children.Key
	// again is after which time one that is left may be adopted or released; zero for never.
	again time.Duration
}

// LeavesOwner reports whether an object is neither adopted nor released for a while, because somebody has undone that each time. The first sync
// that leaves it reports so.
func (s *Sync) LeavesOwner(ctx context.Context, t client.Target, o *object.Object, adopts bool) bool {
	c, key := s.controller, children.KeyOf(o)
	until, reported, leaves := c.children.Leaves(s.Parent.UID(), key, time.Now())
	if !leaves || s.preview != nil {
		return leaves
	}
	s.claims.again = worker.Earliest(s.claims.again, max(time.Until(until), time.Millisecond))
	if !reported {
		s.claims.reported = append(s.claims.reported, key)
		c.children.ReportClaims(ctx, s.Key, s.Parent, o, t, adopts)
	}
	return true
}

// observe finds the children, and counts those whose owners it changed.
func observe(ctx context.Context, s *Sync) error {
	err := s.controller.config.Kind.Observe(ctx, s)
	if s.Parent != nil && len(s.claims.written)+len(s.claims.reported) > 0 {
		s.controller.children.Claimed(s.Parent.UID(), s.claims.written, s.claims.reported, time.Now())
	}
	return err
}

// AdoptChild makes the parent the controller of an object, by a merge patch, and returns the object as it is then.
func (s *Sync) AdoptChild(ctx context.Context, t client.Target, o *object.Object, patch []byte) (*object.Object, error) {
	if s.preview != nil {
		return s.preview.notes.Claim(v1alpha1.ChildAdopt, o, patch)
	}
	return s.patchChild(ctx, v1alpha1.ChildAdopt, t, patch)
}

// ReleaseChild takes the parent off the owners of an object, by a merge patch.
func (s *Sync) ReleaseChild(ctx context.Context, t client.Target, o *object.Object, patch []byte) error {
	if s.preview != nil {
		_, err := s.preview.notes.Claim(v1alpha1.ChildRelease, o, patch)
		return err
	}
	_, err := s.patchChild(ctx, v1alpha1.ChildRelease, t, patch)
	return err
}

func (s *Sync) patchChild(ctx context.Context, action v1alpha1.ChildAction, t client.Target, patch []byte) (*object.Object, error) {
	written, err := s.controller.shared.Applier.Patch(ctx, t, patch)
	if err == nil {
		for _, informer := range s.controller.watched {
			if informer.Query().Resource.GroupResource() == t.Resource.GroupResource() {
				s.controller.expectations.Wrote(s.Key, informer, written)
			}
		}
		s.claims.written = append(s.claims.written, children.KeyOf(written))
		s.recording.Claimed(action, t.Resource.Resource, written)
	}
	return written, err
}

// WroteOther expects an informer to show an object that this sync wrote and that is neither the parent nor a child.
func (s *Sync) WroteOther(informer *cache.Informer, o *object.Object) {
	s.controller.expectations.Wrote(s.Key, informer, o)
}

// Deleted expects an informer to show that an object, which this sync deleted, is gone.
func (s *Sync) Deleted(informer *cache.Informer, o *object.Object) {
	s.controller.expectations.Deleted(s.Key, informer, o)
}

// wroteChildren reports whether the sync wrote children.
func (s *Sync) wroteChildren() bool {
	return slices.ContainsFunc(s.result.Outcomes, func(o plan.Outcome) bool { return o.Done })
}

// Status returns the desired status of the parent: that of the response, or else one that is deferred; nil for none.
func (s *Sync) Status() map[string]any {
	if s.Decision.Status != nil {
		return s.Decision.Status
	}
	deferred, _ := s.controller.deferred.Get(s.Key)
	return deferred.Content
}

// deferStatus defers the write of a status if that is allowed: not if something is wrong, if the parent is on its way out, or if it has
// that status already.
func (s *Sync) deferStatus(status map[string]any) (deferred bool, err error) {
	c := s.controller
	if s.Parent.Deleting() || s.finalizing() || s.Decision.Finalized || s.Decision.Delete || c.paused.Load() {
		return false, nil
	}
	before, _, err := parent.StatusOf(s.stored)
	if err != nil || deferredstatus.TurnsFalse(before, status) {
		return false, err
	}
	if same, err := parent.HasStatus(s.stored, status); same || err != nil || c.pointless(s.Key, status, s.stored) {
		return false, err
	}
	shown, err := parent.HasStatus(s.Parent, status)
	if err != nil {
		return false, err
	}
	over, err := c.deferred.Defer(s.Key, s.stored, status)
	if err != nil || over == nil {
		return false, err
	}
	s.Parent, s.wroteParent = over, s.wroteParent || !shown
	return true, nil
}

// shown returns the parent as hooks are shown it: with the status that is deferred. One that another client has overtaken is dropped. It is for
// those who have the key.
func (c *Controller) shown(key parent.Key, o *object.Object) *object.Object {
	over, overtaken := c.overlaid(key, o)
	if overtaken {
		c.deferred.Drop(key)
	}
	return over
}

// displayed is shown for those who do not have the key: it changes nothing.
func (c *Controller) displayed(key parent.Key, o *object.Object) *object.Object {
	over, _ := c.overlaid(key, o)
	return over
}

// overlaid returns the parent with the status that is deferred, and whether another client has overtaken that, so that it does not count.
func (c *Controller) overlaid(key parent.Key, o *object.Object) (over *object.Object, overtaken bool) {
	deferred, ok := c.deferred.Get(key)
	if !ok {
		return o, false
	}
	if deferred.Applies(o) {
		if over, err := deferred.Over(o); err == nil {
			return over, false
		}
	}
	return o, true
}

// meanwhile returns a phase of a sync during which the status is written that was deferred before, if its time comes. Hooks are shown
// that status in this sync. A parent that changed since the sync began stays as it was for the sync, whose writes are conflicts then: the hook has
// not been shown the change.
func meanwhile(phase func(context.Context, *Sync) error) func(context.Context, *Sync) error {
	return func(ctx context.Context, s *Sync) error {
		c := s.controller
		left, ok := c.deferred.Left(s.Key)
		if !ok || s.preview != nil {
			return phase(ctx, s)
		}
		var written, over *object.Object
		write := func() {
			err := recovery.Call(ctx, "writing a deferred status", func() (err error) {
				written, over, err = c.writeStatus(ctx, s.Key, true)
				return err
			})
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Deferred status cannot be written; the parent is synced again", "parent", s.Key, "err", err)
				c.pool.EnqueueBecause(s.Key, workqueue.Retry, trigger.Of(v1alpha1.SyncRetry)) // This sync may make none: the hook was shown it.
			}
		}
		take := func() {
			switch {
			case written == nil:
			case over.ResourceVersion() == s.stored.ResourceVersion():
				s.stored, s.Parent, s.opened = written, written, written
			default:
				c.pool.Enqueue(s.Key, workqueue.Live) // This sync may find nothing to write over what it knows.
			}
		}
		if left <= 0 {
			write()
			take()
			return phase(ctx, s)
		}
		done := make(chan struct{})
		timer := time.AfterFunc(left, func() {
			defer close(done)
			write()
		})
		defer func() {
			if !timer.Stop() {
				<-done
				take()
			}
		}()
		return phase(ctx, s)
	}
}

// writeDeferred writes the status that was deferred before a sync that failed.
func (s *Sync) writeDeferred(ctx context.Context) error {
	c := s.controller
	select {
	case <-ctx.Done():
		// The controller is paused or stopped: it is written without this sync.
		c.deferred.Hurry(s.Key)
		return nil
	default:
	}
	written, _, err := c.writeStatus(ctx, s.Key, false)
	if written != nil {
		s.stored, s.Parent = written, written
	}
	if err = parent.IgnoreGone(err); err != nil {
		return InContext(fmt.Sprintf("can't update status for %s", s.Parent), err)
	}
	return nil
}

// deferredDue writes a status whose time has come, and has its parent synced again if that fails.
func (c *Controller) deferredDue(ctx context.Context, key parent.Key) {
	err := recovery.Call(ctx, "writing a deferred status", func() error {
		_, _, err := c.writeStatus(ctx, key, false)
		return err
	})
	if err != nil {
		c.deferred.Failed(key)
		klog.FromContext(ctx).V(2).Info("Deferred status cannot be written; the parent is synced again", "parent", key, "err", err)
		c.pool.EnqueueBecause(key, workqueue.Retry, trigger.Of(v1alpha1.SyncRetry))
	}
}

// writeStatus writes the deferred status of a parent, whose key the caller has, and forgets it. It returns what it wrote, and over which state of
// the parent; nil if there is none any more: where another client wrote the status meanwhile, the parent is synced again. Shown says that hooks are
// shown that status already.
func (c *Controller) writeStatus(ctx context.Context, key parent.Key, shown bool) (written, over *object.Object, err error) {
	deferred, ok := c.deferred.Get(key)
	if !ok {
		return nil, nil, nil
	}
	source := c.byResource[key.Resource()]
	o, ok := source.informer.Get(key.Namespace, key.Name)
	if !ok || o.UID() != deferred.UID || !c.relevant(source, o) {
		c.deferred.Drop(key)
		return nil, nil, nil
	}
	if o = deferred.Latest(o); !deferred.Applies(o) {
		c.deferred.Drop(key)
		c.pool.Enqueue(key, workqueue.Live)
		return nil, nil, nil
	}
	write := c.ownWrites.WriteApart
	if shown {
		write = c.ownWrites.WriteShown
	}
	s := &Sync{Source: source, Target: source.target(o)}
	written, mistaken, err := write(source.informer, o, func() (*object.Object, error) {
		return c.send(ctx, key, s.statusTarget(), parent.Changes{Status: deferred.Content}, o)
	})
	if mistaken {
		c.pool.Enqueue(key, workqueue.Live)
	}
	if err != nil {
		if ctx.Err() != nil {
			c.deferred.Hurry(key) // The controller is paused, perhaps: it is written without the sync.
			return nil, nil, err
		}
		c.deferred.Failed(key)
		c.outdated(key, source, o, err)
		return nil, nil, err
	}
	c.deferred.Drop(key)
	if written != nil {
		c.expectations.Wrote(key, source.informer, written)
		c.history.Wrote(key, trigger.Version(written))
		c.noticeLost(source, deferred.Content, written)
		if shown, err := deferred.Over(o); err == nil {
			c.settling.Stored(key, parentState(shown).Written, parentState(written).Written)
		}
		if shown {
			c.notAsShown(key, o, written, deferred.Content)
		}
	} else if same, err := parent.HasStatus(o, deferred.Content); !same || err != nil {
		c.statusChanged(key) // Hooks were shown what the kind cannot have.
	}
	return written, o, nil
}
