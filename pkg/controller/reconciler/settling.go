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
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// seed makes the hashes of this process comparable.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // It does not change, and hashes of all syncs must be comparable.

// unsettled has the last message about a parent that does not settle, for each cause.
type unsettled struct{ differs, changedBack atomic.Pointer[string] }

// settle takes note of what a sync wrote, which failed if there is an error. It returns for how long the parent is held back, zero for not at
// all.
func (c *Controller) settle(ctx context.Context, s *Sync, err error) time.Duration {
	places, wrote := s.places()
	if s.Parent == nil || !wrote {
		switch {
		case err != nil:
			s.record.settling.Failed()
		case !s.result.plan.Waits() || !s.record.settling.Replaces(time.Now()):
			s.record.settling.Rested(time.Now())
		}
		return 0
	}
	before, after := s.Source.stateOf(s.opened), s.Source.stateOf(s.Parent)
	there := 0
	for _, o := range s.Observed {
		count(&before, o)
		if !o.Deleting() {
			there++
		}
	}
	after.Children, after.Deleting, after.Leaving = s.left(before.Children), before.Deleting, before.Leaving
	cause, pause := s.record.settling.Wrote(loopguard.Sync{
		Before: before, After: after, Places: places, Children: there, Related: s.related(), WroteParent: s.writesParent(),
		Overwrote: s.result.overwrote, Deleted: s.deletes(), Recreates: s.recreates(), Recreated: s.recreated(), Rolling: s.moved, Ends: s.ends(),
		Again: s.Decision.ResyncAfter,
	}, time.Now())
	c.settling.Sweep(time.Now(), c.parents.settling)
	if cause == loopguard.None {
		return pause
	}
	text, reason, last := s.differs(cause), events.ReasonResponseDiffers, &c.unsettled.differs
	if cause == loopguard.ChangedBack {
		text, reason, last = c.changedBack(s), events.ReasonParentFlapping, &c.unsettled.changedBack
	}
	c.recorder.Warning(reference(s.Parent), nil, reason, text)
	last.Store(new(s.Parent.String() + ": " + text))
	klog.FromContext(ctx).Error(nil, "Parent does not settle and is held back", "parent", s.Parent, "for", pause, "reason", text)
	return pause
}

// holdsBack reports whether a parent that does not settle is held back still. It is queued again when that ends.
func (c *Controller) holdsBack(key parent.Key) bool {
	r := c.parents.of(key)
	if r == nil {
		return false
	}
	wait := r.settling.Held(time.Now(), func() (loopguard.State, bool) { return c.stateOf(key) })
	if wait <= 0 {
		return false
	}
	c.queue.AddAfter(key, wait)
	return true
}

// relatedChanged enqueues a parent to which an object is related that changed. A child of the parent may be related to it as well, or the parent
// itself: they are no input from outside.
func (c *Controller) relatedChanged(key parent.Key, e cache.Event, why history.Trigger) {
	o, r := cmp.Or(e.New, e.Old), c.parents.of(key)
	p, found := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name)
	if r != nil && (!found || o.UID() != p.UID() && (!o.ControlledBy(p.UID()) || !c.config.Kind.Owns(o))) {
		r.settling.Related(history.Shown(e.Old, e.New))
	}
	c.queue.Add(key, queue.Live, why)
}

// strippedBy takes note that another client has taken the finalizer off a parent.
func (c *Controller) strippedBy(r *record, e cache.Event) {
	if !r.settling.Stripped(time.Now()) {
		return
	}
	who := "Another client takes"
	if names := c.others(r.key); len(names) > 0 {
		who = strings.Join(names, " or ") + ", which handles this object as well, or another client takes"
	}
	text := fmt.Sprintf("metadata.finalizers keeps changing back after every write. %s %q off, so that it is put on again after 5 seconds only, and the hook "+
		"is not asked if the object is deleted meanwhile. Have that client keep finalizers of others: it should patch, or update what it has read",
		who, c.finalizer.Name)
	c.recorder.Warning(reference(e.New), nil, events.ReasonParentFlapping, text)
	c.unsettled.changedBack.Store(new(e.New.String() + ": " + text))
}

// stateOf returns what a sync of a parent would see now.
func (c *Controller) stateOf(key parent.Key) (loopguard.State, bool) {
	s := c.byResource[key.Resource()]
	p, ok := s.informer.Get(key.Namespace, key.Name)
	if !ok {
		return loopguard.State{}, false
	}
	state := s.stateOf(p)
	for o := range c.childrenOf(p) {
		count(&state, o)
	}
	return state, true
}

// parentState returns the state of a parent without its children.
func parentState(o *object.Object) loopguard.State {
	var written, content, marks maphash.Hash
	for _, h := range []*maphash.Hash{&written, &content, &marks} {
		h.SetSeed(seed)
	}
	add := func(h *maphash.Hash, name string, value []byte) {
		_, _ = h.WriteString(name)
		_ = h.WriteByte(0)
		_, _ = h.Write(value)
	}
	for name, value := range o.Members() {
		switch name {
		case "metadata":
		case "status":
			add(&written, name, value)
		default:
			add(&content, name, value)
		}
	}
	for _, h := range []*maphash.Hash{&written, &marks} {
		add(h, "labels", o.RawLabels())
		add(h, "annotations", o.RawAnnotations())
	}
	for _, name := range o.Finalizers() {
		add(&content, name, nil)
	}
	for _, owner := range o.OwnerReferences() {
		add(&content, "owner", fmt.Appendf(nil, "%+v", owner))
	}
	if o.Deleting() {
		add(&content, o.DeletionTime().String(), nil)
	}
	return loopguard.State{Written: written.Sum64(), Marks: marks.Sum64(), Content: content.Sum64()}
}

// count adds a child to a state.
func count(state *loopguard.State, o *object.Object) {
	if !o.Deleting() {
		state.Children += history.Version(o)
		return
	}
	state.Deleting += history.Version(o)
	state.Leaving += history.Deleted(o)
}

// left stands for the children as the sync left them, of which total stands for those that it saw.
func (s *Sync) left(total uint64) uint64 {
	for i := range s.result.outcomes {
		o := &s.result.outcomes[i]
		if o.Observed != nil && !o.Observed.Deleting() && (o.Written != nil || o.Done) {
			total -= history.Version(o.Observed)
		}
		if o.Written != nil {
			total += history.Version(o.Written)
		}
	}
	return total
}

// deletes reports whether the sync deleted children, or may have.
func (s *Sync) deletes() bool {
	return slices.ContainsFunc(s.result.outcomes, func(o plan.Outcome) bool { return o.Deletes() && (o.Done || o.Unknown) })
}

// recreates reports whether children are gone that the next sync creates again.
func (s *Sync) recreates() bool {
	return slices.ContainsFunc(s.result.outcomes, func(o plan.Outcome) bool { return o.Action == plan.Recreate && o.Gone != nil })
}

// recreated reports whether the sync did nothing but create children that former ones deleted, as far as their update strategies say.
func (s *Sync) recreated() bool {
	return !s.writesParent() && !slices.ContainsFunc(s.result.outcomes, func(o plan.Outcome) bool { return o.Done && !s.replaces(&o) })
}

// replaces reports whether an outcome is the creation of a child of a kind that is recreated.
func (s *Sync) replaces(o *plan.Outcome) bool {
	rule, _ := s.controller.rules.For(o.Key.GroupKind())
	return o.Action == plan.Create && plan.Recreates(rule.Method)
}

// related returns how many related objects there are.
func (s *Sync) related() (n int) {
	for _, group := range s.Related {
		n += len(group.Objects)
	}
	return n
}

// places stands for what the sync wrote: children, and the parent. It reports whether there was anything.
func (s *Sync) places() (places uint64, wrote bool) {
	for i := range s.result.outcomes {
		if o := &s.result.outcomes[i]; o.Done {
			places += maphash.String(seed, o.Key.String())
			wrote = true
		}
	}
	if s.writesParent() {
		places++
		wrote = true
	}
	return places, wrote
}

// writesParent reports whether the sync wrote the parent, in a way that has the next sync write it as well.
func (s *Sync) writesParent() bool { return s.wroteParent || s.finalizedEarly() }

// ends reports whether no sync follows from what the sync wrote, because it is nothing but a status of which changes are ignored, or not read.
func (s *Sync) ends() bool {
	return (s.Source.IgnoreStatus || !s.hooks.ReadStatus()) && !s.wroteChildren() && !s.finalizedEarly() && parent.StatusOnly(s.opened, s.Parent) && !s.relatesToItself()
}

// relatesToItself reports whether the parent is among its related objects: then each change of it has it synced.
func (s *Sync) relatesToItself() bool {
	return slices.ContainsFunc(s.Related, func(g wire.Group) bool {
		return slices.ContainsFunc(g.Objects, func(o wire.Object) bool {
			shown, ok := o.(*object.Object)
			return ok && shown.UID() == s.Parent.UID()
		})
	})
}

// differs says which place of the responses differs each time.
func (s *Sync) differs(cause loopguard.Cause) string {
	tail := "although the hook is shown nothing new but what it returned. Calls for this object are slowed down until something else changes. "
	if cause == loopguard.Restless {
		tail = "although this object is as it was: nothing but its children has changed, or related objects that this server writes. Calls for it are slowed " +
			"down until it changes, too. "
	}
	if s.finalizedEarly() {
		return "\"finalized\": true is in each response of the hook, so that the finalizer is taken off, though this object is neither deleted nor " +
			"deselected, and put on again by the next sync. Calls for this object are slowed down until something else changes. Return it only " +
			"to requests with \"finalizing\": true"
	}
	var created, deleted *plan.Outcome
	for i := range s.result.outcomes {
		switch o := &s.result.outcomes[i]; {
		case !o.Done:
		case o.Action == plan.Create:
			created = o
		case o.Action == plan.Delete:
			deleted = o
		case len(o.Changed) > 0:
			at := o.Changed[0]
			d, ok := loopguard.First(at.Path, at.Observed, at.Desired)
			if !ok {
				d = loopguard.Difference{Path: at.Path, Before: at.Observed, After: at.Desired}
			}
			return fmt.Sprintf("%s of %s differs in each response of the hook (%s), %s%s", d.Path, o.Key, d.Kinds(), tail, d.Advice())
		}
	}
	switch {
	case created != nil && deleted != nil:
		return fmt.Sprintf("metadata.name of %s differs in each response of the hook (lately it was %s), %sGive children names that stay the same",
			created.Key, deleted.Name, tail)
	case created != nil && s.replaces(created):
		return fmt.Sprintf("%s is created again and again, since it differs in each response of the hook or is in one and not in the next, %sReturn all "+
			"children each time, with values that stay the same", created.Key, tail)
	case created != nil || deleted != nil:
		return fmt.Sprintf("%s is in one response of the hook and not in the next, %sReturn all children each time, also those that exist",
			cmp.Or(created, deleted).Key, tail)
	}
	d := difference(s.opened, s.Parent)
	return fmt.Sprintf("%s differs in each response of the hook (%s), %s%s", d.Path, d.Kinds(), tail, d.Advice())
}

// changedBack says what of the parent another client changes back, and which one.
func (c *Controller) changedBack(s *Sync) string {
	d := difference(s.opened, s.Parent)
	who := "Another client writes it"
	if names := c.others(s.Key); len(names) > 0 {
		who = strings.Join(names, " and ") + " handles this object as well"
	} else if manager, owner := s.managers.of(d.Path), s.opened.Controller(); manager == client.FieldManager && owner != nil {
		who = fmt.Sprintf("The controller of %s %s, whose child it is, writes it", owner.Kind, owner.Name)
	} else if manager != "" {
		who = fmt.Sprintf("The field manager %q writes it", manager)
	}
	return fmt.Sprintf("%s keeps changing back after every write (%s). %s. Writes of this object are slowed down until something else changes. "+
		"Let only one of the two write it: exclude the object by a labelSelector, or leave the field out", d.Path, d.Kinds(), who)
}

// whoElse names who besides this controller writes a place of the parent, as far as that is known.
func (c *Controller) whoElse(s *Sync, place string) []string {
	names, manager, owner := c.others(s.Key), s.managers.of(place), s.opened.Controller()
	switch {
	case manager == "":
	case manager == client.FieldManager && owner != nil:
		names = append(names, fmt.Sprintf("the controller of %s %s", owner.Kind, owner.Name))
	default:
		names = append(names, manager)
	}
	return names
}

// others returns the names of the other controllers of this process that handle an object.
func (c *Controller) others(key parent.Key) []string {
	d := c.config.Definition
	return c.shared.Handlers.Of(key, d.Kind+" "+d.Meta.Name)
}

// difference returns the first place at which what syncs write differs between two states of a parent.
func difference(before, after *object.Object) loopguard.Difference {
	for _, path := range [][]string{{"status"}, {"metadata", "labels"}, {"metadata", "annotations"}} {
		if d, differs := loopguard.First(strings.Join(path, "."), before.Value(path...), after.Value(path...)); differs {
			return d
		}
	}
	return loopguard.Difference{Path: "metadata"}
}

// outdated has no sync of a parent begin before its informer shows more than now, if the error of a write says that there is a later
// version, or none any more: events of children would have it synced again and again on the former one, with children for an owner that
// may be gone.
func (c *Controller) outdated(key parent.Key, source *Source, o *object.Object, err error) {
	if apierrors.IsNotFound(err) {
		c.expectations.Deleted(key, source.informer, o)
		return
	}
	if !apierrors.IsConflict(err) {
		return
	}
	if latest, ok := source.informer.Get(key.Namespace, key.Name); !ok || latest.ResourceVersion() != o.ResourceVersion() {
		return
	}
	version, err := strconv.ParseUint(source.informer.LastSyncedVersion(), 10, 64)
	// What is shown may be an own write whose event is still to come: it is that of somebody else's write that is waited for.
	shown, errShown := strconv.ParseUint(o.ResourceVersion(), 10, 64)
	if err == nil && errShown == nil {
		c.expectations.WroteVersion(key, source.informer, strconv.FormatUint(max(version, shown)+1, 10))
	}
}

// insistAfter is after how many conflicts in a row a parent is written although it has changed since the hook was shown it: another client changes
// it faster than the hook responds, and it would never have a status, or never go. After so many syncs in a row that found children not as observed,
// these are deleted, applied and merged whatever changes in them meanwhile.
const insistAfter = 3

// insist makes a write over the parent as the sync knows it, and if need be over the parent as it is, when that differs in nothing that the changes
// are about. Later writes of the sync are conflicts if it differs in what they are about.
func (s *Sync) insist(
	ctx context.Context, changes parent.Changes, write func(over *object.Object) (*object.Object, error),
) (*object.Object, error) {
	c := s.controller
	if s.insistent != nil && !s.agrees(s.insistent, s.stored, changes) {
		return nil, s.outpaced()
	}
	written, err := write(s.stored)
	if !apierrors.IsConflict(err) || c.queue.Conflicts(s.Key) < insistAfter {
		return written, err
	}
	shown := cmp.Or(s.insistent, s.stored)
	latest, errLatest := c.shared.Cluster.Client.Get(ctx, s.Target)
	if errLatest != nil || !s.agrees(shown, latest, changes) {
		return written, err
	}
	if written, err = write(latest); err == nil {
		s.insistent = shown
	}
	return written, err
}

// outpaced is the conflict of a write that would be over a change which the hook has not been shown.
func (s *Sync) outpaced() error {
	return apierrors.NewConflict(s.Source.Resource.GroupResource(), s.Key.Name, errors.New("it has changed since the hook was shown it"))
}

// Generation returns the generation of the parent that the hook was shown.
func (s *Sync) Generation() int64 { return cmp.Or(s.insistent, s.Parent).Generation() }

// agrees reports whether the parent has changed since the hook was shown it in nothing that the changes are about.
func (s *Sync) agrees(shown, latest *object.Object, changes parent.Changes) bool {
	same := func(names map[string]*string, of func(*object.Object, string) (string, bool)) bool {
		for name := range names {
			before, had := of(shown, name)
			if now, has := of(latest, name); now != before || has != had {
				return false
			}
		}
		return true
	}
	before, _, errBefore := parent.StatusOf(shown)
	now, _, errNow := parent.StatusOf(latest)
	return latest.UID() == shown.UID() && latest.Deleting() == shown.Deleting() && s.Source.Selected(latest) == s.Source.Selected(shown) &&
		errBefore == nil && errNow == nil && (changes.Status == nil || reflect.DeepEqual(before, now)) &&
		same(changes.Labels, (*object.Object).Label) && same(changes.Annotations, (*object.Object).Annotation)
}
