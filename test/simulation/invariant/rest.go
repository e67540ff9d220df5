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
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// Cluster is what AtRest has to know besides the writes.
type Cluster struct {
	// At is the time since the history began, Engine the number of the engine that runs.
	At     time.Duration
	Engine int
	// Resynced is when the last period of resyncs began; 0 if none has passed.
	Resynced time.Duration
	// Ended says that hooks have been asked again about the parents of which [Tracker.Impure] tells, as at the end of a history. The others
	// are checked before.
	Ended bool
	// Retried says that all that fails was tried again since.
	Retried bool
	// Served says of each kind in which edition its definition is; nil for one that is not served.
	Served []*hooks.Edition
}

// serves reports whether a version of a kind is served.
func (c Cluster) serves(kind int, version string) bool {
	return kind >= 0 && c.Served[kind] != nil && (version == hooks.Kinds[kind].Versions[0] || !c.Served[kind].Single)
}

// AtRest checks what must be true when nothing is left to do. Controllers that have to wait for a kind are excepted, and so are parents
// whose last response was not that of package hooks; see Flush.
func (t *Tracker) AtRest(c Cluster) *Violation {
	for _, name := range slices.Sorted(maps.Keys(t.definitions)) {
		if d := t.definition(name); d != nil {
			if v := t.controllerAtRest(c, name, d); v != nil {
				return v
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(t.objects)) {
		if v := t.finalizersAtRest(c, t.objects[uid]); v != nil {
			return v
		}
	}
	return nil
}

// Impure returns the UIDs of the parents whose last response was not that of package hooks, or was given before the definition of a kind
// was changed or this was seen, which is no reason to ask again, or whose status somebody changed though their controller is to ignore
// that. A change of the parents is needed before something can be said about their children and their status.
func (t *Tracker) Impure(c Cluster) []string {
	var all []string
	for key, call := range t.last {
		o, ok := t.objects[key.parent]
		if !ok || key.engine != c.Engine {
			continue
		}
		edition := c.Served[o.kind()]
		if !t.pure(key) || call.At <= t.upgraded || edition != nil && (outdated(edition, call, o) || t.ignoresStatus(key.controller, o) && t.statusAsWanted(c, call, o) != nil) {
			all = append(all, key.parent)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// outdated reports whether a call showed a parent without a default that the edition of its kind has, or with one that it has not.
func outdated(edition *hooks.Edition, call *Call, o object) bool {
	_, graded := object(call.Request.Parent).at("spec")["grade"]
	return o.kind() == hooks.Gadget && graded != edition.Graded
}

// ignoresStatus reports whether a controller is to ignore changes of the status of an object.
func (t *Tracker) ignoresStatus(controller string, o object) bool {
	d := t.definition(controller)
	return d != nil && slices.ContainsFunc(parentRules(d), func(rule map[string]any) bool {
		return rule["ignoreStatusChanges"] == true && kindOf(rule) == o.kind()
	})
}

// AllPure reports whether the last responses about all parents were those of package hooks.
func (t *Tracker) AllPure(engine int) bool {
	for key := range t.last {
		if _, ok := t.objects[key.parent]; ok && key.engine == engine && !t.pure(key) {
			return false
		}
	}
	return true
}

// Object returns the object with a UID as it is, nil if there is none. It must not be modified.
func (t *Tracker) Object(uid string) map[string]any { return t.objects[uid] }

// Objects returns the objects of a kind as they are, in the order of their names. They must not be modified.
func (t *Tracker) Objects(kind int) []map[string]any {
	named := map[string]map[string]any{}
	for _, o := range t.objects {
		if o.kind() == kind {
			named[o.String()] = o
		}
	}
	all := make([]map[string]any, 0, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, named[name])
	}
	return all
}

// selected reports whether a rule selects an object.
func selected(rule map[string]any, o object) bool {
	return matches(object(rule).at("labelSelector", "matchLabels"), o.at("metadata", "labels"))
}

// parentAtRest checks one parent of a controller that runs.
func (t *Tracker) parentAtRest(c Cluster, name string, d object, rule map[string]any, o object) *Violation {
	chosen, carries := selected(rule, o), slices.Contains(o.finalizers(), finalizerOf(d))
	if !chosen && !carries {
		return nil
	}
	key := syncing{c.Engine, name, o.meta("uid")}
	calls := t.lastSync(key)
	if len(calls) == 0 {
		return New(LatestSeen, c.At, "the hook of %s was never asked about %s", name, o)
	}
	call := calls[0] // At rest no child is on a former revision.
	if !t.usable(key) || !c.Ended && t.upgraded > 0 && call.At <= t.upgraded {
		return nil
	}
	// Releasing is done first, and no error keeps a parent from it but its own.
	if v := t.releasedAtRest(c, d, o); v != nil && !strings.Contains(lastError(d, o), "releasing ") {
		return v
	}
	if t.reported(c, call, o) {
		return t.errorAtRest(c, call, d, o)
	}
	for _, v := range []*Violation{t.latest(c, call, d, rule, o), t.relatedAtRest(c, call, d, o), t.adoptedAtRest(c, d, o)} {
		if v != nil {
			return v
		}
	}
	finalizing := d.at("spec", "hooks", "finalize") != nil && (o.deleting() || !chosen)
	if finalizing != call.Request.Finalizing {
		return New(LatestSeen, c.At, "the last call of %s about %s is finalizing: %v, not %v", name, o, call.Request.Finalizing, finalizing)
	}
	if call.At < c.Resynced {
		return New(ResyncAsks, c.At, "the hook of %s was asked about %s at %v last, and that is longer ago than a period of resyncs", name, o, call.At)
	}
	for _, v := range []*Violation{t.parentAsWanted(c, call, o), generationAtRest(c, d, o), t.syncedAtRest(c, d, rule, o)} {
		if v != nil && rule["ignoreStatusChanges"] != true {
			return v
		}
	}
	if o.deleting() && (!finalizing || !carries || slices.Contains(o.finalizers(), "foregroundDeletion") || slices.Contains(o.finalizers(), "orphan")) {
		return nil // Children are not managed (docs/reference/contract.md#s15).
	}
	return t.childrenAsWanted(c, name, call, o)
}

// latest checks that the last request shows the parent, the children and the related objects as they are.
func (t *Tracker) latest(c Cluster, call *Call, d object, rule map[string]any, o object) *Violation {
	parent := object(call.Request.Parent)
	ignored := rule["ignoreStatusChanges"] == true && generation(parent) == generation(o) &&
		reflect.DeepEqual(parent.at("metadata", "labels"), o.at("metadata", "labels")) &&
		reflect.DeepEqual(parent.at("metadata", "annotations"), o.at("metadata", "annotations"))
	// A status that was deferred is shown to the hook before it is written, which changes the version and nothing else, and inline hooks that do not
	// look at it are not asked again (docs/reference/compatibility.md#d6).
	blind := hooks.IsBlind(call.Request.Controller)
	same := generation(parent) == generation(o) && !slices.ContainsFunc(changed(parent, o), func(field string) bool {
		return field != "apiVersion" && (field != ofStatus || !blind && !reflect.DeepEqual(parent.at(field), withoutSynced(rule, o.at(field))))
	})
	if parent.version() != o.version() && !same && !ignored {
		return New(LatestSeen, c.At, "the hook of %s saw %s in version %d last, and it is in version %d", call.Controller, o, parent.version(), o.version())
	}
	shown := map[string]object{}
	for _, child := range call.Request.Children.All() {
		shown[hooks.Meta(child, "uid")] = child
	}
	for _, child := range t.children(call.Controller, d, o, c) {
		uid := child.meta("uid")
		if shown[uid] == nil || shown[uid].version() != child.version() {
			return New(LatestSeen, c.At, "the hook of %s saw %s of %s in version %d last, and it is in version %d",
				call.Controller, child, o, shown[uid].version(), child.version())
		}
		delete(shown, uid)
	}
	for _, child := range shown {
		return New(LatestSeen, c.At, "the hook of %s saw %s of %s last, which is no child any more", call.Controller, child, o)
	}
	return nil
}

// children returns the children that a controller observes of a parent.
func (t *Tracker) children(controller string, d, o object, c Cluster) []object {
	var all []object
	done := map[int]bool{}
	for _, rule := range hooks.Rules(d) {
		if done[rule.Kind] || !c.serves(rule.Kind, rule.Version) {
			continue
		}
		done[rule.Kind] = true
		for _, each := range t.Objects(rule.Kind) {
			child := object(each)
			if by, ok := child.controller(); !ok || by.uid != o.meta("uid") {
				continue
			}
			marked := text(child.at("metadata", "annotations")[mark])
			if text(d["kind"]) == "DecoratorController" && marked == controller || text(d["kind"]) != "DecoratorController" && selects(d, o, child) {
				all = append(all, child)
			}
		}
	}
	return all
}

// selects reports whether the selector of a composite's parent matches a child.
func selects(d, o, child object) bool {
	labels := child.at("metadata", "labels")
	if d.at("spec")["generateSelector"] == true {
		return labels["controller-uid"] == o.meta("uid")
	}
	return matches(o.at("spec", "selector", "matchLabels"), labels)
}

// listedErrors is how many parents whose last sync failed the status of a controller names at most.
const listedErrors = 10

// reported reports whether a controller says of a parent that its last sync failed: in its status, or in a Warning if the status names no more. It also
// does whether it said in a Warning on the parent after the last call of the hook that it leaves a child as it is, or may have. An earlier Warning is enough beyond
// the budget of events, and as long as the hook wants the same: a child in another version is not read again during the pause, so that no sync can
// say where it differs.
func (t *Tracker) reported(c Cluster, call *Call, o object) bool {
	w := t.warned[o.meta("uid")]
	refused := t.unreported > 0 && t.unreported >= call.At // It may have been the first Warning on the parent.
	said := w.left >= call.At || w.times >= eventsBurst || w.left >= call.since && c.still(w.left)
	d := t.definition(call.Controller)
	listed, _ := d.at("status")["lastErrors"].([]any) // Absent: none.
	return fails(d, o) || len(listed) >= listedErrors && c.still(w.failed) || w.left > 0 && said || refused
}

// fails reports whether a controller says of a parent, in its status, that its last sync failed.
func fails(d, o object) bool { return lastError(d, o) != "" }

// lastError returns the error with which the last sync of a parent failed, as its controller's status says; "" if it did not.
func lastError(d, o object) string {
	failed, _ := d.at("status")["lastErrors"].([]any) // Absent: none.
	for _, each := range failed {
		e, _ := each.(map[string]any) // The engine wrote it.
		if hooks.ByResource(text(e["group"]), text(e["resource"])) == o.kind() && text(e["namespace"]) == o.meta("namespace") && text(e["name"]) == o.meta("name") {
			return text(e["message"])
		}
	}
	return ""
}

// Failing reports whether a controller says in its status that the last sync of a parent failed.
func (t *Tracker) Failing() bool {
	for name := range t.definitions {
		if d := t.definition(name); d != nil && d.at("status")["lastErrors"] != nil {
			return true
		}
	}
	return false
}

// leaving are the reasons of Warnings that say that a child is left as it is. Such a child is looked at again without an event.
var leaving = map[string]bool{childFlapping: true, "ChildNotRecreated": true, "ChildNotUpdated": true}

// childFlapping is the reason of a Warning that says of a child that somebody undoes each write of it.
const childFlapping = "ChildFlapping"

const (
	// eventsBurst is about the number of events on one object after which the engine drops some (docs/reference/contract.md#s18.4), and
	// eventsInterval how long after an event it sends the next one of the same kind on the same object at the latest, if there is one to send.
	eventsBurst    = 8
	eventsInterval = 5 * time.Minute
	// longestPause is for how long a child is left as it is at most, when nothing else happens (docs/design/0013-plans-and-records.md).
	longestPause = 10 * time.Minute
	// longestSilence is for how long at most no Warning says so: that of a pause that ends just before eventsInterval is over is dropped, and the
	// next pause follows. Children of one parent have one budget of events. A minute is for the look itself.
	longestSilence = eventsInterval + longestPause + time.Minute
)

// still reports whether what a Warning said at a time is so, as it would be said again. 0: no Warning said it.
func (c Cluster) still(said time.Duration) bool { return said > 0 && c.At-said <= longestSilence }

// Leaving reports whether a child is left as it is, as a Warning says.
func (t *Tracker) Leaving(c Cluster) bool {
	return t.anyWarned(func(w warnings) bool { return c.still(w.left) })
}

// Flapping reports whether a child is left as it is because somebody undoes each write of it. After a pause it is written again, which has
// hooks asked about it and its parent.
func (t *Tracker) Flapping(c Cluster) bool {
	return t.anyWarned(func(w warnings) bool { return c.still(w.flapped) })
}

func (t *Tracker) anyWarned(is func(warnings) bool) bool {
	for _, w := range t.warned {
		if is(w) {
			return true
		}
	}
	return false
}

// Looks returns how often, within a time, the hook is asked at most because children of a parent are left as they are: whenever the pause of
// one ends, of which each has its own. Flapping children are not meant. A child of which the API server does not say what it makes may be as wanted, so
// that each that is there counts.
func (t *Tracker) Looks(c Cluster, of Asking, within time.Duration) int {
	call, parent := t.last[syncing{c.Engine, of.Controller, of.Parent}], t.objects[of.Parent]
	if call == nil || call.Response == nil || parent == nil || !c.still(t.warned[of.Parent].left) {
		return 0
	}
	there := 0
	for _, want := range call.Response.Wanted() {
		if t.inPlaceOf(want, parent) != nil {
			there++
		}
	}
	return max(there, 1) * (int(within/longestPause) + 1)
}

// childrenAsWanted checks that the desired children are there, as their rule updates them, and no others.
func (t *Tracker) childrenAsWanted(c Cluster, name string, call *Call, o object) *Violation {
	wanted, held := call.Response.Wanted(), holds(t.definition(name), heldCondition)
	methods := map[int]string{}
	for _, rule := range hooks.Rules(call.Request.Controller) {
		methods[rule.Kind] = rule.Method
	}
	for _, want := range wanted {
		kind, have := object(want).kind(), t.inPlaceOf(want, o)
		by, _ := have.controller()
		if have == nil || by.uid != o.meta("uid") {
			if c.Served[kind] != nil {
				return New(ChildrenAsWanted, c.At, "%s of %s is wanted by %s, and it is not there or controlled by %q, and no Warning says so",
					object(want), o, name, by.name)
			}
			continue
		}
		method := methods[kind]
		if have.deleting() || method == "" || method == "OnDelete" {
			continue
		}
		if held && waits(method, call) || strings.HasPrefix(method, "Rolling") && (t.held(o) || t.unobserved(o, methods)) {
			continue // The rollout goes on when the child that is being deleted is gone, or has been observed by its own controller.
		}
		if d := difference(want, withoutTaken(call.Controller, want, have, t.stagesTaken(have)), *c.Served[kind]); d != "" {
			return New(ChildrenAsWanted, c.At, "%s of %s is not as %s wants it (%s): %s", have, o, name, method, d)
		}
	}
	for _, child := range t.children(name, call.Request.Controller, o, c) {
		if find(wanted, child) == nil && !child.deleting() && !held {
			return New(ChildrenAsWanted, c.At, "%s of %s is there, and %s does not want it", child, o, name)
		}
	}
	return nil
}

// waits reports whether a child waits while deletions are held: what would be recreated, and what waits for that.
func waits(method string, call *Call) bool {
	return strings.HasSuffix(method, "Recreate") || rolls(call.Request.Controller)
}

// unobserved reports whether a child of an object that is rolled out by its method says that its own controller has not seen its latest
// change, which nobody may do any more.
func (t *Tracker) unobserved(o object, methods map[int]string) bool {
	return t.anyChild(o, func(child object) bool {
		seen, _ := child.at("status")["observedGeneration"].(int64) // Absent: 0.
		return strings.HasPrefix(methods[child.kind()], "Rolling") && seen > 0 && seen < generation(child)
	})
}

// inPlaceOf returns the object that has the name of a child that a parent wants, whoever controls it; nil if there is none.
func (t *Tracker) inPlaceOf(want map[string]any, parent object) object {
	namespace := hooks.Meta(want, "namespace")
	if namespace == "" {
		namespace = parent.meta("namespace")
	}
	return t.named(object(want).kind(), namespace, hooks.Meta(want, "name"))
}

func (t *Tracker) named(kind int, namespace, name string) object {
	for _, o := range t.objects {
		if o.meta("name") == name && o.meta("namespace") == namespace && o.kind() == kind {
			return o
		}
	}
	return nil
}

// parentAsWanted checks the status, the labels and the annotations.
func (t *Tracker) parentAsWanted(c Cluster, call *Call, o object) *Violation {
	if v := t.statusAsWanted(c, call, o); v != nil {
		return v
	}
	for field, values := range map[string]map[string]*string{"labels": call.Response.Labels, "annotations": call.Response.Annotations} {
		have := o.at("metadata", field)
		for name, value := range values {
			got, there := have[name]
			if value == nil && there || value != nil && got != *value {
				return New(ParentAsWanted, c.At, "%s.%s of %s is %v, which is not the last response of %s", field, name, o, got, call.Controller)
			}
		}
	}
	return nil
}

func (t *Tracker) statusAsWanted(c Cluster, call *Call, o object) *Violation {
	kind, want := o.kind(), call.Response.Status
	if !hooks.Kinds[kind].HasStatus || want == nil {
		return nil
	}
	have := o.at("status")
	for field, value := range want {
		if field == "note" && kind == hooks.Realm && !c.Served[kind].Extra {
			continue
		}
		if !reflect.DeepEqual(value, have[field]) {
			return New(ParentAsWanted, c.At, "status.%s of %s is %v, and the last response of %s says %v", field, o, have[field], call.Controller, value)
		}
	}
	for field, value := range have {
		if _, ok := want[field]; !ok && field != "observedGeneration" && field != "conditions" {
			return New(ParentAsWanted, c.At, "status.%s of %s is %v, and the last response of %s does not have it", field, o, value, call.Controller)
		}
	}
	return nil
}

// relatedAtRest checks that the last request shows the objects that the last customize response selects, as they are.
func (t *Tracker) relatedAtRest(c Cluster, call *Call, d, o object) *Violation {
	asked := t.customized[syncing{c.Engine, call.Controller, o.meta("uid")}]
	if d.at("spec", "hooks", "customize") == nil || asked == nil || asked.Response == nil || !asked.Pure {
		return nil
	}
	shown := map[string]object{}
	for _, each := range call.Request.Related.All() {
		shown[hooks.Meta(each, "uid")] = each
	}
	for _, related := range t.objects {
		uid := related.meta("uid")
		if !slices.ContainsFunc(asked.Response.RelatedResources, func(r hook.RelatedResourceRule) bool { return selectsRelated(d, o, related, r) }) {
			continue
		}
		if shown[uid] == nil || shown[uid].version() != related.version() {
			return New(LatestSeen, c.At, "the hook of %s saw %s, which is related to %s, in version %d last, and it is in version %d",
				call.Controller, related, o, shown[uid].version(), related.version())
		}
		delete(shown, uid)
	}
	for _, related := range shown {
		return New(LatestSeen, c.At, "the hook of %s saw %s last, which is not related to %s any more", call.Controller, related, o)
	}
	return nil
}

// selectsRelated reports whether a rule selects an object for a parent, and the hook is shown it (docs/reference/contract.md#s16.2).
func selectsRelated(d, o, related object, r hook.RelatedResourceRule) bool {
	if group, _ := hooks.Split(r.APIVersion); hooks.ByResource(group, r.Resource) != related.kind() {
		return false
	}
	namespace, customize := r.Namespace, d.at("spec", "hooks", "customize")
	if own := o.meta("namespace"); own != "" && customize["version"] == "v1" && customize["inline"] == nil { // Inline hooks have v2 whatever it says.
		namespace = own
	}
	if namespace != "" && related.meta("namespace") != namespace || len(r.Names) > 0 && !slices.Contains(r.Names, related.meta("name")) {
		return false
	}
	if r.LabelSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(r.LabelSelector)
	if err != nil {
		return false
	}
	has := labels.Set{}
	for name, value := range related.at("metadata", "labels") {
		has[name] = text(value)
	}
	return selector.Matches(has)
}

// upgradedAtRest checks a parent whose hook was asked last before the definition of a kind was changed: what is to be written otherwise to
// its children since then is written without anybody asking for it, and the hook is asked again where a kind is of related objects.
func (t *Tracker) upgradedAtRest(c Cluster, name string, d, rule, o object) *Violation {
	key := syncing{c.Engine, name, o.meta("uid")}
	calls := t.lastSync(key)
	if len(calls) == 0 {
		return nil
	}
	call := calls[0]
	if !t.usable(key) || call.At > t.upgraded || !selected(rule, o) || o.deleting() || t.reported(c, call, o) {
		return nil
	}
	if v := t.relatedAtRest(c, call, d, o); v != nil {
		return v
	}
	return t.childrenAsWanted(c, name, call, o)
}

// Upgraded checks, before anybody asks again, that a change of the definition of a kind has had its effect on children.
func (t *Tracker) Upgraded(c Cluster) *Violation {
	for name := range t.definitions {
		d := t.definition(name)
		if d == nil || d.deleting() || pauses(d) {
			continue
		}
		for _, rule := range c.runs(d) {
			for _, o := range t.Objects(kindOf(rule)) {
				if v := t.upgradedAtRest(c, name, d, rule, o); v != nil {
					return v
				}
			}
		}
	}
	return nil
}
