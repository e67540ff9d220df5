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

package childcontrol

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

// Reference returns a reference to a parent, for events.
func Reference(parent *object.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: parent.APIVersion(), Kind: parent.Kind(), Namespace: parent.Namespace(), Name: parent.Name(),
		UID: parent.UID(), ResourceVersion: parent.ResourceVersion(),
	}
}

// recordEvents records one event for each kind of thing that was done, and logs each child.
func (c *Control) recordEvents(
	ctx context.Context, key parent.Key, m *Memory, parent *object.Object, p plan.Plan, outcomes []plan.Outcome,
) {
	logger := klog.FromContext(ctx)
	for _, r := range reasons {
		var done []string
		var related *corev1.ObjectReference
		for i := range outcomes {
			o := &outcomes[i]
			if o.Action != r.action || !o.Done {
				continue
			}
			logger.V(2).Info("Wrote child", "parent", parent, "child", o.Key, "action", o.Action, "changed", first(o.Changed))
			done = append(done, describe(&o.Step))
			if related = childReference(o); len(done) > 1 {
				related = nil // There are several.
			}
		}
		if len(done) > 0 {
			c.config.Recorder.Normal(Reference(parent), related, r.reason, r.verb+" "+children.Enumerate(done))
		}
	}
	var contested []*plan.Step
	for i := range p.Steps {
		switch step := &p.Steps[i]; {
		case step.Report && step.HoldsDeletion():
			contested = append(contested, step)
		case step.Report:
			c.report(ctx, key, parent, step)
		}
		if len(p.Steps[i].Refused) > 0 {
			c.reportRefused(ctx, parent, &p.Steps[i])
		}
	}
	c.reportContested(ctx, key, parent, contested)
	c.reportLeft(m, parent, p)
	c.reportLarge(m, parent, outcomes)
	for i := range outcomes {
		c.reportWarnings(m, parent, p, &outcomes[i])
	}
}

// reportRefused says which values of a child are left as they are.
func (c *Control) reportRefused(ctx context.Context, parent *object.Object, step *plan.Step) {
	klog.FromContext(ctx).Info("Values of a child are left, because an update of them is refused, and no creation tells whether the API server "+
		"or a change made them differ", "parent", parent, "child", step.Key, "places", step.Refused)
	c.config.Recorder.Warning(Reference(parent), Reference(step.Observed), reasonNotUpdated, fmt.Sprintf(
		"%s differs at %s, which the API server does not let an update change. It may have set that itself: a dry run of a creation would "+
			"tell, and the API server does not take one. If the hook wants another value, delete the child, or have it return a valid one",
		step.Key, strings.Join(step.Refused[:min(len(step.Refused), 3)], ", ")))
}

// report says why a child is left as it is.
func (c *Control) report(ctx context.Context, key parent.Key, parent *object.Object, step *plan.Step) {
	switch {
	case step.Reason == plan.Untried:
		klog.FromContext(ctx).Info("Child is not recreated, because it is not known whether the API server or a change made it differ, and neither an "+
			"update nor a creation, tried, tells", "parent", parent, "child", step.Key, "changed", first(step.Changed))
		c.config.Recorder.Warning(Reference(parent), Reference(step.Observed), reasonUntried, fmt.Sprintf(
			"%s differs at %s, which the API server itself may have set. A dry run would tell, but the API server takes neither an update nor "+
				"a creation, so the child is not deleted. Allow this server to update and create the kind, declare sideEffects None for its "+
				"webhooks, have the hook return a valid object, or delete the child", step.Key, first(step.Changed)))
	case step.Observed == nil:
		who := "somebody else, whom the API server's audit log names"
		if names := strings.Join(c.rivals(key), " or "); names != "" {
			who = names + ", which handles this object as well, or by somebody else"
		}
		c.flaps(ctx, parent, nil, fmt.Sprintf(
			"%s is deleted after every creation by %s; it is not created again for a while. Stop that, or leave the child out of the response", step.Key, who))
	default:
		who := cmp.Or(c.whoChanges(ctx, step), "Another client sets this field, or the API server stores another value")
		c.flaps(ctx, parent, Reference(step.Observed), fmt.Sprintf(
			"%s keeps changing back at %s after every write; it is left alone for a while. %s: return the value that is there, or leave the "+
				"field out", step.Key, first(step.Changed), who))
	}
}

// flaps says why children are left alone for a while.
func (c *Control) flaps(ctx context.Context, parent *object.Object, child *corev1.ObjectReference, text string) {
	c.config.Counters.Flapping.Add(1)
	klog.FromContext(ctx).Error(nil, "Children change back after every write and are left alone for a while", "parent", parent, "reason", text)
	c.config.Recorder.Warning(Reference(parent), child, reasonFlapping, text)
}

// reportContested says of children that no response has that they are not deleted for a while, since each deletion is followed by a creation.
func (c *Control) reportContested(ctx context.Context, key parent.Key, owner *object.Object, steps []*plan.Step) {
	if len(steps) == 0 {
		return
	}
	c.config.Counters.Flapping.Add(int64(len(steps) - 1)) // And one below.
	names := make([]string, len(steps))
	for i, step := range steps {
		names[i] = step.Key.String()
	}
	who := c.makers(ctx, key, targetOf(steps[0]))
	c.flaps(ctx, owner, Reference(steps[0].Observed), fmt.Sprintf(
		"%s, which the hook does not return, is made again by %s after every deletion; it is not deleted for a while. Have the hook return it, stop who makes it, "+
			"or take the kind out of the children: a customize hook shows objects that the controller does not manage", children.Enumerate(names), who))
}

// ReportClaims says of a child that it is not adopted or released for a while, since somebody undoes that each time.
func (c *Control) ReportClaims(ctx context.Context, key parent.Key, owner, child *object.Object, t client.Target, adopts bool) {
	done, undone := "released, since its labels do not match the selector,", "adopted"
	if adopts {
		done, undone = "adopted", "released"
	}
	c.flaps(ctx, owner, Reference(child), fmt.Sprintf(
		"%s is %s by each sync, and %s again by %s; its owner is left as it is for a while. Let only one of the two manage it: change its labels or the selector, "+
			"or take the kind out of the children of one", child, done, undone, c.makers(ctx, key, t)))
}

// childReference returns a reference to the child of an outcome that was written or deleted, nil if it is not known.
func childReference(o *plan.Outcome) *corev1.ObjectReference {
	switch {
	case o.Written != nil:
		return Reference(o.Written)
	case o.Observed != nil:
		return Reference(o.Observed)
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
func (c *Control) reportStatus(m *Memory, p *object.Object, in plan.Input) {
	var observed map[children.Key]*object.Object // Few hooks set a status.
	for i := range in.Desired {
		d := &in.Desired[i]
		status, ok := d.Content["status"].(map[string]any)
		if !ok || len(status) == 0 {
			continue
		}
		topic := "status/" + d.GroupKind().String()
		if m.knows(topic) {
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
		} else if rule, _ := c.config.Rules.For(d.GroupKind()); !rule.HasStatus && !rule.ServerSide {
			continue
		}
		m.report(topic, 0)
		c.config.Recorder.Warning(Reference(p), nil, reasonStatusIgnored, fmt.Sprintf(
			"The hook sets the status of %s, which is not written: the status of a child belongs to the child's own controller. "+
				"Leave the field status out", d.Key))
	}
}

// reportLeft records, once for each change, which children differ and are left as they are because their method is OnDelete. No trial finds out what
// the API server makes of such a child: where all that differs may be its doing, nothing is said.
func (c *Control) reportLeft(m *Memory, parent *object.Object, p plan.Plan) {
	var left []string
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.Reason != plan.OnDelete || step.RecordOnly || step.Doubtful || len(step.Changed) == 0 {
			continue
		}
		if m.report("OnDelete/"+changeOf(step), len(p.Steps)) {
			left = append(left, step.Key.String()+" ("+first(step.Changed)+")")
		}
	}
	if len(left) > 0 {
		c.config.Recorder.Warning(Reference(parent), nil, reasonNotUpdated, "Not updated: "+children.Enumerate(left)+". The update method of the kind is "+
			"OnDelete, the default, which leaves children as they are until they are deleted. To have them updated, set "+
			"updateStrategy.method to InPlace or Recreate")
	}
}

// reportLarge records, once for each parent and kind, which children are applied server-side although their rule merges them.
func (c *Control) reportLarge(m *Memory, parent *object.Object, outcomes []plan.Outcome) {
	large := map[schema.GroupKind][]string{}
	for i := range outcomes {
		if o := &outcomes[i]; o.Large && o.Written != nil {
			large[o.GroupKind()] = append(large[o.GroupKind()], o.Key.String())
		}
	}
	for kind, names := range large {
		if !m.report("large/"+kind.String(), 0) {
			continue
		}
		c.config.Recorder.Normal(Reference(parent), nil, reasonApplied, fmt.Sprintf(
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
func (c *Control) reportWarnings(m *Memory, parent *object.Object, p plan.Plan, o *plan.Outcome) {
	for _, text := range o.Warnings {
		if !m.report("warning/"+o.Key.GroupKind().String()+" "+text, len(p.Steps)) {
			continue
		}
		message := fmt.Sprintf("The API server warns about %s: %s", o.Key, text)
		if strings.Contains(text, "unknown field") || strings.Contains(text, "duplicate field") {
			message += ". It does not store such a field: correct it in the response of the hook, or leave it out"
		}
		c.config.Recorder.Warning(Reference(parent), childReference(o), reasonWarning, message)
	}
}

// Managers are the field managers of an object as it is at the API server. The zero value knows none.
type Managers struct {
	fields []byte
	// own are the managers under which the controller itself writes the object.
	own []string
}

// Managers reads who manages a parent, which a cache does not have. It knows none if that fails.
func (c *Control) Managers(ctx context.Context, t client.Target) Managers {
	return c.managers(ctx, t, client.PatchManager)
}

func (c *Control) managers(ctx context.Context, t client.Target, own ...string) Managers {
	o, err := c.config.Cluster.Client.Whole().Get(ctx, t)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read who else writes an object", "object", t, "err", err)
		return Managers{}
	}
	fields, _ := o.Field("metadata", "managedFields")
	return Managers{fields: fields, own: own}
}

// Of returns the field manager, other than the controller's own, that wrote a place last; empty if there is none or it is not known.
func (m Managers) Of(place string) string {
	names := m.names(place)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// names returns the field managers, other than the controller's own, that wrote a place, or for no place the object: the last one first.
func (m Managers) names(place string) []string {
	if len(m.fields) == 0 {
		return nil
	}
	names, err := plan.Managers(m.fields, place)
	if err != nil {
		return nil // Not reached: the API server wrote them.
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(m.own, name) })
}

// Known reports whether anything is known.
func (m Managers) Known() bool { return len(m.fields) > 0 }

// maxRead is how many children of one sync are read to find out who changed them back.
const maxRead = 4

// changersBack names who changed children back that former syncs have changed at the same places. They are read before they are written:
// then the places are ours.
func (c *Control) changersBack(ctx context.Context, key parent.Key, p plan.Plan) map[children.Key][]string {
	var by map[children.Key][]string
	read := 0
	for i := range p.Steps {
		step := &p.Steps[i]
		if read == maxRead || step.Action != plan.Update || step.RecordOnly || !c.config.Repeated(key, step) {
			continue
		}
		read++
		if names := c.changers(ctx, step); len(names) > 0 {
			by = with(by, step.Key, names)
		}
	}
	return by
}

// changers names who else writes a child at the first place at which a step changes it.
func (c *Control) changers(ctx context.Context, step *plan.Step) []string {
	names := c.config.Handlers(parent.NewKey(step.Resource.GroupResource(), step.Namespace, step.Name))
	if manager := c.changer(ctx, step); manager != "" {
		names = append(names, manager)
	}
	return names
}

// changer names the field manager that sets the first place at which a step changes a child, empty for none.
func (c *Control) changer(ctx context.Context, step *plan.Step) string {
	return c.managersOfChild(ctx, targetOf(step)).Of(first(step.Changed))
}

func targetOf(step *plan.Step) client.Target {
	return client.Target{Resource: step.Resource, Namespace: step.Namespace, Name: step.Name}
}

// managersOfChild reads who manages a child.
func (c *Control) managersOfChild(ctx context.Context, t client.Target) Managers {
	return c.managers(ctx, t, client.FieldManager, client.PatchManager, c.config.Manager)
}

// rivals names the other CompositeControllers of this process that handle a parent: what they declare as children may be the children of this one.
func (c *Control) rivals(key parent.Key) []string {
	return slices.DeleteFunc(c.config.Handlers(key), func(name string) bool { return !strings.HasPrefix(name, v1alpha1.KindComposite+" ") })
}

// makers names who makes a child of a parent again, or changes its owner.
func (c *Control) makers(ctx context.Context, key parent.Key, t client.Target) string {
	if names := c.rivals(key); len(names) > 0 {
		return strings.Join(names, " or ") + ", which handles this object as well,"
	}
	known := c.managersOfChild(ctx, t)
	manager := known.Of("metadata.ownerReferences")
	if names := known.names(""); manager == "" && len(names) > 0 {
		manager = names[len(names)-1] // It wrote the object before all others.
	}
	if manager != "" {
		return fmt.Sprintf("the field manager %q", manager)
	}
	return "somebody else, whom the API server's audit log names,"
}

// whose returns the controllers whose child an object of the parent may be, empty if none is known.
func (c *Control) whose(key parent.Key, existing *object.Object) string {
	if name, ok := existing.Annotation(children.DecoratorMark); ok {
		return v1alpha1.KindDecorator + " " + name
	}
	return strings.Join(c.config.Handlers(key), " or ")
}

// whoChanges says who changes a child back, empty if that is not known.
func (c *Control) whoChanges(ctx context.Context, step *plan.Step) string {
	if names := c.config.Handlers(parent.NewKey(step.Resource.GroupResource(), step.Namespace, step.Name)); len(names) > 0 {
		return strings.Join(names, " and ") + " handles it as well, and may set this field"
	}
	if manager := c.changer(ctx, step); manager != "" {
		return fmt.Sprintf("The field manager %q sets this field", manager)
	}
	return ""
}
