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

package invariant

import (
	"reflect"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// checkStrangers checks that a write of an engine touches only what is its own.
func (t *Tracker) checkStrangers(c *change) {
	_, owned := c.before.controller()
	switch {
	case c.before == nil:
		if !IsChild(c.after) {
			t.violated(New(StrangersUntouched, c.at, "%s was created without an owner", c.after))
		}
		t.checkKept(c)
		return
	case c.after == nil || c.deletes():
		if c.deletes() && !t.mayDelete(c.before) {
			t.checkOwnDeletion(c)
		}
		return
	}
	if field := lost(c.before, c.after); field != "" {
		t.violated(New(StrangersUntouched, c.at, "a field of others in %s: %s", c.after, field))
	}
	for _, f := range missing(c.before.finalizers(), c.after.finalizers()) {
		if !strings.HasPrefix(f, "metacontroller.io/") {
			t.violated(New(StrangersUntouched, c.at, "the finalizer %s of others was taken off %s", f, c.after))
		}
	}
	if field := t.stolen(c); field != "" {
		t.violated(New(StrangersUntouched, c.at, "the application of %s took %s from it, which another controller set", c.after, field))
	}
	if owned {
		return
	}
	for _, field := range changed(c.before, c.after) {
		if asTarget(field) || letsGo(c, field) || field == "ownerReferences" && t.mayAdopt(c) || field == "spec" && byDefault(c) {
			continue
		}
		t.violated(New(StrangersUntouched, c.at, "%s of %s was changed by %s, from %v to %v, and no controller owns it",
			field, c.after, c.Verb, c.before.at("metadata"), c.after.at("metadata")))
	}
}

// letsGo reports whether a field says whose an object is that its keeper has let stay without its parent, and is taken off.
func letsGo(c *change, field string) bool {
	return c.before.kept() && !c.after.kept() && (field == "ownerReferences" || field == "annotations."+mark || field == "labels.controller-uid")
}

// checkOwnDeletion checks that what is deleted belongs to a controller, and not to a stranger whose attachment it has become.
func (t *Tracker) checkOwnDeletion(c *change) {
	if by, _ := t.controllerOf(c.before); by == "" {
		t.violated(New(StrangersUntouched, c.at, "%s was deleted, and belongs to no controller", c.before))
	} else if owner, _ := c.before.controller(); !owner.known() {
		t.violated(New(StrangersUntouched, c.at, "%s was deleted, which %s %s controls", c.before, owner.kind, owner.name))
	}
}

// stolen returns a label or annotation of a target that is lost when its child is applied, "" if there is none.
func (t *Tracker) stolen(c *change) string {
	if c.Verb != "apply" {
		return ""
	}
	for _, field := range changed(c.before, c.after) {
		if strings.HasPrefix(field, targetLabel) || strings.HasPrefix(field, targetAnnotation) {
			return field
		}
	}
	return ""
}

// byDefault reports whether the spec changed by nothing but what editions of a kind add by default or prune.
func byDefault(c *change) bool { return equalButDefaults(c.before.at("spec"), c.after.at("spec")) }

// equalButDefaults reports whether two specs differ by nothing but what editions of a kind add by default or prune.
func equalButDefaults(was, is map[string]any) bool {
	for _, name := range keys(was, is) {
		if name != "extra" && name != "grade" && !reflect.DeepEqual(was[name], is[name]) {
			return false
		}
	}
	return true
}

// mayDelete reports whether a decorator deletes an object because its response says so.
func (t *Tracker) mayDelete(o object) bool {
	for key, call := range t.last {
		if key.parent == o.meta("uid") && call.Response != nil && call.Response.Delete {
			return true
		}
	}
	return false
}

// claimedByComposite reports whether an attachment has labels by which its parent selects children: then a CompositeController of the
// parent counts it among its own (docs/reference/compatibility.md#d8).
func (t *Tracker) claimedByComposite(child object, parent string) bool {
	o := t.objects[parent]
	return o != nil && len(o.at("spec", "selector", "matchLabels")) > 0 && t.selects(parent, child)
}

// mayAdopt reports whether the adopting parent selects an orphan, now or when the engine saw it last.
func (t *Tracker) mayAdopt(c *change) bool {
	by, ok := c.after.controller()
	return ok && t.selects(by.uid, c.before)
}

// selects reports whether a child has the labels by which a parent selects. Nothing is known of a parent that is gone.
func (t *Tracker) selects(uid string, child object) bool {
	parent := t.objects[uid]
	labels := child.at("metadata", "labels")
	if parent == nil || labels["controller-uid"] == uid {
		return true
	}
	return matches(parent.at("spec", "selector", "matchLabels"), labels)
}

// matches reports whether all labels of a selector are there.
func matches(selector, labels map[string]any) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// checkDeletion checks that what an engine deletes is not what the last response wants as it is. Where children roll, the hook was
// called for several revisions, and the children are those of any; what the latest wants stays unless it is recreated.
func (t *Tracker) checkDeletion(c *change) {
	if !c.deletes() {
		return
	}
	controller, parent := t.controllerOf(c.before)
	key := syncing{c.engine, controller, parent}
	call, calls := t.last[key], t.revisions[key]
	if call != nil && object(call.Request.Parent).deleting() && retains(call.Request.Controller, c.before.kind()) && !recreated(call, c.before) {
		t.violated(New(ChildrenStay, c.at, "%s was deleted with its parent by %s, which has such children stay", c.before, controller))
	}
	switch {
	case call == nil:
		return
	case t.objects[parent] == nil && text(c.before.at("metadata", "annotations")[mark]) != "":
		return // A composite of the parent may have claimed the attachment, by a selector that is not known any more.
	case rolls(call.Request.Controller):
		if rollsAway(calls, c.before) || rollsAway(slices.Concat(t.doubted[key], calls), c.before) {
			return
		}
	case !wantsAsItIs(call, c.before):
		return
	}
	t.violated(New(WantedStays, c.at, "%s was deleted, and the last response of %s wants it as it is", c.before, controller))
}

// rollsAway reports whether a rollout may delete a child after the calls of a sync.
func rollsAway(calls []*Call, have object) bool {
	return !updatedInPlace(latest(calls), have) && slices.ContainsFunc(calls, func(call *Call) bool { return !wantsAsItIs(call, have) })
}

// deletes reports whether a write is a request to delete something.
func (c *change) deletes() bool { return c.Verb == "delete" }

func rolls(controller object) bool {
	return slices.ContainsFunc(hooks.Rules(controller), func(r hooks.Rule) bool { return strings.HasPrefix(r.Method, "Rolling") })
}

// latest returns the last call for the latest revision, for which the hook is called first.
func latest(calls []*Call) *Call {
	if len(calls) == 0 {
		return nil
	}
	spec := func(c *Call) any { return c.Request.Parent["spec"] }
	for _, c := range slices.Backward(calls) {
		if reflect.DeepEqual(spec(c), spec(calls[0])) {
			return c
		}
	}
	return nil
}

// lastSync returns the calls of the last sync of a parent, the one for the latest revision first. Where children roll, the hook is called
// for former revisions after it (docs/reference/contract.md#s14.2).
func (t *Tracker) lastSync(key syncing) []*Call {
	calls := t.revisions[key]
	first := latest(calls)
	if first == nil {
		return nil
	}
	return calls[slices.Index(calls, first):]
}

// pure reports whether all responses of the last sync of a parent were those of package hooks.
func (t *Tracker) pure(key syncing) bool {
	return !slices.ContainsFunc(t.lastSync(key), func(c *Call) bool { return !c.Pure })
}

// usable reports whether the engine could use all of them, too.
func (t *Tracker) usable(key syncing) bool {
	return t.pure(key) && !slices.ContainsFunc(t.lastSync(key), func(c *Call) bool { return c.Response == nil })
}

// updatedInPlace reports whether a response wants a child, whose kind is not recreated.
func updatedInPlace(call *Call, have object) bool {
	if call == nil || call.Response == nil || find(call.Response.Wanted(), have) == nil {
		return false
	}
	return !slices.ContainsFunc(hooks.Rules(call.Request.Controller), func(r hooks.Rule) bool {
		return r.Kind == have.kind() && strings.HasSuffix(r.Method, "Recreate")
	})
}

// wantsAsItIs reports whether a response wants a child, and nothing in it is a reason to create it anew.
func wantsAsItIs(call *Call, have object) bool {
	if call.Response == nil {
		return false
	}
	want := find(call.Response.Wanted(), have)
	if want == nil {
		return false
	}
	for _, rule := range hooks.Rules(call.Request.Controller) {
		if rule.Kind != have.kind() || !strings.HasSuffix(rule.Method, "Recreate") {
			continue
		}
		// It may differ by what was applied before and is not wanted any more; the annotation, or who owns its fields, tells.
		if difference(want, have, hooks.Edition{Extra: true}) != "" || addedToWholes(have) || !appliedAs(want, have) || !ownedAs(call.Controller, want, have) {
			return false
		}
	}
	return true
}

// find returns the object of a list with the group, kind, namespace and name of another.
func find(list []map[string]any, o object) object {
	for _, each := range list {
		namespace := hooks.Meta(each, "namespace")
		if object(each).kind() == o.kind() && hooks.Meta(each, "name") == o.meta("name") && (namespace == "" || namespace == o.meta("namespace")) {
			return each
		}
	}
	return nil
}

// checkFinalizers checks that a finalizer that an engine takes off is one that the hook is done with, or of which nobody is to be asked.
func (t *Tracker) checkFinalizers(c *change) {
	for _, f := range missing(c.before.finalizers(), c.after.finalizers()) {
		name := finalizing(f)
		if name == "" {
			continue
		}
		if call := t.last[syncing{c.engine, name, c.UID}]; call != nil && call.Response != nil && call.Response.Finalized {
			t.checkLeftBehind(c, call)
			continue
		}
		if t.alwaysFinalized(name, c.before.kind(), t.finalized[c.UID+f]) {
			t.violated(New(FinalizeAsked, c.at, "%s was taken off %s, of which the finalize hook did not say that it is finalized", f, c.before))
		}
	}
}

// checkLeftBehind checks that no child stays that the finalize hook was shown and does not want, when its parent is let go that nobody deletes.
func (t *Tracker) checkLeftBehind(c *change, call *Call) {
	d := t.definition(call.Controller)
	if !call.Request.Finalizing || c.after == nil || c.after.deleting() || !finalizes(d, c.before.kind()) ||
		generation(d) != generation(call.Request.Controller) {
		return
	}
	wanted := call.Response.Wanted()
	for _, shown := range call.Request.Children.All() {
		child := t.objects[hooks.Meta(shown, "uid")]
		if by, ok := child.controller(); !ok || by.uid != c.UID || child.deleting() || find(wanted, child) != nil {
			continue
		}
		if controller, _ := t.writerOf(child); controller == call.Controller {
			t.violated(New(ChildrenFirst, c.at, "%s was taken off %s before its child %s was deleted, which the hook did not want", finalizerOf(d), c.before, child))
		}
	}
}

// alwaysFinalized reports whether a controller finalized objects of a kind at all times since a write.
func (t *Tracker) alwaysFinalized(controller string, kind, since int) bool {
	states := t.definitions[controller]
	if len(states) == 0 {
		return false
	}
	for i, s := range slices.Backward(states) {
		if !finalizes(s.object, kind) || s.object.at("spec", "hooks", "finalize") == nil {
			return false
		}
		if s.since <= since || i == 0 {
			return true
		}
	}
	return true
}

// checkKept checks that a child has a keeper from its creation on if it is to stay without its parent.
func (t *Tracker) checkKept(c *change) {
	controller, parent := t.controllerOf(c.after)
	if call := t.last[syncing{c.engine, controller, parent}]; call != nil && retains(call.Request.Controller, c.after.kind()) && !c.after.kept() {
		t.violated(New(ChildrenStay, c.at, "%s was created without a keeper by %s, which has such children stay", c.after, controller))
	}
}

// recreated reports whether a child is deleted to be created again: the response wants it.
func recreated(call *Call, have object) bool {
	return call.Response != nil && find(call.Response.Wanted(), have) != nil
}

// garbageCollector is the user of the garbage collector. The objects of a kind whose definition is deleted are deleted by another one.
const garbageCollector = "system:serviceaccount:kube-system:generic-garbage-collector"

// checkCollected checks that the garbage collector deletes no child that stays: it was created with a keeper.
func (t *Tracker) checkCollected(c *change) {
	by, owned := c.before.controller()
	if !owned || c.User != garbageCollector || c.after != nil && !c.after.deleting() || c.before.deleting() {
		return
	}
	if controller, _ := t.writerOf(c.before); controller != "" && c.before.kept() {
		t.violated(New(ChildrenStay, c.at, "%s was collected with %s %s, and %s has such children stay", c.before, by.kind, by.name, controller))
	}
}
