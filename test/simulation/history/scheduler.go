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
	"math"
	"slices"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

const (
	// restless is the number of requests and hook calls after which something that does not come to rest counts as endless, and restlessPerObject
	// how many more there may be for each object: a child may be a parent itself, whose children are parents.
	restless, restlessPerObject = 6000, 40
	// patience is how long it may take to come to rest: longer than the longest back-off.
	patience = 40 * time.Minute
	// anything is how long is waited for something to happen when nothing can.
	anything = time.Second
	// heldFor is the number of decisions that an aimed fault waits for its occasion at most.
	heldFor = 60
)

// faults are those that wait for their occasion.
type faults struct {
	// lose, refuse and hang count the requests that are still to be hit, as is how they are refused.
	lose, refuse, hang int
	as                 world.FaultKind
	// failed says that requests fail after they were carried out, in place of being lost.
	failed bool
	// hooks counts the hook calls that are still to be hit, and how is what happens to them.
	hooks int
	how   string
}

var refusals = map[string]world.FaultKind{
	"429": world.TooManyRequests, "500": world.InternalError, "503": world.Unavailable, "409": world.Disconnect,
	"conflict": world.Conflict, "403": world.Forbidden,
}

func writes(p world.Pending) bool {
	return p.Writes() && p.Resource != "events"
}

// ofKind says of what is pending whether it is about an object of a kind that is there, and ofPlace whether it is about a certain one.
func ofKind(kind int) func(world.Pending) bool {
	return func(p world.Pending) bool { return p.Resource == hooks.Kinds[kind].Resource && p.Name != "" }
}

func ofPlace(at place) func(world.Pending) bool {
	return func(p world.Pending) bool {
		return ofKind(at.kind)(p) && p.Namespace == at.namespace && p.Name == at.name
	}
}

// ready returns what may happen next.
func (r *runner) ready() []world.Pending {
	return slices.DeleteFunc(r.world.Pending(), func(p world.Pending) bool {
		return p.Kind == world.Event && r.held[p.Resource] || p.Abandoned && r.late || p.Kind == world.Response && p.Verb == "list" && p.Resource == r.slow
	})
}

// decide lets one thing happen. It returns what that was, false if nothing can happen now.
func (r *runner) decide() (world.Pending, bool) {
	switch r.random.IntN(30) {
	case 0:
		r.world.API.Collect()
	case 1:
		r.world.API.Bookmark()
	}
	ready := r.ready()
	if len(ready) == 0 {
		return world.Pending{}, false
	}
	p := r.choose(ready)
	r.release(p)
	return p, true
}

// release lets something happen, with the fault that waits for it.
func (r *runner) release(p world.Pending) {
	r.deliver(p, r.faultFor(p))
	r.result.Decisions++
}

// deliver lets something happen, and notes which revisions an engine creates with it that is gone.
func (r *runner) deliver(p world.Pending, f world.Fault) {
	before := len(r.world.API.Journal())
	if p.Abandoned {
		r.arriving = p.Engine
	}
	r.world.Release(p, f)
	for _, w := range r.world.API.Journal()[before:] {
		if p.Abandoned && w.Resource == revisions {
			r.latecomers[w.UID] = true
		}
	}
	r.follow()
	r.arriving = none
}

// choose chooses by weights that differ between what is pending, so that one thing often overtakes another.
func (r *runner) choose(ready []world.Pending) world.Pending {
	total, weights := 0.0, make([]float64, len(ready))
	for i, p := range ready {
		class := p.Kind.String() + p.Resource + p.Controller
		if p.Abandoned {
			class = "late"
		}
		weight, ok := r.weights[class]
		if !ok {
			weight = math.Exp(1.5 * r.random.NormFloat64())
			r.weights[class] = weight
		}
		weights[i] = weight
		total += weight
	}
	at := r.random.Float64() * total
	for i, weight := range weights {
		if at -= weight; at < 0 {
			return ready[i]
		}
	}
	return ready[len(ready)-1]
}

func (r *runner) faultFor(p world.Pending) world.Fault {
	switch {
	case r.faults.hooks > 0 && !p.Inline && (p.Kind == world.Call || p.Kind == world.CallResponse):
		return r.hookFault(p)
	case p.Kind != world.Request || p.Abandoned:
	case r.faults.lose > 0 && writes(p):
		r.faults.lose--
		r.took(LoseResponse)
		if r.faults.failed {
			r.notef("fault", "%s is done, and the response says that it failed", p)
			return world.Fault{Kind: world.Fail}
		}
		r.notef("fault", "the response to %s is lost", p)
		return world.Fault{Kind: world.Lose}
	case r.faults.refuse > 0 && r.mayFail(p) && (r.faults.as != world.Conflict || writes(p)):
		r.faults.refuse--
		r.took(Refuse)
		r.notef("fault", "%s is refused", p)
		if p.Resource == "events" {
			r.tracker.Unreported(r.world.Now())
		}
		return world.Fault{Kind: r.faults.as}
	case r.faults.hang > 0 && r.mayFail(p):
		r.faults.hang--
		r.took(Hang)
		r.notef("fault", "%s hangs", p)
		return world.Fault{Kind: world.Hang}
	}
	return world.Fault{}
}

// mayFail reports whether a request may be refused or hang: one for a resource, and one for the schemas that inline hooks are compiled against.
func (r *runner) mayFail(p world.Pending) bool {
	return p.Resource != "" || r.history.Options.Inline != 0 && strings.HasPrefix(p.Name, "/openapi/v3/")
}

// hookFault returns what happens to a hook call or its response.
func (r *runner) hookFault(p world.Pending) world.Fault {
	fault := world.Fault{}
	switch r.faults.how {
	case "hang":
		fault.Kind = world.Hang
	case "lose":
		fault.Kind = world.Lose
	case "slow":
		// Up to half again as long as the engine waits.
		fault.Kind, fault.Duration = world.Delay, time.Duration(r.random.Int64N(int64(15*time.Second)))
	}
	if (p.Kind == world.Call) == (r.faults.how == "slow") {
		return world.Fault{} // A call that comes late would be about a former state.
	}
	r.faults.hooks--
	r.took(FaultyHooks)
	r.notef("fault", "%s: %s", p, fault)
	return fault
}

// decisions makes n decisions, fewer if nothing can happen any more or an invariant is violated.
func (r *runner) decisions(n int, until func(world.Pending) bool) bool {
	for range n {
		p, ok := r.decide()
		if r.check() {
			return false
		}
		if !ok {
			if !r.world.Idle(anything) {
				return false
			}
			continue
		}
		if until != nil && until(p) {
			return true
		}
	}
	return false
}

func (r *runner) runOn(s Step) {
	clear(r.weights)
	r.decisions(s.Count, nil)
}

// pass lets time pass, in which what becomes pending happens.
func (r *runner) pass(s Step) {
	end, requests := r.world.Now()+s.Time(), r.world.Requests()
	for left := s.Time(); left > 0; left = end - r.world.Now() {
		if len(r.ready()) == 0 {
			r.world.Advance(min(left, time.Second))
		} else {
			r.decide()
		}
		if n := r.world.Requests() - requests; r.endless(n) {
			r.violatedf(invariant.ComesToRest, "%d requests and hook calls while %v pass", n, s.Time())
		}
		if r.check() {
			return
		}
	}
	r.notef("time", "%v", s.Time())
}

// endless reports whether so many requests and hook calls count as endless.
func (r *runner) endless(requests int) bool {
	if requests <= restless {
		return false
	}
	o := &r.history.Options
	drawn := o.Many + o.Related*relatedObjects*len(hooks.Namespaces)
	return requests > restless+restlessPerObject*max(drawn, r.world.API.Objects())
}

// arrived counts a request of an engine.
func (r *runner) arrived(p world.Pending) {
	switch {
	case p.DryRun:
		r.dryRuns[p.Resource]++
	case p.Verb == "get" && p.Resource != "" && p.Subresource == "":
		r.reads[p.Resource]++
	}
}

func (r *runner) rest(Step) {
	r.notef("world", "comes to rest")
	r.freeWatches(Step{})
	if len(r.denied) > 0 || len(r.revoked) > 0 {
		r.endure()
		return
	}
	r.forgive()
	r.endPauses()
	if r.settle() && r.restful() {
		if r.result.Violation = r.tracker.AtRest(r.cluster()); r.result.Violation == nil {
			r.upgraded()
		}
	}
}

// restful reports whether nothing keeps the cluster from what must be true at rest, so that it can be checked within the history.
func (r *runner) restful() bool {
	for kind, served := range r.served {
		if served == nil || r.editions[kind].Single {
			return false
		}
	}
	return r.engine != none && r.tracker.AllPure(r.engine) && r.result.Violation == nil
}

// settle lets everything happen until nothing does any more.
func (r *runner) settle() bool {
	r.faults = faults{}
	r.arrive()
	began := r.began()
	if err := r.world.Settle(patience); err != nil {
		r.follow()
		r.violatedf(invariant.ComesToRest, "%v", err)
		return false
	}
	if r.check() {
		return false
	}
	r.bounded(began)
	if d := r.world.Now() - began.at; d > patience && !r.tracker.Failing() && !r.tracker.Leaving(r.cluster()) {
		r.violatedf(invariant.ComesToRest, "the engine is at work for %v, and nothing fails", d)
	}
	return !r.check()
}

// arrive lets everything arrive that engines which were killed have sent.
func (r *runner) arrive() {
	r.late = false
	for _, p := range r.world.Pending() {
		if !p.Abandoned {
			continue
		}
		r.follow()
		r.deliver(p, world.Fault{})
	}
}

func (r *runner) loseResponse(s Step) {
	r.faults.lose, r.faults.failed = s.Count, s.How == "failed"
}

func (r *runner) refuse(s Step) {
	r.faults.refuse, r.faults.as = s.Count, refusals[s.How]
}

func (r *runner) faultyHooks(s Step) {
	r.faults.hooks, r.faults.how = s.Count, s.How
}

func (r *runner) hang(Step) { r.faults.hang = 1 }

// watches calls f with every watch that has an event of a kind.
func (r *runner) watches(kind int, f func(world.Pending)) {
	for _, p := range r.world.Pending() {
		if p.Kind == world.Event && p.Resource == hooks.Kinds[kind].Resource {
			f(p)
			r.happened()
		}
	}
	r.follow()
}

func (r *runner) breakWatch(s Step) {
	r.watches(s.Kind, func(p world.Pending) {
		r.world.Release(p, world.Fault{Kind: world.Break})
		r.notef("fault", "the watch of %s breaks", p.Resource)
	})
}

func (r *runner) expireWatch(s Step) {
	r.watches(s.Kind, func(p world.Pending) {
		r.world.Release(p, world.Fault{Kind: world.Expire})
		r.notef("fault", "the watch of %s expires", p.Resource)
	})
}

func (r *runner) holdWatch(s Step) {
	resource := hooks.Kinds[s.Kind].Resource
	r.held[resource] = true
	r.notef("fault", "events of %s are held back", resource)
	r.happened()
}

func (r *runner) freeWatches(Step) {
	if len(r.held) > 0 {
		clear(r.held)
		r.notef("fault", "events are held back no more")
		r.happened()
	}
}

func (r *runner) staleAfterWrite(s Step) {
	resource := hooks.Kinds[s.Kind].Resource
	if r.decisions(heldFor, func(p world.Pending) bool { return writes(p) && p.Resource == resource }) {
		r.holdWatch(s)
		r.decisions(s.Count, nil)
	}
}

func (r *runner) skipEvents(s Step) {
	r.holdWatch(s)
	r.decisions(s.Count, nil)
	delete(r.held, hooks.Kinds[s.Kind].Resource)
	r.expireWatch(s)
}

func (r *runner) killAfterWrite(s Step) {
	count := 0
	if r.decisions(heldFor, func(p world.Pending) bool {
		if writes(p) {
			count++
		}
		return count == s.Count
	}) {
		r.killEngine(s)
		r.pass(Step{Millis: s.Millis})
		r.start()
	}
}

// refuseWrite waits until the engine is about to write an object of a kind, and refuses that as a conflict, though nothing has changed, so that
// no event tells the engine to try again.
func (r *runner) refuseWrite(s Step) {
	if p, ok := r.aboutToWrite(ofKind(s.Kind)); ok {
		r.notef("fault", "%s is refused as a conflict", p)
		r.world.Release(p, world.Fault{Kind: world.Conflict})
		r.happened()
		r.rest(s)
	}
}

// aboutToWrite lets things happen until the engine is about to write what is looked for. It returns the write, false if that takes too long.
func (r *runner) aboutToWrite(sought func(world.Pending) bool) (world.Pending, bool) {
	for range heldFor {
		for _, p := range r.ready() {
			if writes(p) && p.Subresource == "" && sought(p) {
				return p, true
			}
		}
		if _, ok := r.decide(); r.check() || !ok && !r.world.Idle(anything) {
			break
		}
	}
	return world.Pending{}, false
}

// contestClaim takes a child from its parent, and has somebody else take it when the engine is about to claim it.
func (r *runner) contestClaim(s Step) {
	child := childOf(s)
	if r.get(child.path()) == nil {
		return
	}
	r.orphanAt(child)
	if p, ok := r.aboutToWrite(ofPlace(child)); ok {
		r.stealAt(child)
		r.release(p)
		r.decisions(s.Count, nil)
	}
}

// revisions is the resource of the revisions of composites.
const revisions = "controllerrevisions"

// doubtRevision loses the response to the write of a revision, of which no watch tells for a while either, in which the parent changes again.
func (r *runner) doubtRevision(s Step) {
	parent := placeOf(s.Kind, s.On)
	r.editDefinition(Step{Controller: s.Controller, How: "rolling"})
	r.decisions(s.Count, nil)
	before := r.get(parent.path())
	r.editAt(parent)
	p, ok := r.aboutToWrite(func(p world.Pending) bool { return p.Resource == revisions })
	if !ok || before == nil {
		return
	}
	r.held[revisions] = true
	r.notef("fault", "the response to %s is lost, and events of %s are held back", p, revisions)
	r.deliver(p, world.Fault{Kind: world.Lose})
	r.happened()
	switch s.How {
	case "select":
		r.selectAt(parent)
	case "revert":
		r.change(parent.path(), func(o map[string]any) { o["spec"] = before["spec"] })
	default:
		r.editAt(parent)
	}
	r.decisions(s.Count, nil)
	delete(r.held, revisions)
	r.decisions(s.Count, nil)
}
