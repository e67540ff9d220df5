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
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Writer is what a sync does beside deciding. Two implement it: acting asks hooks, writes and remembers; noting notes what that would do, and leaves
// no trace. No phase asks which of them it has.
type Writer interface { //nolint:interfacebloat // It is all that a sync does, in one place on purpose.
	// Remember calls do, which remembers or reports what the sync has found out.
	Remember(do func())
	// RemoveFinalizer takes the controller's finalizer off the parent.
	RemoveFinalizer(ctx context.Context) error
	// WriteParent makes changes of the parent in one request, if they change anything. Its event is told from those of other clients.
	WriteParent(ctx context.Context, changes parent.Changes) error
	// DeleteParent deletes the parent because the hook says so. One that is gone is no error.
	DeleteParent(ctx context.Context) error
	// Claim adopts or releases a child: it changes the owners by a merge patch, and returns the object as it is then.
	Claim(ctx context.Context, action v1alpha1.ChildAction, t client.Target, o *object.Object, patch []byte) (*object.Object, error)
	// WriteRevision has a ControllerRevision written.
	WriteRevision(operation, name string, write func() error) error

	// setFinalizers gives the parent other finalizers.
	setFinalizers(ctx context.Context, wanted []string) error
	// relate finds the objects that the customize hook names (docs/reference/contract.md#s16).
	relate(ctx context.Context) ([]wire.Group, error)
	// call calls the sync or finalize hook. The response is nil if nothing but the request is wanted.
	call(ctx context.Context, x exchange) (*hooks.Response, error)
	// reconcile makes the observed children of a plan's input the desired ones, and leave leaves all as they are.
	reconcile(ctx context.Context, in plan.Input) error
	leave()
}

// exchange is a call of the sync or finalize hook.
type exchange struct {
	called *hooks.Hook
	// revision names that in which the parent is shown; empty for the present one.
	revision string
	request  hooks.Request
	decode   decoder
}

// acting is the writer of a sync that does what it decides.
type acting struct{ s *Sync }

// Remember implements Writer.
func (acting) Remember(do func()) { do() }

func (w acting) call(ctx context.Context, x exchange) (*hooks.Response, error) {
	s, c := w.s, w.s.controller
	s.noticeLeftOut(x.called.Version)
	if x.request.Finalizing {
		c.hooks.Finalizes(s.Root)
	}
	began := time.Now()
	response, err := x.called.Call(ctx, s.Root, x.request, x.decode)
	took := time.Since(began)
	s.recording.Hook(took)
	s.called = max(s.called, took)
	c.called.Store(int64(took))
	return response, err
}

func (w acting) relate(ctx context.Context) ([]wire.Group, error) {
	s, c, asks, began := w.s, w.s.controller, w.s.asks(), time.Now()
	if s.recording.Records() && !c.customizer.Remembers(asks) {
		defer func() { s.recording.Hook(time.Since(began)) }()
	}
	found, err := c.customizer.Related(ctx, asks)
	s.called = time.Since(began)
	return found, err
}

func (w acting) setFinalizers(ctx context.Context, wanted []string) error {
	s, c := w.s, w.s.controller
	writing, end := c.untilKnown(ctx)
	defer end()
	written, err := c.finalizer.Write(writing, c.shared.Cluster.Client, s.Target, s.Parent, wanted)
	if client.IsGone(err) {
		// Only here it means that the parent is gone; a hook's Secret, for one, may be missing as well.
		s.Parent = nil
		return nil
	}
	if err != nil {
		return InContext(fmt.Sprintf("can't sync finalizer for %s", s.Parent), err)
	}
	if s.Parent.Deleting() && !c.finalizer.Enabled {
		d := c.config.Definition
		s.warn(nil, events.ReasonFinalizeSkipped, events.FinalizeSkipped(d.Kind+" "+d.Meta.Name, events.NoLongerFinalizes))
	}
	s.wrote(s.stored, written)
	return nil
}

// RemoveFinalizer implements Writer.
func (w acting) RemoveFinalizer(ctx context.Context) error {
	s, c, over := w.s, w.s.controller, w.s.stored
	// Its event is not that of another client, which takes the finalizer off.
	written, err := w.own(false, func() (*object.Object, error) {
		return s.insist(ctx, parent.Changes{}, func(o *object.Object) (*object.Object, error) {
			if over = o; !c.finalizer.On(o) {
				return nil, nil
			}
			return c.finalizer.Write(ctx, c.shared.Cluster.Client, s.Target, o, c.finalizer.Without(o))
		})
	})
	if err != nil {
		return InContext(fmt.Sprintf("can't remove finalizer for %s", s.Parent), err)
	}
	if written != nil {
		s.wrote(over, written)
	}
	c.parents.finalized(s.record)
	return nil
}

// WriteParent implements Writer. Hooks were shown the status that was left to this sync, or do not look at it, so that its event enqueues nothing.
// What was left and has become unnecessary is a change for them, of which no event comes.
func (w acting) WriteParent(ctx context.Context, changes parent.Changes) (err error) {
	s, c, over := w.s, w.s.controller, w.s.stored
	shown, unread, left := false, false, s.Parent != s.stored
	if changes.Status != nil && !changes.OfMetadata(s.stored) {
		unread = !s.hooks.ReadStatus()
		if left || s.Source.KeepsSynced {
			if shown, err = s.wasShown(changes.Status); err != nil {
				return err
			}
		}
	}
	written, err := w.own(shown || unread, func() (*object.Object, error) {
		return s.insist(ctx, changes, func(o *object.Object) (*object.Object, error) {
			over = o
			return s.send(ctx, changes, o)
		})
	})
	if err != nil {
		c.outdated(s.Key, s.Source, s.stored, err)
		return err
	}
	if changes.Status != nil {
		s.unwritten = nil
	}
	switch {
	case written != nil:
		before, lacked := s.stored, s.Source.KeepsSynced && parent.HideCondition(s.stored, conditionSynced) == s.stored
		changed := written.ResourceVersion() != before.ResourceVersion() // Not if the API server left out what differed.
		s.wrote(over, written)
		s.wroteParent = s.wroteParent || (!shown || lacked) && changed // Another client may take it off each time.
		s.recording.Dropped(c.noticeLost(s.Source, changes.Status, written))
		if shown || unread {
			c.notAsShown(s.Key, before, written, changes.Status)
		} else if left && s.Source.KeepsSynced && onlySynced(cache.Event{Old: over, New: written}) { // Its event is passed over.
			c.statusChanged(s.Key)
		}
	case s.Parent != s.stored && changes.Status != nil:
		s.Parent, s.wroteParent = s.stored, true
		c.statusChanged(s.Key)
	}
	return nil
}

// own makes a write of the parent whose event is told from those of other clients. Shown says that hooks were shown what it writes.
func (w acting) own(shown bool, write func() (*object.Object, error)) (*object.Object, error) {
	written, mistaken, err := w.s.record.own.Write(w.s.Source.informer, w.s.stored, shown, write)
	if mistaken {
		w.s.controller.queue.Add(w.s.Key, queue.Live)
	}
	return written, err
}

// DeleteParent implements Writer.
func (w acting) DeleteParent(ctx context.Context) error {
	s, c := w.s, w.s.controller
	if s.insistent != nil {
		return fmt.Errorf("deleting %s: %w", s.Parent, s.outpaced())
	}
	klog.FromContext(ctx).Info("Deleting target, as the hook asks", "target", s.Parent)
	deletion, err := c.shared.Cluster.Client.Delete(ctx, s.Target, s.Parent.UID(), s.Parent.ResourceVersion())
	if client.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s.Parent, err)
	}
	switch {
	case deletion.Left != nil:
		c.expectations.Wrote(s.Key, s.Source.informer, deletion.Left)
	case deletion.Gone:
		c.expectations.Gone(s.Key, s.Source.informer, s.Parent)
	default:
		c.expectations.Deleted(s.Key, s.Source.informer, s.Parent)
	}
	s.Event("TargetDeleted", "Deleted because the hook of "+c.config.Definition.Meta.Name+" asked for it")
	return nil
}

// Claim implements Writer.
func (w acting) Claim(
	ctx context.Context, action v1alpha1.ChildAction, t client.Target, _ *object.Object, patch []byte,
) (*object.Object, error) {
	s, c := w.s, w.s.controller
	written, err := c.shared.Applier.Patch(ctx, t, patch)
	if err == nil {
		for _, informer := range c.watched {
			if informer.Query().Resource.GroupResource() == t.Resource.GroupResource() {
				c.expectations.Wrote(s.Key, informer, written)
			}
		}
		s.claims.written = append(s.claims.written, children.KeyOf(written))
		s.recording.Claimed(action, t.Resource.Resource, written)
	}
	return written, err
}

// WriteRevision implements Writer.
func (acting) WriteRevision(_, _ string, write func() error) error { return write() }

func (w acting) leave() { w.s.LeaveChildren() }

// wrote takes the state of the parent after a write, and what was written over.
func (s *Sync) wrote(over, written *object.Object) {
	s.recording.Parent(over, written)
	s.show(written)
	s.controller.expectations.Wrote(s.Key, s.Source.informer, written)
}

// WriteStatus makes status the status of the parent as a whole; nil leaves it as hooks were shown it. It is deferrable if all else of the sync is
// done and ended well: if the sync that its writes of children cause can follow at once, which makes the status anew, it is left to that one
// (docs/reference/compatibility.md#d6).
func (s *Sync) WriteStatus(ctx context.Context, status map[string]any, deferrable bool) error {
	if status == nil && s.unwritten != nil {
		status = s.unwritten.content
	}
	status, err := s.withSynced(status, deferrable)
	if status == nil || err != nil {
		return err
	}
	if deferrable && s.mayLeaveStatus() {
		if left, err := s.leaveStatus(status); left || err != nil {
			return err
		}
	}
	return s.WriteParent(ctx, parent.Changes{Status: status})
}

// Event records a Normal event on the parent.
func (s *Sync) Event(reason, message string) {
	s.Remember(func() { s.normal(nil, reason, message) })
}

// ManagesChildren reports whether children are touched: not those of a parent that is being deleted, unless it is being
// finalized (docs/reference/contract.md#s15).
func (s *Sync) ManagesChildren() bool {
	return !s.Parent.Deleting() || s.hooks.Finalize != nil && s.controller.finalizer.ShouldFinalize(s.Parent)
}

// Gather returns the input that tells whether the desired children would change the observed ones. ReconcileChildren reads nothing
// of it again.
func (s *Sync) Gather(ctx context.Context, desired []children.Desired) (plan.Input, error) {
	var err error
	s.gathered, err = s.gather(ctx, s.Observed, desired, true)
	return s.gathered, err
}

// ReconcileChildren makes the observed children of the Decision the desired ones. noun is what they are to people.
func (s *Sync) ReconcileChildren(ctx context.Context, noun string) error {
	if s.Decision.Settled {
		s.leave()
		s.deletedChildren = true
		return nil
	}
	in := s.gathered
	var err error
	if in.Parent == "" {
		in, err = s.gather(ctx, s.Decision.Observed, s.Decision.Desired, false)
	} else {
		in.Observed, in.Desired, in.Kept, in.Comparing = s.Decision.Observed, s.Decision.Desired, s.kept(), false
		in, err = s.controller.complete(ctx, in)
	}
	if err == nil {
		err = s.reconcile(ctx, in)
	}
	if err = errors.Join(err, s.unserved()); err != nil {
		return InContext(fmt.Sprintf("can't reconcile %s for %s", noun, s.Parent), err)
	}
	return nil
}

// LeaveChildren is what a sync does in place of ReconcileChildren for a parent whose children it does not manage. No deletion is wanted, also
// none that former syncs wanted.
func (s *Sync) LeaveChildren() {
	s.Remember(func() { s.controller.guard.Admit(&s.record.children.held, nil, time.Now()) })
}

// kept returns the observed children that the Decision leaves out.
func (s *Sync) kept() []children.Key {
	if len(s.Decision.Observed) == len(s.Observed) {
		return nil
	}
	decided := children.ByKey(s.Decision.Observed)
	var kept []children.Key
	for _, o := range s.Observed {
		if key := children.KeyOf(o); decided[key] == nil {
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
	key := children.KeyOf(o)
	records, _ := s.record.children.known()
	b := records.Get(key).Breaker()
	until, leaves := b.Paused(time.Now())
	if leaves {
		s.Remember(func() {
			s.claims.again = queue.Earliest(s.claims.again, max(time.Until(until), time.Millisecond))
			if !b.Reported() {
				s.claims.reported = append(s.claims.reported, key)
				s.reportClaims(ctx, o, t, adopts)
			}
		})
	}
	return leaves
}

// observe finds the children, and counts those whose owners it changed.
func (s *Sync) observe(ctx context.Context) error {
	err := s.controller.config.Kind.Observe(ctx, s)
	if s.Parent != nil && len(s.claims.written)+len(s.claims.reported) > 0 {
		records, _ := s.record.children.known()
		s.record.children.keep(records.Claimed(s.claims.written, s.claims.reported, time.Now()))
	}
	if err == nil && s.Parent != nil {
		s.Remember(func() { s.controller.parents.leaves(s.record, len(s.Observed), time.Now()) })
	}
	return err
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
	return slices.ContainsFunc(s.result.outcomes, func(o plan.Outcome) bool { return o.Done })
}
