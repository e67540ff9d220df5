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
	"maps"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// checkAlone checks that no other hook is asked about the parent, and that no child of it is being written: a sync asks before it writes, and
// waits for what it writes.
func (t *Tracker) checkAlone(c *Call) {
	if c.AboutParent > 1 {
		t.violated(New(OneSyncAtATime, c.At, "%d calls of %s about %s are under way", c.AboutParent, c.Controller, object(c.Request.Parent)))
	}
	for _, w := range c.Writing {
		if child := t.writing(c, w); child != nil {
			t.violated(New(OneSyncAtATime, c.At, "the %s hook of %s is asked about %s while its child %s is being written", c.Hook, c.Controller, object(c.Request.Parent), child))
		}
	}
}

// writing returns the child of the parent of a call that is written by its controller, nil if it is another object, or written by somebody else:
// what is sent says by whom.
func (t *Tracker) writing(c *Call, w Writing) object {
	child := decode(w.Body)
	if by, parent := t.writerOf(child); by != c.Controller || parent != hooks.Meta(c.Request.Parent, "uid") {
		return nil
	}
	return child
}

// checkSelected checks that the controller selects the parent, or has its finalizer on it.
func (t *Tracker) checkSelected(c *Call) {
	controller, parent := object(c.Request.Controller), object(c.Request.Parent)
	if slices.Contains(parent.finalizers(), finalizerOf(controller)) {
		return
	}
	if selectsParent(controller, parent) {
		return
	}
	t.violated(New(ParentsAsSelected, c.At, "the %s hook of %s is asked about %s, which the controller does not select", c.Hook, c.Controller, parent))
}

func selectsParent(controller, o object) bool {
	return slices.ContainsFunc(parentRules(controller), func(rule map[string]any) bool {
		return kindOf(rule) == o.kind() && selected(rule, o)
	})
}

// Parents returns the number of objects that are parents of a controller now.
func (t *Tracker) Parents(controller string) int {
	d := t.definition(controller)
	count := 0
	for _, o := range t.objects {
		if slices.Contains(o.finalizers(), finalizerOf(d)) || selectsParent(d, o) {
			count++
		}
	}
	return count
}

// checkOwner checks that a write of an engine leaves what others control to them.
func (t *Tracker) checkOwner(c *change) {
	was, owned := c.before.controller()
	is, owns := c.after.controller()
	switch {
	case !owned || c.after == nil:
	case !was.known():
		for _, field := range changed(c.before, c.after) {
			// A write through a schema that has learned a default stores the default.
			if !asTarget(field) && (field != "spec" || !byDefault(c)) {
				t.violated(New(StrangersUntouched, c.at, "%s of %s was changed, which %s %s controls", field, c.after, was.kind, was.name))
			}
		}
	case owns && was.uid != is.uid:
		t.violated(New(StrangersUntouched, c.at, "%s was taken from %s %s by %s %s", c.after, was.kind, was.name, is.kind, is.name))
	case !owns && letsGo(c, "ownerReferences") && text(c.after.at("metadata", "annotations")[mark]) == "": // Its decorator did.
	case !owns && text(c.before.at("metadata", "annotations")[mark]) != "":
		t.violated(New(StrangersUntouched, c.at, "%s was taken from %s %s, and is the attachment of a decorator", c.after, was.kind, was.name))
	}
}

// releasedAtRest checks that a parent of a composite controls no object of a declared kind that its selector does not match.
func (t *Tracker) releasedAtRest(c Cluster, d, o object) *Violation {
	if text(d["kind"]) != compositeKind || o.deleting() {
		return nil
	}
	for _, rule := range hooks.Rules(d) {
		if !c.serves(rule.Kind, rule.Version) {
			continue
		}
		for _, each := range t.Objects(rule.Kind) {
			child := object(each)
			by, ok := child.controller()
			if !ok || by.uid != o.meta("uid") || text(child.at("metadata", "annotations")[mark]) != "" || selects(d, o, child) {
				continue
			}
			return New(ChildrenAsWanted, c.At, "%s is controlled by %s, whose selector does not match it", child, o)
		}
	}
	return nil
}

// adoptedAtRest checks that no object of a declared kind is left alone that the parent of a composite selects.
func (t *Tracker) adoptedAtRest(c Cluster, d, o object) *Violation {
	if text(d["kind"]) != compositeKind || o.deleting() {
		return nil
	}
	for _, rule := range hooks.Rules(d) {
		if !c.serves(rule.Kind, rule.Version) {
			continue
		}
		for _, each := range t.Objects(rule.Kind) {
			orphan := object(each)
			if _, owned := orphan.controller(); owned || orphan.deleting() || o.meta("namespace") != "" && orphan.meta("namespace") != o.meta("namespace") {
				continue
			}
			if (d.at("spec")["generateSelector"] == true || len(o.at("spec", "selector", "matchLabels")) > 0) && selects(d, o, orphan) {
				return New(ChildrenAsWanted, c.At, "%s has no controller, and %s, which selects it, has not adopted it", orphan, o)
			}
		}
	}
	return nil
}

// generationAtRest checks that a composite has reported the parent's generation.
func generationAtRest(c Cluster, d, o object) *Violation {
	reported, _ := o.at("status")["observedGeneration"].(int64) // Absent: 0.
	if text(d["kind"]) != compositeKind || !hooks.Kinds[o.kind()].HasStatus || reported == generation(o) {
		return nil
	}
	return New(ParentAsWanted, c.At, "status.observedGeneration of %s is %d, and its generation %d", o, reported, generation(o))
}

// Synced is the condition that a controller may keep in its parents.
const Synced = "Synced"

// keepsSynced reports whether the condition Synced is kept in the parents of a rule.
func keepsSynced(rule map[string]any, kind int) bool {
	return rule["conditions"] != nil && hooks.Kinds[kind].HasStatus
}

// withoutSynced returns the status of a parent as hooks of a controller that keeps the condition Synced in it are shown it, nil if nothing is left.
func withoutSynced(rule, status map[string]any) map[string]any {
	conditions, _ := status["conditions"].([]any) // Absent: none.
	if rule["conditions"] == nil || len(conditions) == 0 {
		return status
	}
	shown := maps.Clone(status)
	rest := slices.DeleteFunc(slices.Clone(conditions), func(each any) bool {
		condition, _ := each.(map[string]any) // The engine wrote it.
		return condition["type"] == Synced
	})
	if shown["conditions"] = rest; len(rest) == 0 {
		delete(shown, "conditions")
	}
	if len(shown) == 0 {
		return nil
	}
	return shown
}

// checkSyncedHidden checks that a hook is not shown the condition Synced that its controller keeps.
func (t *Tracker) checkSyncedHidden(c *Call) {
	rules := parentRules(c.Request.Controller)
	if len(rules) == 1 && keepsSynced(rules[0], object(c.Request.Parent).kind()) && conditionOf(c.Request.Parent, Synced) != nil {
		t.violated(New(SyncedKept, c.At, "the %s hook of %s is shown the condition that is kept in %s", c.Hook, c.Controller, object(c.Request.Parent)))
	}
}

// syncedAtRest checks that the condition Synced of a parent that does not fail says so, of its present generation.
func (t *Tracker) syncedAtRest(c Cluster, d object, rule map[string]any, o object) *Violation {
	condition := conditionOf(o, Synced)
	if !keepsSynced(rule, o.kind()) || condition["status"] == isTrue && condition["observedGeneration"] == generation(o) {
		return nil
	}
	if holds(d, heldCondition) || slices.Contains(o.finalizers(), finalizerOf(d)) && o.deleting() {
		return nil // It says what the parent waits for.
	}
	if condition["reason"] == "Held" && t.warned[o.meta("uid")].times > 0 {
		return nil // It does not settle, or a child is left as it is.
	}
	return New(SyncedKept, c.At, "%s was synced, its generation is %d, and its condition is %v", o, generation(o), condition)
}

// finalizersAtRest checks the finalizers of an object.
func (t *Tracker) finalizersAtRest(c Cluster, o object) *Violation {
	for _, f := range o.finalizers() {
		_, controller, ok := strings.Cut(f, "controller-")
		if !ok || !strings.HasPrefix(f, "metacontroller.io/") || finalizes(t.definition(controller), o.kind()) || pauses(t.definition(controller)) {
			continue
		}
		if t.stranded[o.meta("uid")+f] {
			continue
		}
		return New(FinalizersAsDefined, c.At, "%s carries %s, and no controller finalizes it", o, f)
	}
	for _, controller := range slices.Sorted(maps.Keys(t.definitions)) {
		if d := t.definition(controller); d != nil && finalizes(d, o.kind()) && !pauses(d) {
			if v := t.finalizerOnParent(c, d, o); v != nil {
				return v
			}
		}
	}
	return nil
}

// finalizerOnParent checks that an object has the finalizer of a controller that finalizes its kind, if it is selected.
func (t *Tracker) finalizerOnParent(c Cluster, d, o object) *Violation {
	for _, rule := range c.runs(d) {
		if kindOf(rule) != o.kind() {
			continue
		}
		carries, chosen := slices.Contains(o.finalizers(), finalizerOf(d)), selected(rule, o)
		if carries && t.held(o) {
			continue // Its children have finalizers of their own, of controllers that may wait for a kind, or are paused.
		}
		if carries && holds(d, heldCondition) {
			continue // It is not finalized before its children are deleted.
		}
		if carries && fails(d, o) {
			continue // It is finalized when it is tried again.
		}
		if carries != (chosen && !o.deleting()) {
			return New(FinalizersAsDefined, c.At, "%s carries the finalizer of %s: %v; it is selected: %v, and is being deleted: %v",
				o, d, carries, chosen, o.deleting())
		}
	}
	return nil
}

// held reports whether a child of an object is being deleted and still there.
func (t *Tracker) held(o object) bool { return t.anyChild(o, object.deleting) }

// anyChild reports whether an object controls one of which something is true.
func (t *Tracker) anyChild(o object, is func(child object) bool) bool {
	for _, child := range t.objects {
		if by, ok := child.controller(); ok && by.uid == o.meta("uid") && is(child) {
			return true
		}
	}
	return false
}
