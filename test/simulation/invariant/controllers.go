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
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// EditsSeen checks that controllers report about their present generation, ready or not, whatever some of their parents are like.
func (t *Tracker) EditsSeen(at time.Duration) *Violation {
	for _, name := range slices.Sorted(maps.Keys(t.definitions)) {
		d := t.definition(name)
		if d == nil || d.deleting() {
			continue
		}
		if observed, _ := d.at("status")["observedGeneration"].(int64); observed != generation(d) { // Absent: 0.
			return New(EditsSeen, at, "%s was edited, and its status is that of generation %d, not of %d: %v",
				d, observed, generation(d), d.at("status")["conditions"])
		}
	}
	return nil
}

// runs reports whether a controller can run, and which of its rules for parents are served.
func (c Cluster) runs(d object) (served []map[string]any) {
	for _, rule := range parentRules(d) {
		_, version := hooks.Split(text(rule["apiVersion"]))
		if c.serves(kindOf(rule), version) {
			served = append(served, rule)
		}
	}
	return served
}

// syncsFailing is the reason of a controller all of whose parents fail, and hookFailing that of one whose hook failed last.
const (
	syncsFailing = "SyncsFailing"
	hookFailing  = "HookFailing"
)

func (t *Tracker) controllerAtRest(c Cluster, name string, d object) *Violation {
	served := c.runs(d)
	if d.deleting() {
		return New(FinalizersAsDefined, c.At, "%s is being deleted for ever: %v", d, d.at("status")["conditions"])
	}
	if pauses(d) {
		return t.pausedAtRest(c, d)
	}
	if v := t.holdsAtRest(c, name, d); v != nil {
		return v
	}
	if v := t.conditionsAtRest(c, d); v != nil && c.Ended {
		return v
	}
	ready, why := readiness(d)
	failing := (strings.HasPrefix(why, syncsFailing) || strings.HasPrefix(why, hookFailing)) && d.at("status")["lastErrors"] != nil
	if ready != (len(served) > 0) && !failing {
		return New(Ready, c.At, "%s is ready: %v, and %d of its kinds of parents are served (%s)", d, ready, len(served), why)
	}
	for _, rule := range served {
		for _, o := range t.Objects(kindOf(rule)) {
			if v := t.parentAtRest(c, name, d, rule, o); v != nil {
				return v
			}
		}
	}
	return nil
}

// isTrue is the status of a condition that holds.
const isTrue = "True"

// readiness says whether a controller reports for its present generation that it runs.
func readiness(d object) (ready bool, why string) {
	condition := conditionOf(d, "Ready")
	if condition == nil {
		return false, "no condition"
	}
	why = fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
	return condition["status"] == isTrue && reflect.DeepEqual(d.at("status")["observedGeneration"], d.at("metadata")["generation"]), why
}

// conditionOf returns a condition of a controller, nil if it does not have it.
func conditionOf(d object, name string) map[string]any {
	conditions, _ := d.at("status")["conditions"].([]any) // Absent: none.
	for _, each := range conditions {
		if condition, _ := each.(map[string]any); condition["type"] == name { // The engine wrote it.
			return condition
		}
	}
	return nil
}

// conditionsAtRest checks that the conditions of a controller that runs tell of nothing that has ended.
func (t *Tracker) conditionsAtRest(c Cluster, d object) *Violation {
	told := func(condition map[string]any) *Violation {
		return New(ConditionsAsIs, c.At, "%s says what is not so any more: %v", d, condition)
	}
	// finalizersAtRest checks that all are released.
	if released := conditionOf(d, "FinalizersReleased"); released != nil && released["status"] != isTrue {
		return told(released)
	}
	if progressing := conditionOf(d, "Progressing"); progressing["status"] == isTrue && !t.progresses(d, text(progressing["reason"])) {
		return told(progressing)
	}
	return nil
}

// progresses reports whether something may be under way that a controller tells of.
func (t *Tracker) progresses(d object, reason string) bool {
	switch reason {
	case "RollingUpdate":
		return rolls(d)
	case "Finalizing":
		for _, o := range t.objects {
			if slices.Contains(o.finalizers(), finalizerOf(d)) && (o.deleting() || !selectsParent(d, o)) {
				return true
			}
		}
		return false
	case "ChangedBack":
		return true
	}
	return d.at("status")["lastErrors"] != nil
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
			if v := t.holdsAtRest(c, name, d); v != nil {
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
		for _, each := range t.Objects(kindOf(rule)) {
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
	case len(calls) == 0 || !t.usable(key) || o.deleting() || t.reported(c, calls[0], o):
		return true // It cannot be told, or was decided on before.
	}
	return slices.ContainsFunc(children, func(child object) bool {
		want := find(calls[0].Response.Wanted(), child)
		return want == nil || difference(want, child, *c.Served[child.kind()]) != "" || !wantsAsItIs(calls[0], child)
	})
}

// ErrorTold checks that a controller says, in its status or in a Warning, that an object cannot be written: itself, or its parent. It was
// refused first at a time.
func (t *Tracker) ErrorTold(at, since time.Duration, kind int, namespace, name string) *Violation {
	refused := t.named(kind, namespace, name)
	if refused == nil {
		return nil
	}
	by, _ := refused.controller()
	for _, o := range []object{refused, t.objects[by.uid]} {
		if w := t.warned[o.meta("uid")]; o != nil && w.times > 0 && (w.latest >= since || w.times >= eventsBurst) {
			return nil
		}
		for name := range t.definitions {
			d := t.definition(name)
			released := conditionOf(d, "FinalizersReleased")
			if o != nil && d != nil && (fails(d, o) || released != nil && released["status"] != isTrue) {
				return nil
			}
		}
	}
	return New(ErrorsTold, at, "writes of %s are refused since %v, and no status and no event says so", refused, since)
}

// errorAtRest checks that a parent fails for a reason that is there still, when all that fails was tried again: a child has the name of an
// object that its parent does not control.
func (t *Tracker) errorAtRest(c Cluster, call *Call, d, o object) *Violation {
	if !c.Retried || !fails(d, o) {
		return nil
	}
	for _, want := range call.Response.Wanted() {
		have := t.inPlaceOf(want, o)
		if by, _ := have.controller(); have != nil && by.uid != o.meta("uid") {
			return nil
		}
	}
	return New(ErrorsTold, c.At, "%s says of %s what has no cause any more: %s", d, o, lastError(d, o))
}

// ResyncPeriod returns the period of a controller's own resyncs, or another one if it has none.
func (t *Tracker) ResyncPeriod(controller string, other time.Duration) time.Duration {
	if seconds, ok := t.definition(controller).at("spec")["resyncPeriodSeconds"].(int64); ok && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return other
}

// Rolls reports whether a controller says that a rollout is under way, for which it asks its hook from time to time.
func (t *Tracker) Rolls(controller string) bool {
	progressing := conditionOf(t.definition(controller), "Progressing")
	return progressing["status"] == isTrue && progressing["reason"] == "RollingUpdate"
}

// Statuses returns what is [Lasting] in the statuses of the controllers, by name.
func (t *Tracker) Statuses() map[string]map[string]any {
	all := map[string]map[string]any{}
	for name := range t.definitions {
		if d := t.definition(name); d != nil {
			all[name] = Lasting(d)
		}
	}
	return all
}

// Lasting returns what a controller says in its status but counts, times, and how its hooks are doing: that is what the last call of each has
// shown, which the next one may show otherwise.
func Lasting(controller map[string]any) map[string]any {
	status := maps.Clone(object(controller).at("status"))
	delete(status, "counters")
	delete(status, "hooks")
	for field, moment := range map[string]string{"conditions": "lastTransitionTime", "lastErrors": "time"} {
		list, _ := status[field].([]any) // Absent: none.
		var lasting []any
		for _, each := range list {
			entry, _ := each.(map[string]any) // The engine wrote it.
			if entry["type"] == "HooksHealthy" {
				continue
			}
			entry = maps.Clone(entry)
			delete(entry, moment)
			lasting = append(lasting, entry)
		}
		status[field] = lasting
	}
	return status
}
