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
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// brakes are what keeps a controller from syncing, or from deleting children.
type brakes struct {
	// paused says that the controller is paused, and the engine knows it.
	paused bool
	// limit is spec.deletionGuard.maxDeletions, nil if there is none, known says that the engine knows it, and since is from when on
	// deletions count.
	limit any
	known bool
	since time.Duration
	// rest is the spec without what can change while a controller runs, and confirmed the annotation that confirms deletions.
	rest, confirmed any
	// deletions are those of children that count.
	deletions []deletion
}

// deletion is one of a child. It was decided on between two times.
type deletion struct{ after, before time.Duration }

const (
	// ConfirmDeletions is the annotation that confirms what a controller holds.
	ConfirmDeletions = "metacontroller.k8s.io/confirm-deletions"

	pausedCondition, heldCondition = "Paused", "DeletionsHeld"
	// guarded is the time over which deletions are counted, and confirmed how long they pass once they are confirmed
	// (docs/reference/controllers.md#guarding-deletions).
	guarded, confirmed = time.Minute, 10 * time.Minute
	// slow is how long the engine has to take up what it is not known to have seen.
	slow = 5 * time.Minute
)

// brake notes what the state of a controller says of its brakes.
func (t *Tracker) brake(name string, d object, at time.Duration) {
	b := t.brakes[name]
	if b == nil {
		b = &brakes{}
		t.brakes[name] = b
	}
	seen := reflect.DeepEqual(d.at("status")["observedGeneration"], d.at("metadata")["generation"])
	switch {
	case !pauses(d):
		b.paused = false
	case seen && holds(d, pausedCondition):
		b.paused = true
	}
	limit, rest := d.at("spec", "deletionGuard")["maxDeletions"], d.remaining("paused", "deletionGuard")
	if confirmation := d.at("metadata", "annotations")[ConfirmDeletions]; confirmation != b.confirmed {
		b.confirmed, b.since = confirmation, max(b.since, at+confirmed+slow)
	}
	if limit != b.limit || !reflect.DeepEqual(rest, b.rest) {
		b.limit, b.rest, b.known = limit, rest, false
	}
	if seen && !b.known {
		b.known, b.since, b.deletions = true, max(b.since, at), nil
	}
}

// remaining returns the spec without some fields.
func (o object) remaining(but ...string) map[string]any {
	rest := map[string]any{}
	for name, value := range o.at("spec") {
		if !slices.Contains(but, name) {
			rest[name] = value
		}
	}
	return rest
}

// pauses reports whether a controller is to be paused. One that is being deleted releases its parents all the same.
func pauses(d object) bool { return d.at("spec")["paused"] == true && !d.deleting() }

// holds reports whether a condition of a controller is True.
func holds(d object, condition string) bool {
	conditions, _ := d.at("status")["conditions"].([]any) // Absent: none.
	return slices.ContainsFunc(conditions, func(each any) bool {
		c, _ := each.(map[string]any) // The engine wrote it.
		return c["type"] == condition && c["status"] == "True"
	})
}

// Starts says that an engine starts, which knows the controllers as they are, and nothing of what was deleted before.
func (t *Tracker) Starts(at time.Duration) {
	t.engines++
	for name, b := range t.brakes {
		d := t.definition(name)
		b.paused = pauses(d)
		b.known, b.since, b.deletions = d != nil, max(b.since, at), nil
	}
}

// late reports whether a write is one of an engine that is gone: a write that was sent is not taken back.
func (t *Tracker) late(c *change) bool { return c.engine < t.engines-1 }

// checkPaused checks that a write is none of a controller that is paused.
func (t *Tracker) checkPaused(c *change) {
	if t.late(c) {
		return
	}
	for _, name := range t.writers(c) {
		if b := t.brakes[name]; b != nil && b.paused {
			t.violated(New(PausedRests, c.at, "%s %s/%s was written by %s, which is paused: %v", c.Resource, c.Namespace, c.Name, name, changed(c.before, c.after)))
		}
	}
}

// writers returns the controllers of which a write of an engine is.
func (t *Tracker) writers(c *change) []string {
	var all []string
	if c.after == nil && !c.deletes() { // It lost its last finalizer.
		for _, f := range c.before.finalizers() {
			all = append(all, finalizing(f))
		}
		return all
	}
	if c.before != nil && c.after != nil && c.Verb != "apply" {
		for _, field := range changed(c.before, c.after) {
			if !asTarget(field) || c.prunes(field) {
				continue
			}
			all = append(all, writerOfTarget(field, c.before, c.after))
			for _, f := range missing(c.before.finalizers(), c.after.finalizers()) {
				all = append(all, finalizing(f))
			}
		}
	}
	if len(all) > 0 {
		return all
	}
	child := c.after
	if _, ok := child.controller(); !ok {
		child = c.before
	}
	if controller, _ := t.writerOf(child); controller != "" {
		return []string{controller}
	}
	return nil
}

// checkGuard checks that a deletion of a child is one that the guard of its controller lets pass. A deletion was decided on after the last
// call of the hook about the parent. Of a percentage the guard's own tests tell whether it is worked out well.
func (t *Tracker) checkGuard(c *change) {
	if !c.deletes() || t.late(c) || t.mayDelete(c.before) {
		return
	}
	controller, parent := t.controllerOf(c.before)
	b, call := t.brakes[controller], t.last[syncing{c.engine, controller, parent}]
	if b == nil || call == nil || !b.known || call.At <= b.since || t.upgraded > 0 && call.At <= t.upgraded+slow {
		return
	}
	limit, ok := b.limit.(int64)
	if !ok {
		return
	}
	b.deletions = append(b.deletions, deletion{call.At, c.at})
	count := int64(0)
	for _, d := range b.deletions {
		if c.at-d.after < guarded {
			count++
		}
	}
	if count > limit {
		t.violated(New(DeletionsGuarded, c.at, "%s was deleted by %s, the %dth within a minute, and %d are allowed", c.before, controller, count, limit))
	}
}

// confirming finds the annotation that confirms what is held.
var confirming = regexp.MustCompile(regexp.QuoteMeta(ConfirmDeletions) + `=(\S+)`)

// Confirmation returns the value of the annotation that confirms what a controller holds, "" if it says of nothing that it is held.
func (t *Tracker) Confirmation(controller string) string {
	d := t.definition(controller)
	if !holds(d, heldCondition) || d.deleting() {
		return ""
	}
	conditions, _ := d.at("status")["conditions"].([]any) // There is one at least.
	for _, each := range conditions {
		c, _ := each.(map[string]any) // The engine wrote it.
		if found := confirming.FindStringSubmatch(text(c["message"])); found != nil && c["type"] == heldCondition {
			return found[1]
		}
	}
	return ""
}

// pausedAtRest checks that a controller that is paused says that nothing of it is under way.
func (t *Tracker) pausedAtRest(c Cluster, d object) *Violation {
	ready, why := readiness(d)
	seen := reflect.DeepEqual(d.at("status")["observedGeneration"], d.at("metadata")["generation"])
	if len(c.runs(d)) > 0 && (!seen || ready || !holds(d, pausedCondition)) {
		return New(PausedRests, c.At, "%s is paused, is ready: %v (%s), and its conditions are %v", d, ready, why, d.at("status")["conditions"])
	}
	return nil
}

// Held checks that controllers that hold deletions have some that their hooks want, once all has come to rest.
func (t *Tracker) Held(c Cluster) *Violation {
	for _, name := range slices.Sorted(maps.Keys(t.definitions)) {
		if d := t.definition(name); d != nil && !d.deleting() && !pauses(d) {
			if v := t.holdsAtRest(c, name, d); v != nil && t.reports(v) {
				return v
			}
		}
	}
	return nil
}

// holdsAtRest checks that a controller that holds deletions has one that its hook wants.
func (t *Tracker) holdsAtRest(c Cluster, name string, d object) *Violation {
	if !holds(d, heldCondition) {
		return nil
	}
	for _, rule := range parentRules(d) {
		group, _ := split(text(rule["apiVersion"]))
		for _, each := range t.Objects(hooks.ByResource(group, text(rule["resource"]))) {
			if t.wantsDeletion(c, name, d, each) {
				return nil
			}
		}
	}
	return New(DeletionsGuarded, c.At, "%s says that deletions are held, and no response wants any: %v", d, d.at("status")["conditions"])
}

// wantsDeletion reports whether a controller may have to delete a child of a parent.
func (t *Tracker) wantsDeletion(c Cluster, name string, d, o object) bool {
	key := syncing{c.Engine, name, o.meta("uid")}
	calls := t.lastSync(key)
	children := t.children(name, d, o, c)
	switch {
	case len(children) == 0:
		return false
	case len(calls) == 0 || !t.usable(key) || o.deleting() || t.reported(calls[0], o):
		return true // It cannot be told, or was decided on before.
	}
	return slices.ContainsFunc(children, func(child object) bool {
		want := find(calls[0].Response.Wanted(), child)
		return want == nil || difference(want, child, *c.Served[child.kind()]) != "" || !wantsAsItIs(calls[0], child)
	})
}
