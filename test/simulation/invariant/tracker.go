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
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// Call is a call of a hook.
type Call struct {
	// At is when it arrived, Writes how many writes the API server had done then.
	At     time.Duration
	Writes int
	// since is when the first of the calls arrived that wanted the same without one in between for the same spec that did not.
	since time.Duration
	// Engine is the number of the engine that called, Controller the name of the controller, Hook that of the hook.
	Engine     int
	Controller string
	Hook       hook.Name
	// Request is the request, Response the response; nil if it is none that the engine can use.
	Request  *hooks.Request
	Response *hooks.Response
	// Pure says that the response is that of package hooks.
	Pure bool
	// InFlight is the number of calls of the controller for whose responses that engine waited, this one included, and AboutParent the number
	// of those that are about the same parent.
	InFlight, AboutParent int
	// Writing are the creations, updates and applications of objects for whose responses that engine waited.
	Writing []Writing
}

// Writing is a write of a whole object for whose response an engine waits: what was sent, in JSON.
type Writing struct{ Body []byte }

// Options configure a Tracker.
type Options struct {
	// Start is when the history began.
	Start time.Time
	// Engine returns the number of the engine that is a user, false for other users.
	Engine func(user string) (int, bool)
	// Workers is the number of calls of a controller's hooks that may be under way where the controller does not say.
	Workers int
	// Reported is called with every event, for the log: Normal or Warning, its object and its message. Nil: nobody is.
	Reported func(kind, object, message string)
}

// Tracker follows a history. It keeps the first violation.
type Tracker struct {
	options   Options
	violation *Violation

	// writes is the number of writes that were followed.
	writes int
	// objects are the objects as they are, by UID; written is the number of the last write of each.
	objects map[string]object
	written map[string]int
	// gone are children as they were last with their parents, for as long as somebody asks.
	gone []gone
	// taken are the stages of children that others than their controllers have taken over.
	taken []taken
	// definitions are the states of the controllers, by name.
	definitions map[string][]state
	// finalized is the first write of which an engine that put a finalizer on an object may not have known, or that write if it was another's, by
	// UID and finalizer.
	finalized map[string]int
	// stranded are the finalizers, by UID and finalizer, that an engine that was killed put on an object late, when no definition wanted
	// them any more: the next engine may have released all parents by then, and nobody looks for more.
	stranded map[string]bool
	// revisions are the calls of the last sync: one for each revision where children roll (docs/reference/contract.md#s14.2).
	revisions map[syncing][]*Call
	// doubted are the calls before those, where it is not known that another sync began with the latter.
	doubted map[syncing][]*Call
	// last are the last calls of sync and finalize hooks, unseen the acknowledged writes that the next request has to show.
	last   map[syncing]*Call
	unseen map[syncing]map[string]expected
	// generations are the latest ones of parents that hooks of composites were shown, by UID.
	generations map[string]int64
	// asked counts the calls of hooks about each parent.
	asked map[Asking]int
	// customized are the last calls of customize hooks.
	customized map[syncing]*Call
	// upgraded is when the definition of a kind was changed last.
	upgraded time.Duration
	// engines counts the engines that were started, and brakes are those of the controllers, by name.
	engines int
	brakes  map[string]*brakes
	// unreported is when an event was refused lately.
	unreported time.Duration
	// warned are the Warnings that the engine reported, by the UID of their object.
	warned map[string]warnings
	// misled has when a hook responded last about a parent, by its UID, otherwise than its function says.
	misled map[string]time.Duration
}

// gone is a child that is gone since a time, or that its parent has controlled until then.
type gone struct {
	at     time.Duration
	object object
}

// warnings are the Warnings about one object: how many there were, when the latest was, and when one said last that a child is left as it is,
// and that one is because somebody undoes each write. 0: none did.
type warnings struct {
	times         int
	latest        time.Duration
	left, flapped time.Duration
	// failed is when a Warning said last that a sync failed, 0 if another event said since that one succeeded.
	failed time.Duration
}

// syncing identifies the syncs of a parent by a controller of an engine.
type syncing struct {
	engine     int
	controller string
	parent     string
}

// Asking identifies the calls of a hook of a controller about a parent, by its UID.
type Asking struct {
	Controller string
	Hook       hook.Name
	Parent     string
}

// Asked returns how often hooks were asked about each parent until now.
func (t *Tracker) Asked() map[Asking]int { return maps.Clone(t.asked) }

// Revisions returns for how many revisions of a parent its last syncs called the hook, which is one where no children roll.
func (t *Tracker) Revisions(of Asking) int {
	most := 1
	for key, calls := range t.revisions {
		if key.controller == of.Controller && key.parent == of.Parent {
			shown := map[string]bool{}
			for _, c := range calls {
				shown[fmt.Sprint(c.Request.Parent["spec"])] = true
			}
			most = max(most, len(shown))
		}
	}
	return most
}

// state is a controller object from a write on, which was made at a time; object is nil when it is gone.
type state struct {
	since  int
	at     time.Duration
	object object
}

// NewTracker returns a tracker of a history in which nothing has happened.
func NewTracker(o Options) *Tracker {
	return &Tracker{
		options: o, objects: map[string]object{}, written: map[string]int{}, definitions: map[string][]state{},
		finalized: map[string]int{}, stranded: map[string]bool{}, last: map[syncing]*Call{}, revisions: map[syncing][]*Call{}, doubted: map[syncing][]*Call{},
		unseen: map[syncing]map[string]expected{}, customized: map[syncing]*Call{}, warned: map[string]warnings{},
		brakes: map[string]*brakes{}, generations: map[string]int64{}, asked: map[Asking]int{}, misled: map[string]time.Duration{},
	}
}

// Violation returns the first violation, nil if there is none.
func (t *Tracker) Violation() *Violation { return t.violation }

func (t *Tracker) violated(v *Violation) {
	if t.violation == nil {
		t.violation = v
	}
}

// Written returns the number of writes that were followed.
func (t *Tracker) Written() int { return t.writes }

// change is a write with its decoded objects.
type change struct {
	apiserver.Write

	index         int
	at            time.Duration
	before, after object
	// engine is the number of the engine that wrote, byEngine false if it was nobody of them.
	engine   int
	byEngine bool
}

// Write follows the next write.
func (t *Tracker) Write(w apiserver.Write) {
	c := &change{Write: w, index: t.writes, at: w.At.Sub(t.options.Start)}
	t.writes++
	c.engine, c.byEngine = t.options.Engine(w.User)
	c.byEngine = c.byEngine && w.Verb != "collect"
	switch w.Resource {
	case "customresourcedefinitions":
		if w.Subresource == "" && !c.byEngine {
			t.upgraded = c.at
		}
		return
	case "events":
		t.event(w.After, c.at)
		return
	case "compositecontrollers", "decoratorcontrollers":
		t.define(c)
		t.brake(c.Name, t.definition(c.Name), c.at)
		return
	case "controllerrevisions":
		if c.before, c.after = w.Before, w.After; c.byEngine {
			t.checkPaused(c)
		}
		return
	}
	kind := hooks.ByResource(w.Group, w.Resource)
	if kind < 0 {
		return
	}
	c.before, c.after = t.objects[w.UID], w.After
	if c.byEngine {
		t.checkStrangers(c)
		t.checkOwner(c)
		t.checkDeletion(c)
		t.checkFinalizers(c)
		t.checkPaused(c)
		t.checkGuard(c)
		t.checkGeneration(c)
		t.expect(c)
	}
	t.checkCollected(c)
	t.note(c)
}

// note takes the state after a write.
func (t *Tracker) note(c *change) {
	for _, f := range missing(c.after.finalizers(), c.before.finalizers()) {
		_, controller, _ := strings.Cut(f, "controller-")
		t.finalized[c.UID+f] = c.index
		for _, s := range t.definitions[controller] {
			if c.byEngine && s.at+slow >= c.at { // The engine may act on what was before, and learn of this state next.
				t.finalized[c.UID+f] = min(t.finalized[c.UID+f], s.since)
			}
		}
		t.stranded[c.UID+f] = c.byEngine && t.late(c) && !finalizes(t.definition(controller), c.after.kind())
	}
	t.written[c.UID] = c.index
	t.takeStages(c)
	if by, child := c.before.controller(); child {
		if of, still := c.after.controller(); !still || of.uid != by.uid {
			t.gone = append(t.gone, gone{c.at, c.before})
		}
	}
	if c.after == nil {
		delete(t.objects, c.UID)
		return
	}
	t.objects[c.UID] = c.after
}

func (t *Tracker) define(c *change) {
	after, name := object(c.After), c.Name
	former := t.definitions[name]
	if n := len(former); n > 0 && after != nil && former[n-1].object != nil &&
		former[n-1].object.meta("uid") == after.meta("uid") && generation(former[n-1].object) == generation(after) && former[n-1].object.deleting() == after.deleting() {
		former[n-1].object = after // The status alone.
		return
	}
	t.definitions[name] = append(former, state{c.index, c.at, after})
}

func generation(o object) int64 {
	g, _ := o.at("metadata")["generation"].(int64) // Absent: 0.
	return g
}

// definition returns a controller object as it is, nil if there is none.
func (t *Tracker) definition(name string) object {
	if states := t.definitions[name]; len(states) > 0 {
		return states[len(states)-1].object
	}
	return nil
}

// Unreported says that the API server refused an event, which is not sent again.
func (t *Tracker) Unreported(at time.Duration) { t.unreported = at }

func (t *Tracker) event(e object, at time.Duration) {
	subject := e.at("involvedObject")
	if t.options.Reported != nil {
		t.options.Reported(text(e["type"]), text(subject["kind"])+" "+text(subject["name"]), text(e["message"]))
	}
	uid := text(subject["uid"])
	w := t.warned[uid]
	switch reason := text(e["reason"]); {
	case reason == syncRecovered:
		w.failed = 0
	case text(e["type"]) != "Warning":
		return
	default:
		if misled, ever := t.misled[uid]; reason == responseDiffers && (!ever || at-misled > misleading) {
			t.violated(New(HooksNotBlamed, at, "a Warning about %s %s blames its hook: %s", text(subject["kind"]), text(subject["name"]), text(e["message"])))
		}
		w.times++
		w.latest = at
		if leaving[reason] {
			w.left = at
		}
		if reason == childFlapping {
			w.flapped = at
		}
		if reason == syncError {
			w.failed = at
		}
	}
	t.warned[uid] = w
}

// syncError is the reason of Warnings that a sync failed, and syncRecovered that of the event that one succeeded afterwards.
const syncError, syncRecovered = "SyncError", "SyncRecovered"

// responseDiffers is the reason of Warnings that blame a hook, and misleading how long a response is remembered that gives reason to.
const (
	responseDiffers = "ResponseDiffers"
	misleading      = 6 * time.Minute
)

// LastCall returns the last call of a sync or finalize hook about a parent, by its UID; nil if there is none.
func (t *Tracker) LastCall(engine int, controller, parent string) *Call {
	return t.last[syncing{engine, controller, parent}]
}

// LastCalls returns the last calls of sync and finalize hooks about the parents that there are, in the order of controllers and parents.
func (t *Tracker) LastCalls(engine int) []*Call {
	var all []*Call
	for key, call := range t.last {
		if key.engine == engine && t.objects[key.parent] != nil {
			all = append(all, call)
		}
	}
	slices.SortFunc(all, func(a, b *Call) int {
		return cmp.Or(strings.Compare(a.Controller, b.Controller), strings.Compare(object(a.Request.Parent).String(), object(b.Request.Parent).String()))
	})
	return all
}

// Call follows a call of a hook, after the writes that the API server did before it.
func (t *Tracker) Call(c *Call) {
	limit := t.options.Workers
	if workers, ok := object(c.Request.Controller).at("spec")["workers"].(int64); ok {
		limit = int(workers)
	}
	if c.InFlight > limit {
		t.violated(New(HooksWithinLimit, c.At, "%d calls of %s are under way, and its limit is %d", c.InFlight, c.Controller, limit))
	}
	t.asked[Asking{c.Controller, c.Hook, hooks.Meta(c.Request.Parent, "uid")}]++
	if !c.Pure {
		t.misled[hooks.Meta(c.Request.Parent, "uid")] = c.At
	}
	t.checkAlone(c)
	t.checkSelected(c)
	t.checkParentPaused(c)
	t.checkSyncedHidden(c)
	if b := t.brakes[c.Controller]; b != nil && b.paused {
		t.violated(New(PausedRests, c.At, "the %s hook of %s is asked about %s, and it is paused", c.Hook, c.Controller, object(c.Request.Parent)))
	}
	key := syncing{c.Engine, c.Controller, hooks.Meta(c.Request.Parent, "uid")}
	if c.Hook == hook.Customize {
		t.customized[key] = c
		return
	}
	t.checkKnowledge(key, c)
	if text(c.Request.Controller["kind"]) == compositeKind {
		t.generations[key.parent] = max(t.generations[key.parent], generation(c.Request.Parent))
	}
	t.checkFinalizerFirst(c)
	c.since = since(t.revisions[key], c)
	if begins, doubtful := t.begins(t.revisions[key], c); begins {
		delete(t.doubted, key)
		if doubtful {
			t.doubted[key] = t.revisions[key]
		}
		delete(t.revisions, key)
	}
	t.revisions[key] = recent(append(t.revisions[key], c))
	t.last[key] = c
}

// remembered is the number of calls from which on those are dropped that were made before the last two syncs.
const remembered = 40

// recent returns the calls of the last two syncs at least. A parent that stays as it is may be synced once for each of many children.
func recent(calls []*Call) []*Call {
	if len(calls) < remembered {
		return calls
	}
	syncs := 0
	for i, c := range slices.Backward(calls) {
		if reflect.DeepEqual(c.Request.Parent["spec"], calls[0].Request.Parent["spec"]) {
			if syncs++; syncs == 2 {
				return slices.Clone(calls[i:])
			}
		}
	}
	return calls
}

// since returns since when a hook has wanted what it wants in a call, for the spec of the parent in it.
func since(before []*Call, c *Call) time.Duration {
	for _, former := range slices.Backward(before) {
		if !reflect.DeepEqual(former.Request.Parent["spec"], c.Request.Parent["spec"]) {
			continue
		}
		if former.Response != nil && c.Response != nil && reflect.DeepEqual(former.Response.Wanted(), c.Response.Wanted()) {
			return former.since
		}
		break
	}
	return c.At
}

// begins reports whether a call shows another state of a parent than those before it, or one that is known anew. The latter is doubtful where a
// former revision may be what differs.
func (t *Tracker) begins(before []*Call, c *Call) (begins, doubtful bool) {
	if len(before) == 0 {
		return true, false
	}
	first := before[0]
	was, is := object(first.Request.Parent), object(c.Request.Parent)
	if was.version() != is.version() {
		return true, false
	}
	// A changed definition of the kind may show the parent in another form, and in the same version: at once, or when the engine has listed.
	// What else differs is that of a former revision, for which the hook is called in the same sync, whatever changed since the call for the
	// latest one.
	differ := !reflect.DeepEqual(was.at("spec"), is.at("spec"))
	begins = c.At > t.upgraded && equalButDefaults(was.at("spec"), is.at("spec")) && (first.At <= t.upgraded || differ)
	return begins, begins && first.At > t.upgraded
}

// checkFinalizerFirst checks that the parent that the sync hook is shown carries the finalizer.
func (t *Tracker) checkFinalizerFirst(c *Call) {
	controller, parent := object(c.Request.Controller), object(c.Request.Parent)
	if controller.at("spec", "hooks", "finalize") == nil || parent.deleting() {
		return
	}
	if !slices.Contains(parent.finalizers(), finalizerOf(controller)) {
		t.violated(New(FinalizerFirst, c.At, "the %s hook of %s is asked about %s without its finalizer", c.Hook, c.Controller, parent))
	}
}

func finalizerOf(controller object) string {
	kind := "compositecontroller-"
	if text(controller["kind"]) == "DecoratorController" {
		kind = "decoratorcontroller-"
	}
	return "metacontroller.io/" + kind + controller.meta("name")
}
