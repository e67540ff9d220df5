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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

	// PausedAnnotation pauses a parent.
	PausedAnnotation = "metacontroller.k8s.io/paused"

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

// checkParentPaused checks that a hook is not asked about a parent that is paused as it is shown.
func (t *Tracker) checkParentPaused(c *Call) {
	value, _ := object(c.Request.Parent).at("metadata", "annotations")[PausedAnnotation].(string)
	until, err := time.Parse(time.RFC3339, value)
	if value == "true" || err == nil && until.After(t.options.Start.Add(c.At)) {
		t.violated(New(PausedRests, c.At, "the %s hook of %s is asked about %s, which is paused: %s", c.Hook, c.Controller, object(c.Request.Parent), value))
	}
}

// holds reports whether a condition of a controller is True.
func holds(d object, condition string) bool { return conditionOf(d, condition)["status"] == isTrue }

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
// call of the hook about the parent.
func (t *Tracker) checkGuard(c *change) {
	if !c.deletes() || t.late(c) || t.mayDelete(c.before) {
		return
	}
	controller, parent := t.controllerOf(c.before)
	b, call := t.brakes[controller], t.last[syncing{c.engine, controller, parent}]
	if b == nil || call == nil || !b.known || call.At <= b.since || t.upgraded > 0 && call.At <= t.upgraded+slow {
		return
	}
	limit, limited := t.mostDeletions(b.limit, controller, c.at)
	if !limited {
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

// mostDeletions returns how many deletions a limit allows within a minute, at most; false if there is no limit. A percentage is one of the
// children before the first of them, as the engine saw them: no more than those that there were at any time since a while.
func (t *Tracker) mostDeletions(limit any, controller string, at time.Duration) (most int64, limited bool) {
	switch limit := limit.(type) {
	case int64:
		return limit, true
	case string:
		percent, err := strconv.ParseInt(strings.TrimSuffix(limit, "%"), 10, 64)
		return max(1, int64(t.childrenWithin(controller, at-guarded-slow))*percent/100), err == nil && percent > 0
	}
	return 0, false
}

// childrenWithin returns how many children a controller had at some time since then.
func (t *Tracker) childrenWithin(controller string, since time.Duration) (n int) {
	mine := func(o object) bool {
		of, _ := t.controllerOf(o)
		return of == controller || text(o.at("metadata", "annotations")[mark]) == controller
	}
	for _, o := range t.objects {
		if mine(o) {
			n++
		}
	}
	t.gone = slices.DeleteFunc(t.gone, func(g gone) bool { return g.at < since })
	for _, g := range t.gone {
		if mine(g.object) && !mine(t.objects[text(g.object.at("metadata")["uid"])]) {
			n++
		}
	}
	return n
}

// confirming finds the annotation that confirms what is held.
var confirming = regexp.MustCompile(regexp.QuoteMeta(ConfirmDeletions) + `=(\S+)`)

// Confirmation returns the value of the annotation that confirms what a controller holds, "" if it says of nothing that it is held.
func (t *Tracker) Confirmation(controller string) string {
	d := t.definition(controller)
	if !holds(d, heldCondition) || d.deleting() {
		return ""
	}
	if found := confirming.FindStringSubmatch(text(conditionOf(d, heldCondition)["message"])); found != nil {
		return found[1]
	}
	return ""
}
