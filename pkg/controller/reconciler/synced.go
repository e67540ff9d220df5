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
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// conditionSynced is the type of the condition by which the engine reports in the status of a parent how it is doing with it. Its reasons are the
// states that the subresource parents reports.
const conditionSynced = string(v1alpha1.ParentConditionSynced)

// keepsSynced reports whether the condition Synced is kept in the parents of a source, which have a place for it as far as is known.
func (c *Controller) keepsSynced(s *Source) bool {
	return s.KeepsSynced && s.Resource.HasStatus && s.noSynced.Load() != c.definitionOf(s)
}

// definitionOf stands for how the kind of a source is defined now. It is not zero.
func (c *Controller) definitionOf(s *Source) int64 {
	return 1 + c.shared.Cluster.Discovery.Definition(s.Resource.GroupResource())
}

// ParentShown returns the parent as hooks are shown it: without the condition that the engine keeps for others.
func (s *Sync) ParentShown() *object.Object { return s.Source.shown(s.Parent) }

func (s *Source) shown(o *object.Object) *object.Object {
	if !s.KeepsSynced {
		return o
	}
	return parent.HideCondition(o, conditionSynced)
}

// stateOf returns the state of a parent of the source without its children. It does not depend on what the condition Synced says: a change of that is
// neither an input of the hook nor what another client changes back. Nor does it on since when the condition Updated has its status: one that another
// client took off has another time each time that it is put on again.
func (s *Source) stateOf(o *object.Object) loopguard.State {
	shown := s.shown(o)
	state := parentState(parent.HideTransition(shown, parent.ConditionUpdated))
	if shown != o {
		state.Written++
	}
	return state
}

// condition returns the condition Synced of the parent with a state as its reason.
func (s *Sync) condition(status metav1.ConditionStatus, state v1alpha1.ParentState, message string) parent.Condition {
	return parent.Condition{Type: conditionSynced, Status: status, Reason: string(state), Message: message, ObservedGeneration: s.Generation()}
}

// synced returns the condition of a parent of which the sync did all that was to be done. The parent is synced again when what holds it back may end.
func (s *Sync) synced() parent.Condition {
	held, wait := s.controller.heldBack(s.record)
	s.result.again = queue.Earliest(s.result.again, wait)
	switch {
	case held != "":
		return s.condition(metav1.ConditionFalse, v1alpha1.ParentHeld, held)
	case s.awaitsFinalizing() && !s.Decision.Finalized:
		return s.condition(metav1.ConditionFalse, v1alpha1.ParentWaiting, awaitsFinalized)
	}
	return s.condition(metav1.ConditionTrue, v1alpha1.ParentSynced, "the last sync ended well")
}

// heldBack says what holds back a parent whose syncs end well, and for how long if that is known; it is empty if nothing does. It says the same as long as
// that lasts: each other text is a write of the condition.
func (c *Controller) heldBack(r *record) (text string, wait time.Duration) {
	now := time.Now()
	if n := c.guard.HeldOf(&r.children.held); n > 0 {
		return loopguard.CountDeletions(n) + " held; see the condition DeletionsHeld of the controller", 0
	}
	if wait = r.settling.Waits(now); wait > 0 {
		return "it does not settle, and is held back; see its events", wait
	}
	records, _ := r.children.known()
	left, wait := records.Left(now)
	if left == nil {
		return "", 0
	}
	reason := reasonUntried
	if _, flaps := left.Breaker().Paused(now); flaps {
		reason = reasonFlapping
	}
	return fmt.Sprintf("%s is left alone for a while; the event %s says why, and what to do", strings.TrimSpace(left.Key.String()), reason), wait
}

// awaitsFinalized is the message about a parent that its finalize hook keeps.
const awaitsFinalized = `waiting for the finalize hook to return "finalized": true`

// withSynced returns a status of the parent with the condition Synced, if that is kept: the one that follows from the sync if all else is done, and
// the one that the parent has if it is not. Nil stands for the status that the parent has.
func (s *Sync) withSynced(status map[string]any, done bool) (map[string]any, error) {
	if !s.controller.keepsSynced(s.Source) {
		return status, nil
	}
	present, _, err := parent.StatusOf(s.Parent)
	if err != nil {
		return nil, err
	}
	if status == nil {
		status = present
	}
	condition, there := parent.ConditionOf(present, conditionSynced)
	switch {
	case done && condition.Reason != string(v1alpha1.ParentHeld): // Only the end of a sync shows that nothing holds it back any more.
		condition = s.synced()
	case !there:
		return parent.WithoutCondition(status, conditionSynced), nil
	}
	applied := condition.Apply(status, present, time.Now())
	if _, there := parent.ConditionOf(applied, conditionSynced); !there {
		s.Remember(func() {
			s.controller.noticeFields([]string{"status.conditions"}, func([]string) string {
				return fmt.Sprintf("The condition %s is not kept in %s: the hook returns status.conditions that are no list. Have it return a list, or %s",
					conditionSynced, s.Parent, takeOut)
			})
		})
	}
	return applied, nil
}

// takeOut is what to do about a condition that cannot be kept.
const takeOut = "take Synced out of conditions in the spec of the controller"

// writeSynced gives the parent a condition Synced if it has another one. No sync follows from that.
func (s *Sync) writeSynced(ctx context.Context, condition parent.Condition) error {
	if parent.Ended(s.Parent) || !s.controller.keepsSynced(s.Source) {
		return nil
	}
	present, _, err := parent.StatusOf(s.Parent)
	if err != nil {
		return err
	}
	status := condition.Apply(present, present, time.Now())
	if same, err := parent.HasStatus(s.Parent, status); same || err != nil {
		return err
	}
	over := s.Parent
	if err := s.WriteParent(ctx, parent.Changes{Status: status}); err != nil {
		return parent.IgnoreGone(InContext(fmt.Sprintf("can't update the condition %s of %s", conditionSynced, over), err))
	}
	s.record.settling.Stored(s.Source.stateOf(over).Written, s.Source.stateOf(s.Parent).Written)
	return nil
}

// report has the condition Synced of a parent say that its sync failed, or has to wait.
func (c *Controller) report(ctx context.Context, key parent.Key, state v1alpha1.ParentState, text string) {
	if !c.keepsSynced(c.byResource[key.Resource()]) {
		return
	}
	s := c.open(key, turn{})
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	if err := s.writeSynced(ctx, s.condition(metav1.ConditionFalse, state, text)); err != nil {
		klog.FromContext(ctx).V(2).Info("The condition of a parent that is not synced is not written", "parent", s.Key, "err", err)
	}
}

// restsWithoutSynced reports whether nothing of a parent has changed but that another client took the condition Synced off, and it is put on again later.
// Syncs that end well count how often that happens. While the parent fails, waits or is paused, nothing does, and no back-off or pause may end by it.
func (c *Controller) restsWithoutSynced(key parent.Key, e cache.Event) bool {
	if e.Old == nil || parent.HideCondition(e.New, conditionSynced) != e.New {
		return false // So it is with nearly all events.
	}
	before := parent.HideCondition(e.Old, conditionSynced)
	lost := before != e.Old && parentState(before) == parentState(e.New)
	paused := lost && c.pausedUntil(e.New) != ""
	if paused {
		c.queue.AddAfter(key, time.Minute)
	}
	return paused || lost && c.queue.Look(key).Err != nil
}

// onlySynced reports whether nothing of a parent has changed but the condition Synced. Two controllers of one parent may both keep it, and must not
// cause each other's syncs by that. One that another client took off is put on again.
func onlySynced(e cache.Event) bool {
	if e.Old == nil || bytes.Equal(rawStatus(e.Old), rawStatus(e.New)) {
		return false
	}
	before, now := parent.HideCondition(e.Old, conditionSynced), parent.HideCondition(e.New, conditionSynced)
	return now != e.New && parentState(before) == parentState(now)
}

// withoutRefused takes off a status what the API server refused of the condition Synced, and reports whether there was anything: kinds of Kubernetes'
// own may have conditions without observedGeneration, and any kind may have conditions that are something else.
func (s *Sync) withoutRefused(changes *parent.Changes, unknown []string, err error) bool {
	condition, ours := parent.ConditionOf(changes.Status, conditionSynced)
	if !ours || !s.Source.KeepsSynced || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "conditions") {
		return false
	}
	others := slices.ContainsFunc(unknown, func(path string) bool {
		return !strings.HasPrefix(path, "status.conditions[") || !strings.HasSuffix(path, "].observedGeneration")
	})
	if len(unknown) > 0 && !others && condition.ObservedGeneration != 0 {
		condition.ObservedGeneration = 0
		changes.Status = condition.Apply(changes.Status, changes.Status, time.Now())
	} else {
		changes.Status = parent.WithoutCondition(changes.Status, conditionSynced)
	}
	return true
}

// noteNoSynced notes that parents of a source cannot have the condition Synced as their kind is defined now, and reports it.
func (c *Controller) noteNoSynced(source *Source) {
	source.noSynced.Store(c.definitionOf(source))
	c.noticeFields([]string{"status.conditions"}, func([]string) string {
		return syncedNotKept("the API server does not store it", "Declare status.conditions, a list of objects with type, status, reason, message, "+
			"observedGeneration and lastTransitionTime,", source.Resource.GroupResource(), c.origin(source))
	})
}

// noticeNoStatus reports sources whose parents have no status subresource, where the condition Synced would be.
func (c *Controller) noticeNoStatus() {
	for _, s := range c.config.Sources {
		if s.KeepsSynced && !s.Resource.HasStatus {
			c.shared.Recorder.Warning(c.config.Definition.Reference(), events.ReasonStatusIgnored, syncedNotKept("they have no status subresource",
				"Add subresources: {status: {}} to the version", s.Resource.GroupResource(), c.origin(s)))
		}
	}
}

// enqueueSyncedAgain enqueues parents that could not have the condition Synced, where the kind is defined in another way now.
func (c *Controller) enqueueSyncedAgain(ctx context.Context) {
	for _, s := range c.config.Sources {
		if was := s.noSynced.Load(); was != 0 && was != c.definitionOf(s) {
			s.noSynced.Store(0)
			c.enqueueAll(ctx, v1alpha1.SyncKindChanged, func(key parent.Key, _ *object.Object) bool { return c.byResource[key.Resource()] == s })
		}
	}
}

// syncedNotKept says why the condition Synced is not kept, and what to change in the definition of the kind, if there is one of one's own.
func syncedNotKept(cause, change string, resource schema.GroupResource, origin discovery.Origin) string {
	advice := "T" + takeOut[1:]
	if origin == discovery.Custom || origin == discovery.Unknown {
		advice = change + " in their CustomResourceDefinition, or " + takeOut
	}
	return fmt.Sprintf("The condition %s is not kept in %s: %s. %s", conditionSynced, resource, cause, advice)
}
