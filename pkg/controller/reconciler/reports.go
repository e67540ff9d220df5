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
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Reasons of events about children, on their parent.
const (
	reasonFlapping = "ChildFlapping"
	reasonUntried  = "ChildNotRecreated"
	// reasonStatusIgnored is for a child whose status a hook tries to set.
	reasonStatusIgnored = "ChildStatusIgnored"
	// reasonNotUpdated is for children that differ and stay so, and reasonWarning for what the API server says about a child that it accepts.
	reasonNotUpdated = "ChildNotUpdated"
	reasonWarning    = "ChildWarning"
	// reasonApplied is for children that are merged by their rule, and applied because they are large.
	reasonApplied = "ChildAppliedServerSide"
)

// reasons are the reasons and verbs of events about what was done.
var reasons = []struct {
	action       plan.Action
	reason, verb string
}{
	{plan.Delete, "ChildDeleted", "Deleted"},
	{plan.Recreate, "ChildRecreated", "Deleted, to be created again:"},
	{plan.Create, "ChildCreated", "Created"},
	{plan.Update, "ChildUpdated", "Updated"},
}

// reference returns a reference to an object, for events.
func reference(o *object.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: o.APIVersion(), Kind: o.Kind(), Namespace: o.Namespace(), Name: o.Name(),
		UID: o.UID(), ResourceVersion: o.ResourceVersion(),
	}
}

// warn and normal record an event on the parent. Related is the child, nil if there are several.
func (s *Sync) warn(related *corev1.ObjectReference, reason, message string) {
	s.controller.recorder.Warning(reference(s.Parent), related, reason, message)
}

func (s *Sync) normal(related *corev1.ObjectReference, reason, message string) {
	s.controller.recorder.Normal(reference(s.Parent), related, reason, message)
}

// recordEvents records one event for each kind of thing that was done, and logs each child.
func (s *Sync) recordEvents(ctx context.Context, p plan.Plan, outcomes []plan.Outcome) {
	logger := klog.FromContext(ctx)
	for _, r := range reasons {
		var done []string
		var related *corev1.ObjectReference
		for i := range outcomes {
			o := &outcomes[i]
			if o.Action != r.action || !o.Done {
				continue
			}
			logger.V(2).Info("Wrote child", "parent", s.Parent, "child", o.Key, "action", o.Action, "changed", first(o.Changed))
			done = append(done, describe(&o.Step))
			if related = childReference(o); len(done) > 1 {
				related = nil // There are several.
			}
		}
		if len(done) > 0 {
			s.normal(related, r.reason, r.verb+" "+children.Enumerate(done))
		}
	}
	var contested []*plan.Step
	for i := range p.Steps {
		switch step := &p.Steps[i]; {
		case step.Report && step.HoldsDeletion():
			contested = append(contested, step)
		case step.Report:
			s.report(ctx, step)
		}
		if len(p.Steps[i].Refused) > 0 {
			s.reportRefused(ctx, &p.Steps[i])
		}
	}
	s.reportContested(ctx, contested)
	s.reportLeft(p)
	s.reportLarge(outcomes)
	for i := range outcomes {
		s.reportWarnings(p, &outcomes[i])
	}
}

// reportRefused says which values of a child are left as they are.
func (s *Sync) reportRefused(ctx context.Context, step *plan.Step) {
	klog.FromContext(ctx).Info("Values of a child are left, because an update of them is refused, and no creation tells whether the API server "+
		"or a change made them differ", "parent", s.Parent, "child", step.Key, "places", step.Refused)
	s.warn(reference(step.Observed), reasonNotUpdated, fmt.Sprintf(
		"%s differs at %s, which the API server does not let an update change. It may have set that itself: a dry run of a creation would "+
			"tell, and the API server does not take one. If the hook wants another value, delete the child, or have it return a valid one",
		step.Key, strings.Join(step.Refused[:min(len(step.Refused), 3)], ", ")))
}

// report says why a child is left as it is.
func (s *Sync) report(ctx context.Context, step *plan.Step) {
	switch {
	case step.Reason == plan.Untried:
		klog.FromContext(ctx).Info("Child is not recreated, because it is not known whether the API server or a change made it differ, and neither an "+
			"update nor a creation, tried, tells", "parent", s.Parent, "child", step.Key, "changed", first(step.Changed))
		s.warn(reference(step.Observed), reasonUntried, fmt.Sprintf(
			"%s differs at %s, which the API server itself may have set. A dry run would tell, but the API server takes neither an update nor "+
				"a creation, so the child is not deleted. Allow this server to update and create the kind, declare sideEffects None for its "+
				"webhooks, have the hook return a valid object, or delete the child", step.Key, first(step.Changed)))
	case step.Observed == nil:
		who := "somebody else, whom the API server's audit log names"
		if names := strings.Join(s.rivals(), " or "); names != "" {
			who = names + ", which handles this object as well, or by somebody else"
		}
		s.flaps(ctx, nil, fmt.Sprintf(
			"%s is deleted after every creation by %s; it is not created again for a while. Stop that, or leave the child out of the response", step.Key, who))
	default:
		who := cmp.Or(s.controller.whoChanges(ctx, step), "Another client sets this field, or the API server stores another value")
		s.flaps(ctx, reference(step.Observed), fmt.Sprintf(
			"%s keeps changing back at %s after every write; it is left alone for a while. %s: return the value that is there, or leave the "+
				"field out", step.Key, first(step.Changed), who))
	}
}

// flaps says why children are left alone for a while.
func (s *Sync) flaps(ctx context.Context, child *corev1.ObjectReference, text string) {
	s.controller.counted.flapping.Add(1)
	klog.FromContext(ctx).Error(nil, "Children change back after every write and are left alone for a while", "parent", s.Parent, "reason", text)
	s.warn(child, reasonFlapping, text)
}

// reportContested says of children that no response has that they are not deleted for a while, since each deletion is followed by a creation.
func (s *Sync) reportContested(ctx context.Context, steps []*plan.Step) {
	if len(steps) == 0 {
		return
	}
	s.controller.counted.flapping.Add(int64(len(steps) - 1)) // And one below.
	names := make([]string, len(steps))
	for i, step := range steps {
		names[i] = step.Key.String()
	}
	who := s.makers(ctx, targetOfStep(steps[0]))
	s.flaps(ctx, reference(steps[0].Observed), fmt.Sprintf(
		"%s, which the hook does not return, is made again by %s after every deletion; it is not deleted for a while. Have the hook return it, stop who makes it, "+
			"or take the kind out of the children: a customize hook shows objects that the controller does not manage", children.Enumerate(names), who))
}

// reportClaims says of a child that it is not adopted or released for a while, since somebody undoes that each time.
func (s *Sync) reportClaims(ctx context.Context, child *object.Object, t client.Target, adopts bool) {
	done, undone := "released, since its labels do not match the selector,", "adopted"
	if adopts {
		done, undone = "adopted", "released"
	}
	s.flaps(ctx, reference(child), fmt.Sprintf(
		"%s is %s by each sync, and %s again by %s; its owner is left as it is for a while. Let only one of the two manage it: change its labels or the selector, "+
			"or take the kind out of the children of one", child, done, undone, s.makers(ctx, t)))
}

// childReference returns a reference to the child of an outcome that was written or deleted, nil if it is not known.
func childReference(o *plan.Outcome) *corev1.ObjectReference {
	switch {
	case o.Written != nil:
		return reference(o.Written)
	case o.Observed != nil:
		return reference(o.Observed)
	}
	return nil
}

// describe names a child, and what of it changed.
func describe(s *plan.Step) string {
	if s.Action == plan.Update || s.Action == plan.Recreate {
		return s.Key.String() + " (" + first(s.Changed) + ")"
	}
	return s.Key.String()
}

// first returns the first place that changed, which is our own record only if nothing else did.
func first(changed []plan.Change) string {
	if len(changed) == 0 {
		return ""
	}
	return changed[0].Path
}

// reportStatus records, once for each parent and kind, that a hook sets a status of a child that is not written
// (docs/reference/contract.md#s12.2, #s13). A hook that returns the status that it was shown sets nothing.
func (s *Sync) reportStatus(in plan.Input) {
	var observed map[children.Key]*object.Object // Few hooks set a status.
	for i := range in.Desired {
		d := &in.Desired[i]
		status, ok := d.Content["status"].(map[string]any)
		if !ok || len(status) == 0 {
			continue
		}
		topic := "status/" + d.GroupKind().String()
		if s.record.children.knows(topic) {
			continue
		}
		if observed == nil {
			observed = children.ByKey(in.Observed)
		}
		if o, ok := observed[d.Key]; ok {
			// One that cannot be decoded is not what the hook sets.
			if same, err := parent.HasStatus(o, status); same && err == nil {
				continue
			}
		} else if rule, _ := s.controller.rules.For(d.GroupKind()); !rule.HasStatus && !rule.ServerSide {
			continue
		}
		s.record.children.report(topic, 0)
		s.warn(nil, reasonStatusIgnored, fmt.Sprintf(
			"The hook sets the status of %s, which is not written: the status of a child belongs to the child's own controller. "+
				"Leave the field status out", d.Key))
	}
}

// reportLeft records, once for each change, which children differ and are left as they are because their method is OnDelete. No trial finds out what
// the API server makes of such a child: where all that differs may be its doing, nothing is said.
func (s *Sync) reportLeft(p plan.Plan) {
	var left []string
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.Reason != plan.OnDelete || step.RecordOnly || step.Doubtful || len(step.Changed) == 0 {
			continue
		}
		if s.record.children.report("OnDelete/"+changeOf(step), len(p.Steps)) {
			left = append(left, step.Key.String()+" ("+first(step.Changed)+")")
		}
	}
	if len(left) > 0 {
		s.warn(nil, reasonNotUpdated, "Not updated: "+children.Enumerate(left)+". The update method of the kind is "+
			"OnDelete, the default, which leaves children as they are until they are deleted. To have them updated, set "+
			"updateStrategy.method to InPlace or Recreate")
	}
}

// reportLarge records, once for each parent and kind, which children are applied server-side although their rule merges them.
func (s *Sync) reportLarge(outcomes []plan.Outcome) {
	large := map[schema.GroupKind][]string{}
	for i := range outcomes {
		if o := &outcomes[i]; o.Large && o.Written != nil {
			large[o.GroupKind()] = append(large[o.GroupKind()], o.Key.String())
		}
	}
	for kind, names := range large {
		if !s.record.children.report("large/"+kind.String(), 0) {
			continue
		}
		s.normal(nil, reasonApplied, fmt.Sprintf(
			"Applied server-side, and not merged: %s. The record of what was applied would be too long for an annotation. Server-side apply keeps none. "+
				"To have all children of the kind applied so, set updateStrategy.apply to ServerSide", children.Enumerate(names)))
	}
}

// changeOf returns a text that stands for a child and how it is to be changed.
func changeOf(step *plan.Step) string {
	var text strings.Builder
	text.WriteString(step.Key.String())
	for _, change := range step.Changed {
		fmt.Fprintf(&text, " %s=%x", change.Path, plan.HashOf(change.Desired))
	}
	return text.String()
}

// reportWarnings records, once for each parent, what the API server said about a write that it did.
func (s *Sync) reportWarnings(p plan.Plan, o *plan.Outcome) {
	for _, text := range o.Warnings {
		if !s.record.children.report("warning/"+o.Key.GroupKind().String()+" "+text, len(p.Steps)) {
			continue
		}
		message := fmt.Sprintf("The API server warns about %s: %s", o.Key, text)
		if strings.Contains(text, "unknown field") || strings.Contains(text, "duplicate field") {
			message += ". It does not store such a field: correct it in the response of the hook, or leave it out"
		}
		s.warn(childReference(o), reasonWarning, message)
	}
}

// managers are the field managers of an object as it is at the API server. The zero value knows none.
type managers struct {
	fields []byte
	// own are the managers under which the controller itself writes the object.
	own []string
}

// managersOf reads who manages an object, which a cache does not have, besides the controller itself. It knows none if that fails.
func (c *Controller) managersOf(ctx context.Context, t client.Target, own ...string) managers {
	o, err := c.shared.Cluster.Client.Whole().Get(ctx, t)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read who else writes an object", "object", t, "err", err)
		return managers{}
	}
	fields, _ := o.Field("metadata", "managedFields")
	return managers{fields: fields, own: own}
}

// of returns the field manager, other than the controller's own, that wrote a place last; empty if there is none or it is not known.
func (m managers) of(place string) string {
	names := m.names(place)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// names returns the field managers, other than the controller's own, that wrote a place, or for no place the object: the last one first.
func (m managers) names(place string) []string {
	if len(m.fields) == 0 {
		return nil
	}
	names, err := plan.Managers(m.fields, place)
	if err != nil {
		return nil // Not reached: the API server wrote them.
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(m.own, name) })
}

// maxRead is how many children of one sync are read to find out who changed them back.
const maxRead = 4

// changersBack names who changed children back that former syncs have changed at the same places. They are read before they are written:
// then the places are ours.
func (s *Sync) changersBack(ctx context.Context, p plan.Plan) map[children.Key][]string {
	var by map[children.Key][]string
	read := 0
	for i := range p.Steps {
		step := &p.Steps[i]
		if read == maxRead || step.Action != plan.Update || step.RecordOnly || !s.controller.history.Repeated(s.Key, step) {
			continue
		}
		read++
		names := s.controller.handlersOf(step)
		if manager := s.controller.changer(ctx, step); manager != "" {
			names = append(names, manager)
		}
		if len(names) > 0 {
			by = with(by, step.Key, names)
		}
	}
	return by
}

// handlersOf names the other controllers of this process that handle the child of a step as their parent.
func (c *Controller) handlersOf(step *plan.Step) []string {
	return c.others(parent.NewKey(step.Resource.GroupResource(), step.Namespace, step.Name))
}

// changer names the field manager that sets the first place at which a step changes a child, empty for none.
func (c *Controller) changer(ctx context.Context, step *plan.Step) string {
	return c.managersOfChild(ctx, targetOfStep(step)).of(first(step.Changed))
}

func targetOfStep(step *plan.Step) client.Target {
	return client.Target{Resource: step.Resource, Namespace: step.Namespace, Name: step.Name}
}

func (c *Controller) managersOfChild(ctx context.Context, t client.Target) managers {
	return c.managersOf(ctx, t, client.FieldManager, client.PatchManager, c.manager)
}

// rivals names the other CompositeControllers of this process that handle the parent: what they declare as children may be the children of this one.
func (s *Sync) rivals() []string {
	return slices.DeleteFunc(s.controller.others(s.Key), func(name string) bool { return !strings.HasPrefix(name, v1alpha1.KindComposite+" ") })
}

// makers names who makes a child of the parent again, or changes its owner.
func (s *Sync) makers(ctx context.Context, t client.Target) string {
	if names := s.rivals(); len(names) > 0 {
		return strings.Join(names, " or ") + ", which handles this object as well,"
	}
	known := s.controller.managersOfChild(ctx, t)
	manager := known.of("metadata.ownerReferences")
	if names := known.names(""); manager == "" && len(names) > 0 {
		manager = names[len(names)-1] // It wrote the object before all others.
	}
	if manager != "" {
		return fmt.Sprintf("the field manager %q", manager)
	}
	return "somebody else, whom the API server's audit log names,"
}

// whose returns the controllers whose child an object of the parent may be, empty if none is known.
func (s *Sync) whose(existing *object.Object) string {
	if name, ok := existing.Annotation(children.DecoratorMark); ok {
		return v1alpha1.KindDecorator + " " + name
	}
	return strings.Join(s.controller.others(s.Key), " or ")
}

// whoChanges says who changes a child back, empty if that is not known.
func (c *Controller) whoChanges(ctx context.Context, step *plan.Step) string {
	if names := c.handlersOf(step); len(names) > 0 {
		return strings.Join(names, " and ") + " handles it as well, and may set this field"
	}
	if manager := c.changer(ctx, step); manager != "" {
		return fmt.Sprintf("The field manager %q sets this field", manager)
	}
	return ""
}
