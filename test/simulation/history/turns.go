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

package history

import (
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// turns are what happens to children one after the other.
var turns = []string{"up", "down", "finalize", "update", "roll"}

const (
	// inTurnAtMost is how long it takes at most until all is written once an object wants something else, and nothing else happens, and
	// inTurnPerChild how much longer with each child.
	inTurnAtMost, inTurnPerChild = 150 * time.Second, time.Second
	// turnsAtMost is how often it happens in a history: each syncs a parent as often as it has children, which are 150 in some.
	turnsAtMost = 8
)

// takes has something happen, and checks how long it takes until all is written. It reports whether everything is at rest then.
func (r *runner) takes(s Step, something func()) bool {
	before := len(r.world.API.Journal())
	something()
	calm, took, most := r.calm(), time.Duration(0), inTurnAtMost+time.Duration(r.history.Options.Many)*inTurnPerChild
	// The syncs of each period, after which nothing is written, keep a cluster from rest, too.
	if writes := slices.DeleteFunc(slices.Clone(r.world.API.Journal()[before:]), passing); len(writes) > 0 {
		took = writes[len(writes)-1].At.Sub(writes[0].At)
	}
	if calm && took > most && !r.guarded() && !r.fails() && !r.finalizes() {
		r.violatedf(invariant.ComesToRest, "what happens to children one after the other (%s) took %v, and %v is enough", s.How, took, most)
	}
	r.rest(s)
	return calm && r.result.Violation == nil
}

// inTurn has an object want many children, and has what How says happen to them one after the other. Nothing else does, so that how long that
// takes is known.
func (r *runner) inTurn(s Step) {
	if r.turned == turnsAtMost || !r.calm() {
		return
	}
	r.turned++
	p, many := placeOf(s.Kind, s.On), int64(max(2, r.history.Options.Many))
	want := func(spec map[string]any) bool {
		return r.takes(s, func() { r.merge(p.path(), "", map[string]any{"spec": spec}) })
	}
	switch s.How {
	case "roll":
		r.editDefinition(Step{Controller: s.Controller, How: "rolling"})
	case "finalize":
		r.editDefinition(Step{Controller: s.Controller, How: "finalizing"})
	}
	if r.get(p.path()) == nil {
		r.createAt(p)
	}
	shape := int64(0)
	r.change(p.path(), func(o map[string]any) {
		field(field(o, "metadata"), "labels")[selection] = "yes"
		shape = hooks.WishOf(o).Shape
	})
	if s.How == "finalize" {
		shape = shape&^hooks.FinalizeAtOnce | hooks.FinalizeOneByOne
	} else if s.How == "roll" {
		shape |= hooks.InOtherVersion
	}
	r.drew(ofTurns, s.How)
	r.drew(ofChildren, many)
	if !want(map[string]any{"children": many, "inTurn": s.How == "up", "ordered": false, "shape": shape, "memory": false}) {
		return
	}
	switch s.How {
	case "down":
		want(map[string]any{"children": r.random.IntN(2), "inTurn": true})
	case "update", "roll":
		want(map[string]any{"level": r.random.IntN(3), "color": "in-turn"})
	case "finalize":
		r.takes(s, func() { r.remove(p.path(), "Background") })
	}
}

// endsOfPauses are what ends the pause of a parent that is held back at once: a child that is being deleted is gone, or changes, another child
// changes, or the parent does.
var endsOfPauses = []string{"gone", "gone", "leaving", "leaving", "child", "owned", "annotated"}

const (
	// always is a number of calls that no history reaches.
	always = 1 << 30
	// atOnce is the time within which the hook is asked about what ends a pause.
	atOnce = 2 * time.Second
	// alternations is how often a hook is asked at most that fails with every other call, and returns something new with the others, and
	// alternationsPerChild how much more often for each child: two calls for each of 60 steps of parents that answer one another, and then about
	// twenty, a second apart, between pauses that double, of which there is time for six.
	alternations, alternationsPerChild = 250, 8
)

// misbehave has the hooks of a controller behave in a way for a time, in which nothing else goes wrong.
func (r *runner) misbehave(call *invariant.Call, how string, d time.Duration) {
	b := &r.behaviors[controllerIndex(call.Controller)]
	b.how, b.left = how, always
	r.touch(hooks.Meta(call.Request.Parent, "uid"))
	r.pass(Step{Millis: d.Milliseconds()})
}

// endPauses has the parents that may be held back still asked about again: a change by somebody else ends that.
func (r *runner) endPauses() {
	r.resumeObjects()
	if !r.provoked || r.engine == none {
		return
	}
	r.behaveAll()
	r.follow()
	for _, call := range r.tracker.LastCalls(r.engine) {
		r.touch(hooks.Meta(call.Request.Parent, "uid"))
	}
	r.provoked = !r.settle()
}

// behaveAll has all hooks behave from now on.
func (r *runner) behaveAll() { r.behaviors = [Controllers]behavior{} }

// calm has hooks behave, ends the pauses of parents and lets all come to rest, and reports whether nothing is denied, missing or held back then.
func (r *runner) calm() bool {
	r.behaveAll()
	r.resumeObjects()
	r.freeWatches(Step{})
	r.faults = faults{}
	return !r.disturbed() && r.settle()
}

// guarded reports whether deletions may be held, so that each sync looks at the children again that it would recreate.
func (r *runner) guarded() bool {
	return slices.ContainsFunc(r.definitions[:], func(d *definition) bool { return d != nil && d.guard != "" })
}

// finalizes reports whether an object is being deleted, so that its hook may be asked again and again whether it is finalized.
func (r *runner) finalizes() bool {
	for kind := range hooks.Kinds {
		for _, o := range r.tracker.Objects(kind) {
			if hooks.Meta(o, "deletionTimestamp") != "" {
				return true
			}
		}
	}
	return false
}

// disturbed reports whether something is denied or missing, so that the engine retries for as long as it is.
func (r *runner) disturbed() bool {
	return len(r.denied) > 0 || len(r.revoked) > 0 || r.engine == none || slices.Contains(r.served, nil)
}

// synced chooses a parent about which a hook was asked: it returns the last call about it, nil if there is none. With ofChild it is one that was
// shown children, of which it returns one, too.
func (r *runner) synced(ofChild bool) (*invariant.Call, map[string]any) {
	calls := r.tracker.LastCalls(r.engine)
	if ofChild {
		calls = slices.DeleteFunc(calls, func(c *invariant.Call) bool { return len(c.Request.Children.All()) == 0 })
	}
	if len(calls) == 0 {
		return nil, nil
	}
	call := calls[r.random.IntN(len(calls))]
	if !ofChild {
		return call, nil
	}
	shown := call.Request.Children.All()
	return call, shown[r.random.IntN(len(shown))]
}

// holdBack has a controller's hooks return something new with each call, so that a parent is held back, and checks that what How says ends that.
func (r *runner) holdBack(s Step) {
	if !r.calm() {
		return
	}
	defer r.behaveAll()
	leaves := s.How == "gone" || s.How == "leaving"
	call, child := r.synced(leaves || s.How == "child")
	if call == nil {
		return
	}
	if leaves {
		at := placeOfObject(child).path()
		r.setHold(at, true)
		r.remove(at, "Background")
	}
	how, uid := "anew", hooks.Meta(call.Request.Parent, "uid")
	if s.Count > 1 && s.How != "leaving" && s.How != "child" {
		how = "anew-children" // Changes of children do not end the pause of a parent whose children differ with each call.
	}
	began := r.world.Now()
	r.misbehave(call, how, s.Time())
	since := r.world.Now()
	if call = r.tracker.LastCall(r.engine, call.Controller, uid); r.check() || call == nil || call.At < began || !r.endPause(s, call, child) {
		return
	}
	r.drew(ofPauses, s.How)
	r.pass(Step{Millis: atOnce.Milliseconds()})
	last := r.tracker.LastCall(r.engine, call.Controller, uid)
	if there := r.tracker.Object(uid); !r.check() && there != nil && last.At < since {
		r.violatedf(invariant.PausesEnd, "the hook of %s was asked about %s at %v last, and at %v something changed that it is shown (%s)",
			call.Controller, placeOfObject(there).path(), last.At, since, s.How)
	}
}

// endPause has happen what ends the pause of a parent about which a hook was asked. It reports whether the hook is shown anything new.
func (r *runner) endPause(s Step, call *invariant.Call, child map[string]any) bool {
	parent := placeOfObject(call.Request.Parent)
	shown := slices.ContainsFunc(call.Request.Children.All(), func(o map[string]any) bool { return hooks.Meta(o, "uid") == hooks.Meta(child, "uid") })
	there := r.tracker.Object(hooks.Meta(child, "uid"))
	d, written := r.definitions[controllerIndex(call.Controller)], len(r.world.API.Journal())
	switch s.How {
	case "gone":
		if shown && there != nil && hooks.Deleting(there) {
			r.stripAt(placeOfObject(there))
		}
	case "leaving", "child":
		if shown && there != nil {
			r.merge(placeOfObject(there).path(), "", metadata(map[string]any{"annotations": map[string]any{"f-note": r.color() + s.How}}))
		}
	case "owned":
		if d != nil && !d.ignore && !invariant.IsChild(call.Request.Parent) {
			namespace := r.get("/api/v1/namespaces/" + hooks.Namespaces[0])
			r.merge(parent.path(), "", metadata(map[string]any{"ownerReferences": []any{map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "name": hooks.Namespaces[0], "uid": hooks.Meta(namespace, "uid"),
			}}}))
		}
	default:
		r.touch(hooks.Meta(call.Request.Parent, "uid"))
	}
	r.follow()
	return len(r.world.API.Journal()) > written
}

// alternate has a controller's hooks fail with every other call, and return something new with the others, and checks that they are asked
// a limited number of times.
func (r *runner) alternate(s Step) {
	if !r.calm() {
		return
	}
	defer r.behaveAll()
	call, _ := r.synced(false)
	if call == nil {
		return
	}
	clear(r.calls)
	r.misbehave(call, "alternate", s.Time())
	r.drew(ofPauses, "alternating")
	for of, times := range r.calls {
		if most := alternations + alternationsPerChild*r.history.Options.Many; times > most && r.result.Violation == nil {
			r.violatedf(invariant.ComesToRest, "hooks were asked %d times (%s) within %v, while they failed with every other call",
				times, of, s.Time())
		}
	}
}
