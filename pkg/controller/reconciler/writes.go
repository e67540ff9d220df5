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

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// wrote takes the state of the parent after a write, and what was written over.
func (s *Sync) wrote(over, written *object.Object) {
	s.recording.Parent(over, written)
	s.show(written)
	s.controller.expectations.Wrote(s.Key, s.Source.informer, written)
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
	return s.WriteParent(ctx, parent.Changes{Status: status})
}

// targetOf returns where changes of the parent are written.
func (s *Sync) targetOf(changes parent.Changes) client.Target {
	t := s.Target
	if changes.Status != nil && s.Source.Resource.HasStatus {
		t.Subresource = "status"
	}
	return t
}

// Event records a Normal event on the parent.
func (s *Sync) Event(reason, message string) {
	s.Remember(func() { s.normal(nil, reason, message) })
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
	key := children.KeyOf(o)
	until, reported, leaves := s.record.children.leaves(key, time.Now())
	if leaves {
		s.Remember(func() {
			s.claims.again = queue.Earliest(s.claims.again, max(time.Until(until), time.Millisecond))
			if !reported {
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
		s.record.children.claimed(s.claims.written, s.claims.reported, time.Now())
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
