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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

var _ inspection.Controller = &Controller{}

// Parents implements inspection.Controller.
func (c *Controller) Parents() []inspection.Parent {
	var list []inspection.Parent
	for _, s := range c.config.Sources {
		for o := range s.informer.All("") {
			if c.relevant(s, o) {
				list = append(list, inspection.Parent{ParentReference: history.Reference(s.key(o)), Labels: o.LabelSet()})
			}
		}
	}
	return list
}

// Resources implements inspection.Controller.
func (c *Controller) Resources() []schema.GroupResource {
	resources := make([]schema.GroupResource, len(c.config.Sources))
	for i, s := range c.config.Sources {
		resources[i] = s.Resource.GroupResource()
	}
	return resources
}

// Children implements inspection.Controller.
func (c *Controller) Children() []inspection.Kind {
	kinds := make([]inspection.Kind, len(c.config.Children))
	for i := range c.config.Children {
		rule := &c.config.Children[i]
		kinds[i] = inspection.Kind{GroupResource: rule.Resource.GroupResource(), Namespaced: rule.Namespaced}
	}
	return kinds
}

// Resync implements inspection.Controller.
func (c *Controller) Resync(parents []v1alpha1.ParentReference) int {
	n := 0
	for _, p := range parents {
		if r := c.parents.of(keyOf(p)); r != nil {
			r.outside() // Who asks for it has changed a hook, perhaps.
			c.customizer.AskAgain(&r.related)
			c.queue.Add(r.key, queue.Live, history.Of(v1alpha1.SyncResyncRequested))
			n++
		}
	}
	return n
}

// rollbackLimit is how long the write of a rollback may take.
const rollbackLimit = 20 * time.Second

// Rollback implements inspection.Controller. The write is not one of the controller's own: its event has the parent synced. It is written
// while the controller is paused, too: a user changes the parent, and the children follow when the pause ends.
func (c *Controller) Rollback(ctx context.Context, p v1alpha1.ParentReference, o inspection.RollbackOptions) (v1alpha1.ControllerRollbackStatus, error) {
	none := v1alpha1.ControllerRollbackStatus{}
	reviser, ok := c.config.Kind.(Reviser)
	if !ok {
		return none, fmt.Errorf("%w: parents of this kind of controller have none", inspection.ErrNoRevision)
	}
	s := c.open(keyOf(p), turn{})
	switch {
	case s == nil:
		return none, errors.New("it is no parent of the controller, or not any more")
	case s.Parent.Deleting():
		return none, errors.New("it is being deleted")
	case o.ResourceVersion != "" && o.ResourceVersion != s.Parent.ResourceVersion():
		return none, fmt.Errorf("it has the resourceVersion %s, and not %s: it was changed meanwhile", s.Parent.ResourceVersion(), o.ResourceVersion)
	}
	former, err := reviser.Former(s, o.Revision)
	if err != nil {
		return none, err
	}
	patch, err := parent.Restoration(s.Parent, former.Parent, s.Source.Resource.HasStatus)
	if err != nil {
		return none, err
	}
	done := v1alpha1.ControllerRollbackStatus{Revision: former.Name, From: former.Latest, ResourceVersion: s.Parent.ResourceVersion()}
	if patch == nil {
		return done, nil
	}
	written, changes, err := c.restore(ctx, s, former.Parent, patch, o)
	if err != nil {
		return none, err
	}
	if done.Changes = changes; o.DryRun || written.ResourceVersion() == s.Parent.ResourceVersion() {
		return done, nil // Or what admits it changed it back, and nothing was stored.
	}
	done.ResourceVersion = written.ResourceVersion()
	klog.FromContext(ctx).Info("Rolled a parent back", "parent", s.Key, "revision", former.Name, "from", former.Latest, "user", o.User)
	c.recorder.NormalAlways(reference(written), events.ReasonRolledBack,
		fmt.Sprintf("%s had it rolled back from %s to %s", o.User, former.Latest, former.Name))
	return done, nil
}

// restore patches the parent of a rollback, and returns it with what changed. A write that was begun is ended though its caller has gone,
// so that it is known. No sync makes it: a right that it lacks is missing nowhere else, and is not noted.
func (c *Controller) restore(
	ctx context.Context, s *Sync, former map[string]any, patch []byte, o inspection.RollbackOptions,
) (written *object.Object, changes []v1alpha1.FieldChange, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("before it was written: %w", err)
	}
	writing, end := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer end()
	written, err = c.shared.Cluster.Client.Restore(client.Unobserved(writing), s.Target, patch, o.DryRun)
	if last, repeated := errors.AsType[*client.RepeatedError](err); repeated && o.DryRun {
		err = last.Err // No attempt can have changed anything.
	} else if repeated {
		written, err = c.whatWasRestored(writing, s, former, last)
	}
	if err == nil {
		changes, err = restored(s, written)
	}
	if err == nil || refused(err) {
		return written, changes, err
	}
	if !o.DryRun {
		klog.FromContext(ctx).Error(err, "It is not known whether a parent was rolled back", "parent", s.Key, "user", o.User)
	}
	return nil, nil, fmt.Errorf("%w: %w", inspection.ErrOutcomeUnknown, err)
}

// whatWasRestored looks at the parent after a write that was sent again, because an API server has failed, and ended with an error. It
// returns the parent if that has exactly the wanted fields: then the write that failed was done, and the one after it was refused because
// of that. It returns the refusal if the parent is as it was.
func (c *Controller) whatWasRestored(ctx context.Context, s *Sync, former map[string]any, last *client.RepeatedError) (*object.Object, error) {
	live, err := c.shared.Cluster.Client.Get(client.Unobserved(ctx), s.Target)
	if err != nil {
		return nil, errors.Join(last, fmt.Errorf("reading the parent: %w", err))
	}
	if live.UID() == s.Parent.UID() && live.ResourceVersion() == s.Parent.ResourceVersion() {
		return nil, last.Err
	}
	after, err := parent.Restored(s.Parent, live, s.Source.Resource.HasStatus)
	if err != nil {
		return nil, err
	}
	if live.UID() != s.Parent.UID() || !reflect.DeepEqual(after, former) {
		return nil, fmt.Errorf("the parent is neither as it was nor as it was to be: %w", last)
	}
	return live, nil
}

// restored returns what a rollback changed of the parent of a sync.
func restored(s *Sync, written *object.Object) ([]v1alpha1.FieldChange, error) {
	after, err := parent.Restored(s.Parent, written, s.Source.Resource.HasStatus)
	if err != nil {
		return nil, err
	}
	return changesOf(s.Parent, after)
}

// refused reports whether an error says that an API server did not do what it was asked for.
func refused(err error) bool {
	if _, repeated := errors.AsType[*client.RepeatedError](err); repeated {
		return false
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.Status().Code < http.StatusInternalServerError
}

// Syncs implements inspection.Controller.
func (c *Controller) Syncs(parents []v1alpha1.ParentReference, limit int) (syncs []v1alpha1.ControllerSync, more int, recorded bool) {
	keys := make([]parent.Key, len(parents))
	for i, p := range parents {
		keys[i] = keyOf(p)
	}
	syncs, more = c.history.Latest(keys, limit)
	return syncs, more, c.history != nil
}

// triggers reports whether it has to be known why parents are synced.
func (c *Controller) triggers() bool { return c.history != nil || c.tracer != nil }

// parentChanged returns the change of a parent as a trigger; none if nobody asks for it. Own says that the controller made it.
func (c *Controller) parentChanged(e cache.Event, own bool) history.Trigger {
	switch {
	case !c.triggers():
		return history.Trigger{}
	case e.Initial:
		return history.Of(c.takenUp)
	}
	return history.OfParent(e, own)
}

// childChanged returns the change of an object of a kind of children as a trigger; none if nobody asks for it.
func (c *Controller) childChanged(reason v1alpha1.SyncReason, e cache.Event) history.Trigger {
	if !c.triggers() {
		return history.Trigger{}
	}
	rule, _ := c.rules.For(children.KeyOf(cmp.Or(e.New, e.Old)).GroupKind())
	return history.OfObject(reason, rule.Resource.GroupResource(), e.Old, e.New)
}

// errPanicked is recorded of a sync that did not end.
var errPanicked = errors.New("the sync ended in a panic; see the log")

// recorded ends the recording of a sync with its error. It does nothing if that was done before.
func (c *Controller) recorded(s *Sync, err error) {
	if !s.recording.Records() {
		return
	}
	failed := ""
	if err != nil {
		failed = message(err)
	}
	if s.wroteParent && s.Parent != nil && len(s.managers.fields) > 0 {
		s.recording.ChangedBackBy(c.whoElse(s, difference(s.opened, s.Parent).Path)...)
	}
	s.recording.End(events.Shorten(failed, maxMessage))
}

func keyOf(p v1alpha1.ParentReference) parent.Key {
	return parent.NewKey(schema.GroupResource{Group: p.Group, Resource: p.Resource}, p.Namespace, p.Name)
}

// State implements inspection.Controller.
func (c *Controller) State(p v1alpha1.ParentReference, only v1alpha1.ParentState) (v1alpha1.ControllerParent, bool) {
	key := keyOf(p)
	s := c.open(key, turn{})
	if s == nil {
		return v1alpha1.ControllerParent{}, false
	}
	progress, look := c.parents.progress(s.record), c.queue.Look(key)
	_, finalizing := c.parents.lasts(key, time.Now())
	state := v1alpha1.ControllerParent{
		ParentReference: p, Retries: int32(min(look.Retries, 1<<30)), //nolint:gosec // It fits.
	}
	if progress.at != 0 {
		state.LastSyncTime = new(metav1.NewTime(time.Unix(0, progress.at)))
		state.LastSyncMilliseconds = progress.took.Milliseconds()
	}
	if !look.Next.IsZero() {
		state.NextSyncTime = new(metav1.NewTime(look.Next))
	}
	if look.Err != nil && !look.Waits {
		state.LastError = events.Shorten(message(look.Err), maxMessage)
	}
	state.State, state.Message = c.stateIs(s.record, progress.synced, look.Err, look.Waits)
	if state.State == "" {
		switch {
		case look.Syncing:
			state.State = v1alpha1.ParentSyncing
		case look.Err != nil:
			state.State = v1alpha1.ParentFailing
		case look.Queued || !progress.synced:
			state.State = v1alpha1.ParentPending
		case finalizing:
			state.State, state.Message = v1alpha1.ParentWaiting, awaitsFinalized
		default:
			state.State = v1alpha1.ParentSynced
		}
	}
	if only != "" && state.State != only {
		return v1alpha1.ControllerParent{}, false
	}
	state.Children = c.childCounts(s.Parent, progress)
	return state, true
}

// stateIs returns the state of a parent that something keeps from being synced, and what that is; empty if nothing does.
func (c *Controller) stateIs(r *record, synced bool, err error, waits bool) (v1alpha1.ParentState, string) {
	if c.paused.Load() {
		return v1alpha1.ParentPaused, "the controller is paused"
	}
	if o, ok := c.byResource[r.key.Resource()].informer.Get(r.key.Namespace, r.key.Name); ok {
		if until := c.pausedUntil(o); until != "" {
			return v1alpha1.ParentPaused, "paused " + until
		}
	}
	if c.shared.Access.Held() {
		return v1alpha1.ParentHeld, "the controller is held, because its service account may not read what it needs; see its condition Permitted"
	}
	select {
	case <-c.started:
	default:
		return v1alpha1.ParentWaiting, "the controller is starting: its caches are being filled"
	}
	if held, _ := c.heldBack(r); held != "" && (err == nil || waits) {
		return v1alpha1.ParentHeld, held
	}
	if err != nil && waits {
		return v1alpha1.ParentWaiting, events.Shorten(message(err), maxMessage)
	}
	if synced && c.expectations.Expects(r.key) {
		return v1alpha1.ParentWaiting, "waiting for the informers to show what the last sync wrote"
	}
	return "", ""
}

// childCounts counts the children that the informers show.
func (c *Controller) childCounts(p *object.Object, progress progress) *v1alpha1.ChildCounts {
	counts := &v1alpha1.ChildCounts{}
	var ready int32
	known := false
	for o := range c.childrenOf(p) {
		counts.Total++
		is, reported := isReady(o)
		known = known || reported
		if is && !o.Deleting() {
			ready++
		}
	}
	if known {
		counts.Ready = &ready
	}
	if progress.rolling {
		counts.Outdated = new(progress.outdated)
	}
	return counts
}

// isReady reports whether no condition Ready or Available of a child is other than True, and whether it has one. A Pod that has completed is ready.
func isReady(o *object.Object) (ready, reported bool) {
	raw, ok := o.Field("status", "conditions")
	if !ok || !bytes.Contains(raw, []byte("\"Ready\"")) && !bytes.Contains(raw, []byte("\"Available\"")) {
		return true, false
	}
	ready = true
	list, _ := o.Value("status", "conditions").([]any)
	for _, each := range list {
		condition, _ := each.(map[string]any)
		if name := condition["type"]; name == "Ready" || name == "Available" {
			reported = true
			ready = ready && (condition["status"] == "True" || condition["reason"] == "PodCompleted")
		}
	}
	return ready, reported
}
