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
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// observedGeneration is the field of the status of a CompositeController's parent that the engine sets.
const observedGeneration = "observedGeneration"

// BuiltIn reports whether the parent is of a kind of Kubernetes' own, whose status another controller writes.
func (s *Sync) BuiltIn() bool { return s.controller.origin(s.Source) == discovery.BuiltIn }

func (c *Controller) origin(s *Source) discovery.Origin {
	return c.shared.Cluster.Discovery.Origin(s.Resource.GroupVersion())
}

// slowCall is how long a call of a hook may take for the status to wait for the next one.
const slowCall = 250 * time.Millisecond

// unwritten is a status that a sync has left to the one that follows it at once. Hooks are shown the parent as if it had been written.
type unwritten struct {
	// content must not be modified, and encoded is its JSON.
	content map[string]any
	encoded []byte
	// on is the parent as the API server had it, with the status before.
	on *object.Object
}

// applies reports whether a state of the parent has the status of before, so that no other client has written it since.
func (u *unwritten) applies(to *object.Object) bool {
	return to.UID() == u.on.UID() && bytes.Equal(rawStatus(to), rawStatus(u.on))
}

// show takes a state of the parent as the API server has it, and has hooks shown it with the status that is left to the sync. One that another
// client has overtaken does not count any more.
func (s *Sync) show(o *object.Object) {
	s.stored, s.Parent = o, o
	if s.unwritten == nil {
		return
	}
	if s.unwritten.applies(o) {
		if over, err := o.WithStatus(s.unwritten.encoded); err == nil {
			s.Parent = over
			return
		}
	}
	s.unwritten = nil
}

// Status returns the desired status of the parent: that of the response, or else one that is left to the sync; nil for none.
func (s *Sync) Status() map[string]any {
	if s.Decision.Status == nil && s.unwritten != nil {
		return s.unwritten.content
	}
	return s.Decision.Status
}

// mayLeaveStatus reports whether the status of the sync may be left to the one that follows: not where that has to wait or may take long, nor if
// the parent is on its way out.
func (s *Sync) mayLeaveStatus() bool {
	c := s.controller
	return s.mayGoOn() && max(s.called, time.Duration(c.called.Load())) < slowCall &&
		!s.Parent.Deleting() && !s.finalizing() && !s.Decision.Finalized && !s.Decision.Delete
}

// leaveStatus leaves a status to the sync that follows, unless the parent has it already or it says that something is wrong.
func (s *Sync) leaveStatus(status map[string]any) (left bool, err error) {
	before, _, err := parent.StatusOf(s.stored)
	if err != nil || turnsFalse(before, status) {
		return false, err
	}
	if same, err := parent.HasStatus(s.stored, status); same || err != nil || s.controller.pointless(s.record, status, s.stored) {
		return false, err
	}
	shown, err := parent.HasStatus(s.Parent, status)
	if err != nil {
		return false, err
	}
	encoded, err := json.Marshal(status)
	if err != nil {
		return false, fmt.Errorf("encoding the status: %w", err)
	}
	over, err := s.stored.WithStatus(encoded)
	if err != nil {
		return false, fmt.Errorf("replacing the status of %s: %w", s.stored, err)
	}
	s.unwritten = &unwritten{content: status, encoded: encoded, on: s.stored}
	s.Parent, s.wroteParent = over, s.wroteParent || !shown
	return true, nil
}

const (
	// statusLimit is for how long a status that is left is written after the context of its sync has ended.
	statusLimit = 5 * time.Second
	// statusTries is over how many states of the parent that is tried.
	statusTries = 3
)

// writeLeft writes the status that was left to the sync, or that the sync has left to one that does not follow. It goes over the latest state of
// the parent, as long as no other client has written the status: the hook has returned it, whatever else has changed since.
func (s *Sync) writeLeft(ctx context.Context) error {
	c, left := s.controller, s.unwritten
	if left == nil || s.Parent == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusLimit)
	defer cancel()
	latest, ok := s.Source.informer.Get(s.Key.Namespace, s.Key.Name)
	if !ok || !c.relevant(s.Source, latest) {
		return nil
	}
	if order, _ := resourceversion.CompareResourceVersion(s.stored.ResourceVersion(), latest.ResourceVersion()); order > 0 && s.stored.UID() == latest.UID() {
		latest = s.stored // The informer is behind. Without an order it counts as up to date.
	}
	s.show(latest)
	counted := s.wroteParent // It was, by the sync that has left it.
	defer func() { s.wroteParent = counted }()
	for try := 1; s.unwritten != nil; try++ {
		over := s.Parent
		s.Parent = s.stored // The event of the write counts: the next call has to be shown it.
		err := s.WriteParent(ctx, parent.Changes{Status: left.content})
		if err == nil {
			s.record.settling.Stored(s.Source.stateOf(over).Written, s.Source.stateOf(s.Parent).Written)
			return nil
		}
		if !apierrors.IsConflict(err) || try == statusTries {
			return parent.IgnoreGone(err)
		}
		if latest, errGet := c.shared.Cluster.Client.Get(ctx, s.Target); errGet == nil {
			s.show(latest)
		}
	}
	return nil // Another client has written the status, whose event has the parent synced.
}

// Complete adds what the engine reports in a status: the generation that the hook was shown, unless the kind has no such field.
func (s *Sync) Complete(status map[string]any) {
	if s.Source.ReportsGeneration && !s.Source.noGeneration.Load() {
		status[observedGeneration] = s.Generation()
	}
}

// send makes changes of the parent as o shows it in one request, if they change anything and are not known to be pointless. It returns the parent as
// written, nil if it was not.
func (s *Sync) send(ctx context.Context, changes parent.Changes, o *object.Object) (*object.Object, error) {
	c, r, source, status, api, t := s.controller, s.record, s.Source, changes.Status, s.controller.shared.Cluster.Client, s.Target
	if status != nil && source.Resource.HasStatus {
		t.Subresource = "status"
	}
	if c.pointless(r, status, o) {
		changes.Status = nil
		return changes.Write(ctx, api, t, o)
	}
	changes.BuiltIn = status != nil && s.BuiltIn()
	written, err := changes.Write(ctx, api, t, o)
	if status == nil {
		return written, err
	}
	_, ours := parent.ConditionOf(status, conditionSynced)
	if ours && written != nil && source.KeepsSynced && parent.HideCondition(written, conditionSynced) == written {
		c.noteNoSynced(source) // It came back without.
	}
	switch unknown := parent.UnknownFields(err); {
	case s.withoutRefused(&changes, unknown, err):
		return s.sendWithout(ctx, changes, o, err)
	case len(unknown) > 0 && source.ReportsGeneration && slices.Equal(unknown, []string{"status." + observedGeneration}):
		source.noGeneration.Store(true)
		changes.Status = maps.Clone(status)
		delete(changes.Status, observedGeneration)
		return s.send(ctx, changes, o)
	case len(unknown) > 0:
		c.notePointless(r, c.standsFor(r.key, status, o, true))
		c.noticeFields(unknown, func(news []string) string { return statusRefused(news, o, source.Resource.GroupResource()) })
		changes.Status = nil
		return changes.Write(ctx, api, t, o)
	case written != nil && bytes.Equal(rawStatus(o), rawStatus(written)):
		c.notePointless(r, c.standsFor(r.key, status, o, false))
	}
	return written, err
}

// sendWithout sends a status without what of the condition Synced may be the cause of an error, which it returns if it is not.
func (s *Sync) sendWithout(ctx context.Context, changes parent.Changes, o *object.Object, cause error) (*object.Object, error) {
	written, err := s.send(ctx, changes, o)
	if apierrors.IsInvalid(err) {
		return nil, cause
	}
	if _, rest := parent.ConditionOf(changes.Status, conditionSynced); !rest && err == nil {
		s.controller.noteNoSynced(s.Source)
	}
	return written, err
}

// wasShown reports whether hooks were shown the parent with a status.
func (s *Sync) wasShown(status map[string]any) (bool, error) {
	shown := s.ParentShown()
	if s.Source.KeepsSynced {
		status = parent.WithoutCondition(status, conditionSynced)
		if len(status) == 0 && len(rawStatus(shown)) == 0 {
			return true, nil // It would have had none without the condition.
		}
	}
	return parent.HasStatus(shown, status)
}

// notePointless notes for which status a write has changed nothing.
func (c *Controller) notePointless(r *record, standsFor uint64) {
	definition := c.shared.Cluster.Discovery.Definition(r.key.Resource())
	c.parents.change(r, func(r *record) { r.pointless, r.definition = standsFor, definition })
}

// enqueueRedefined enqueues parents whose status is not stored as it was sent, where the kind is defined in another way now.
func (c *Controller) enqueueRedefined() {
	for _, r := range c.parents.all() {
		known := c.parents.progress(r)
		if known.pointless == 0 || known.definition == c.shared.Cluster.Discovery.Definition(r.key.Resource()) {
			continue
		}
		c.parents.change(r, func(r *record) { r.pointless = 0 })
		r.outside()
		c.queue.Add(r.key, queue.Resync, history.Of(v1alpha1.SyncKindChanged))
	}
}

// pointless reports whether it was seen that a write of a status changes nothing of the parent as it is.
func (c *Controller) pointless(r *record, status map[string]any, o *object.Object) bool {
	if status == nil {
		return false
	}
	known := c.parents.progress(r).pointless
	return known != 0 && (known == c.standsFor(r.key, status, o, false) || known == c.standsFor(r.key, status, o, true))
}

// standsFor stands for a status and the definition of the parent's kind, and for the status that the parent has, unless the kind cannot have the
// other one whatever it has.
func (c *Controller) standsFor(key parent.Key, status map[string]any, o *object.Object, whatever bool) uint64 {
	encoded, err := json.Marshal(status)
	if err != nil {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, c.shared.Cluster.Discovery.Definition(key.Resource()))
	maphash.WriteComparable(&h, whatever)
	_, _ = h.WriteString(string(o.UID()))
	_, _ = h.Write(encoded)
	if !whatever {
		_, _ = h.Write(rawStatus(o))
	}
	return max(h.Sum64(), 1)
}

func rawStatus(o *object.Object) []byte {
	raw, _ := o.Field("status")
	return raw
}

// turnsFalse reports whether a condition is False in a status and had another value in the one before: that something went wrong is not left to a
// call that may take long.
func turnsFalse(before, after map[string]any) bool {
	list, _ := after["conditions"].([]any)
	return slices.ContainsFunc(list, func(each any) bool {
		condition, _ := each.(map[string]any)
		name, _ := condition["type"].(string)
		was, ok := parent.ConditionOf(before, name)
		return ok && was.Status != metav1.ConditionFalse && condition["status"] == string(metav1.ConditionFalse)
	})
}

// The functions below say what is wrong with parents and their statuses. What to do about it depends on where the kind of the parents comes from.

// NoSelector is the error of a parent of a CompositeController that has no usable selector and no generated one (docs/reference/contract.md#s7).
func NoSelector(origin discovery.Origin) error {
	if origin == discovery.BuiltIn {
		return errors.New("objects of this kind have no .spec.selector with matchLabels or matchExpressions; set spec.generateSelector in the " +
			"CompositeController")
	}
	return errors.New(".spec.selector must have either matchLabels, matchExpressions, or both; or set spec.generateSelector in the CompositeController")
}

// statusIgnored says why the status of parents is not written.
func statusIgnored(resource schema.GroupResource, origin discovery.Origin) string {
	advice := "Have the hook return no status"
	switch origin {
	case discovery.Custom:
		advice = "Add subresources: {status: {}} to the version in their CustomResourceDefinition, or return no status"
	case discovery.Unknown:
		advice = "Add subresources: {status: {}} to their CustomResourceDefinition, if there is one, or return no status"
	case discovery.BuiltIn, discovery.Aggregated:
	}
	return fmt.Sprintf("The status that the hook returns is not written: %s have no status subresource. %s", resource, advice)
}

// statusIncomplete says which fields of a status are not stored.
func statusIncomplete(lost []string, o *object.Object, resource schema.GroupResource, origin discovery.Origin) string {
	advice, there := fmt.Sprintf("because %s have no such fields. Have the hook not return them", resource), ""
	switch origin {
	case discovery.Unknown:
		there = ", if there is one"
		fallthrough
	case discovery.Custom:
		advice = fmt.Sprintf("as it does with fields that a schema does not declare. Declare them in the CustomResourceDefinition of %s%s, or have "+
			"the hook not return them", resource, there)
	case discovery.BuiltIn, discovery.Aggregated:
	}
	return fmt.Sprintf("The API server left %s out when the status of %s was written, %s", strings.Join(lost, ", "), o, advice)
}

// statusRefused says why nothing of a status is written.
func statusRefused(unknown []string, o *object.Object, resource schema.GroupResource) string {
	return fmt.Sprintf("The status that the hook returns is not written to %s: %s have no %s, and the fields that they have are those of a controller of "+
		"Kubernetes. Have the hook return no status", o, resource, strings.Join(unknown, ", "))
}
