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
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// Wrote takes the state of the parent after a write, and what was written over.
func (s *Sync) Wrote(over, written *object.Object) {
	s.recording.Parent(over, written)
	s.show(written)
	s.controller.expectations.Wrote(s.Key, s.Source.informer, written)
}

// WriteParent makes changes of the parent in one request, if they change anything. Its event is told from those of other clients.
// Status is that of a kind without a status subresource.
func (s *Sync) WriteParent(ctx context.Context, changes parent.Changes) error {
	return s.write(ctx, s.Target, changes)
}

// WriteStatus makes status the status of the parent as a whole; nil leaves it as hooks were shown it. If it is deferrable and the sync that
// these writes of children cause can follow at once, which makes it anew, it is left to that one (docs/reference/compatibility.md#d6).
func (s *Sync) WriteStatus(ctx context.Context, status map[string]any, deferrable bool) error {
	if status == nil {
		if s.unwritten == nil {
			return nil
		}
		status = s.unwritten.content
	}
	if deferrable && s.mayLeaveStatus() {
		if left, err := s.leaveStatus(status); left || err != nil {
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

// write makes changes of the parent. Hooks were shown what was left to this sync, so that its event enqueues nothing. What was left and has
// become unnecessary is a change for them, of which no event comes.
func (s *Sync) write(ctx context.Context, t client.Target, changes parent.Changes) error {
	c := s.controller
	if s.preview != nil {
		if c.pointless(s.record, changes.Status, s.stored) {
			changes.Status = nil
		}
		return s.preview.notes.ChangeParent(s.Parent, changes)
	}
	shown := false
	if s.Parent != s.stored && changes.Status != nil && !changes.OfMetadata(s.stored) {
		var err error
		if shown, err = parent.HasStatus(s.Parent, changes.Status); err != nil {
			return err
		}
	}
	over := s.stored
	written, mistaken, err := s.record.own.Write(s.Source.informer, s.stored, shown, func() (*object.Object, error) {
		return s.insist(ctx, changes, func(o *object.Object) (*object.Object, error) {
			over = o
			return c.send(ctx, s.record, t, changes, o)
		})
	})
	if mistaken {
		c.queue.Add(s.Key, queue.Live)
	}
	if err != nil {
		c.outdated(s.Key, s.Source, s.stored, err)
		return err
	}
	if changes.Status != nil {
		s.unwritten = nil
	}
	switch {
	case written != nil:
		before := s.stored
		changed := written.ResourceVersion() != before.ResourceVersion() // Not if the API server left out what differed.
		s.Wrote(over, written)
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
	s.gathered, err = s.controller.children.Gather(ctx, &s.record.children, s.Parent, s.Observed, desired, true)
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
		in, err = c.Gather(ctx, &s.record.children, s.Parent, s.Decision.Observed, s.Decision.Desired, false)
	} else {
		in.Observed, in.Desired, in.Kept, in.Comparing = s.Decision.Observed, s.Decision.Desired, s.kept(), false
		in, err = c.Complete(ctx, in)
	}
	switch {
	case err != nil:
	case s.preview != nil:
		err = s.preview.children(ctx, s, in)
	default:
		s.result, err = c.Reconcile(ctx, s.Key, &s.record.children, s.Parent, in, s.fingerprint)
		s.deletedChildren = err == nil && deletedAll(&s.result)
		s.recording.Children(&s.result.Plan, s.result.Outcomes, s.result.Held, s.result.ChangedBackBy, s.controller.rules)
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
		s.controller.guard.Admit(&s.record.children.Held, nil, time.Now())
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
	until, reported, leaves := s.record.children.Leaves(key, time.Now())
	if !leaves || s.preview != nil {
		return leaves
	}
	s.claims.again = queue.Earliest(s.claims.again, max(time.Until(until), time.Millisecond))
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
		s.record.children.Claimed(s.claims.written, s.claims.reported, time.Now())
	}
	if err == nil && s.Parent != nil && s.preview == nil {
		s.controller.parents.leaves(s.record, len(s.Observed), time.Now())
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
