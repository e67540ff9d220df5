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
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

const (
	// resyncs is the longest period of resyncs (docs/reference/contract.md#s5.3). It is longer than most histories, so that a resync does
	// seldom what an event should have done.
	resyncs = 20 * time.Minute
	// resyncsAfter is that of the engine that starts at the end, whose resyncs follow one another.
	resyncsAfter = 2 * time.Minute
	// margin is how much longer than a period is waited.
	margin = 30 * time.Second
	// longestBackoff is after how long a parent that fails is tried again at the latest (pkg/controller/queue).
	longestBackoff = 5 * time.Minute
)

// end ends all that keeps the cluster from its rest, and checks what must be true at rest.
func (r *runner) end() {
	r.notef("world", "the history ends: faults end, hooks behave, kinds are served")
	for i := range r.behaviors {
		r.behaviors[i].left = 0
	}
	r.start()
	r.freeWatches(Step{})
	r.freeObjects()
	r.resumeAll()
	r.forgive()
	r.endPauses()
	if !r.restoreAll() || !r.settle() || !r.holdsWanted() || !r.confirmAll() || !r.upgraded() || !r.flush() || !r.confirmAll() || !r.atRest() || !r.retried() {
		return
	}
	r.quiet(invariant.ResyncWritesNothing, func() { r.resync(resyncs) })
	r.world.Configure(func(o *reconciler.Options) { o.CacheFlushInterval = resyncsAfter })
	said := r.tracker.Statuses()
	r.quiet(invariant.RestartWritesNothing, func() {
		r.stopEngine(Step{})
		r.start()
	})
	r.quiet(invariant.ResyncWritesNothing, func() {
		r.resync(resyncsAfter)
		// Once more: a resync may be the last one.
		r.resynced = r.world.Now()
		r.resync(resyncsAfter)
	})
	for name, now := range r.tracker.Statuses() {
		if !r.fails() && r.result.Violation == nil && !reflect.DeepEqual(said[name], now) {
			r.violatedf(invariant.RestartWritesNothing, "the status of %s is %v, and was %v before the engine started anew", name, now, said[name])
		}
	}
}

const (
	// askedInVain is how often a hook is asked about a parent at most while everything comes to rest, besides once for each write and revision:
	// retries of what fails follow each other at growing intervals.
	askedInVain = 80
	// writtenAtMost is how often an engine writes an object at most while everything comes to rest.
	writtenAtMost = 40
	// writtenPerChild is how much more often it writes one while children are rolled out, for each of many.
	writtenPerChild = 4
	// readAtMost is how many objects of a kind an engine reads at most while everything comes to rest, besides two for each write of one, and
	// for each that there is.
	readAtMost = 30
	// askedToo is how often a hook is asked about a parent at most, at rest, besides once for each period of resyncs.
	askedToo = 2
)

// beginning is what was done when everything began to come to rest.
type beginning struct {
	at      time.Duration
	asked   map[invariant.Asking]int
	reads   map[string]int
	written int
}

func (r *runner) began() beginning {
	return beginning{r.world.Now(), r.tracker.Asked(), maps.Clone(r.reads), len(r.world.API.Journal())}
}

// bounded checks that while everything came to rest hooks were asked, and objects written and read, a limited number of times.
func (r *runner) bounded(began beginning) {
	writes, objects, kinds := 0, map[string]int{}, map[string]int{}
	for _, w := range r.world.API.Journal()[began.written:] {
		if passing(w) {
			continue
		}
		writes++
		kinds[w.Resource]++
		if _, engine := r.engineOf(w.User); engine {
			if objects[w.UID]++; objects[w.UID] > writtenAtMost+writtenPerChild*r.history.Options.Many {
				r.violatedf(invariant.ComesToRest, "%s %s/%s was written %d times while everything came to rest", w.Resource, w.Namespace, w.Name, objects[w.UID])
			}
		}
	}
	for of, times := range r.tracker.Asked() {
		if times -= began.asked[of]; times > askedInVain+writes*r.tracker.Revisions(of) {
			r.violatedf(invariant.ComesToRest, "the %s hook of %s was asked %d times about %s while everything came to rest with %d writes",
				of.Hook, of.Controller, times, of.Parent, writes)
		}
	}
	for kind, k := range hooks.Kinds {
		written, there := kinds[k.Resource], len(r.tracker.Objects(kind))
		if reads := r.reads[k.Resource] - began.reads[k.Resource]; reads > readAtMost+2*(written+there) && !r.fails() && !r.guarded() {
			r.violatedf(invariant.ReadOnce, "%s were read %d times while everything came to rest with %d writes of them, and there are %d",
				k.Resource, reads, written, there)
		}
	}
}

// resync lets a period of resyncs pass, and checks that hooks are asked no more often than that and the pauses of children say.
func (r *runner) resync(period time.Duration) {
	asked, began := r.tracker.Asked(), r.world.Now()
	r.wait(period + margin)
	passed := r.world.Now() - began // It may be more: what becomes pending at the end comes to rest first.
	for of, times := range r.tracker.Asked() {
		own := min(period, r.tracker.ResyncPeriod(of.Controller, period))
		most := int(passed/own) + askedToo + r.tracker.Looks(r.cluster(), of, passed)
		if times -= asked[of]; times > most && !r.tracker.Failing() && !r.tracker.Flapping(r.cluster()) && !r.tracker.Rolls(of.Controller) {
			r.violatedf(invariant.ResyncAsks, "the %s hook of %s was asked %d times about %s within %v", of.Hook, of.Controller, times, of.Parent, passed)
		}
	}
}

// fails reports whether something cannot be done, which is tried again and again.
func (r *runner) fails() bool { return r.tracker.Failing() || r.tracker.Leaving(r.cluster()) }

// holdsWanted checks that what controllers say they hold is wanted. What is confirmed then is held no more, whether it was wanted or not.
func (r *runner) holdsWanted() bool {
	if r.result.Violation == nil {
		r.result.Violation = r.tracker.Held(r.cluster())
	}
	return r.result.Violation == nil
}

// restoreAll brings all kinds back, in all versions. One that is being removed goes first, which takes until its objects are gone.
func (r *runner) restoreAll() bool {
	for kind := range hooks.Kinds {
		if r.editions[kind].Single {
			r.editions[kind].Single = false
			r.edition(kind)
		}
	}
	for range 3 {
		waiting := false
		for kind := range hooks.Kinds {
			r.restoreKind(Step{Kind: kind})
			waiting = waiting || r.served[kind] == nil
		}
		if !waiting {
			return true
		}
		// What keeps it may be a parent whose hook lagged behind, and said last that it is not finalized.
		if !r.settle() || !r.flush() || !r.confirmAll() {
			return false
		}
	}
	r.violatedf(invariant.ComesToRest, "a kind whose definition was deleted does not go")
	return false
}

// wait lets time pass, and all that becomes pending in it happen.
func (r *runner) wait(d time.Duration) {
	for end := r.world.Now() + d; r.world.Now() < end; {
		if r.world.Idle(end-r.world.Now()) && !r.settle() {
			return
		}
	}
}

// freeObjects takes off the finalizers of strangers.
func (r *runner) freeObjects() {
	r.follow()
	for kind := range hooks.Kinds {
		for _, o := range r.tracker.Objects(kind) {
			if slices.Contains(value.Strings(o, "metadata", "finalizers"), hold) {
				r.setHold(placeOfObject(o).path(), false)
			}
		}
	}
}

// cluster is what the tracker has to know.
func (r *runner) cluster() invariant.Cluster {
	return invariant.Cluster{At: r.world.Now(), Engine: r.engine, Served: r.served, Resynced: r.resynced, Ended: r.step == none, Retried: r.tried}
}

// upgraded checks what changes of kinds have led to.
func (r *runner) upgraded() bool {
	if r.result.Violation == nil {
		r.result.Violation = r.tracker.Upgraded(r.cluster())
	}
	return r.result.Violation == nil
}

// flush has the hooks asked again about the parents whose last response was not that of package hooks.
func (r *runner) flush() bool {
	for range 2 {
		impure := r.tracker.Impure(r.cluster())
		if len(impure) == 0 {
			return true
		}
		for _, uid := range impure {
			r.touch(uid)
		}
		if !r.settle() {
			return false
		}
	}
	return true
}

// retried lets children be tried again that are left as they are, and parents that fail, until that has nothing written any more: nobody tells
// the engine that a right was given back, or that the object of a stranger, whose name a child needs, is gone.
func (r *runner) retried() bool {
	for wrote, rounds := true, 0; rounds < 5 && (r.tracker.Leaving(r.cluster()) || wrote && r.tracker.Failing()); rounds++ {
		before := len(r.world.API.Journal())
		r.wait(longestBackoff + margin)
		if !r.settle() || !r.confirmAll() {
			return false
		}
		wrote = slices.ContainsFunc(r.world.API.Journal()[before:], func(w apiserver.Write) bool { return !passing(w) && !stored(w) })
	}
	r.tried = true
	return r.atRest()
}

func (r *runner) atRest() bool {
	if r.result.Violation == nil {
		r.result.Violation = r.tracker.AtRest(r.cluster())
	}
	return r.result.Violation == nil && r.remembers()
}

// quiet checks that something has nothing written but events and the status of controllers, which a resync does not change either but for
// counts and times, and that everything is as before.
func (r *runner) quiet(name string, something func()) {
	if r.result.Violation != nil {
		return
	}
	before := len(r.world.API.Journal())
	something()
	if !r.settle() {
		return
	}
	for _, w := range r.world.API.Journal()[before:] {
		if !passing(w) && !stored(w) && !r.tidies(w) || name == invariant.ResyncWritesNothing && r.tellsAnew(w) {
			r.violatedf(name, "%s %s %s/%s by %s: %s → %s", w.Verb, w.Resource, w.Namespace, w.Name, w.User, value.Encode(w.Before), value.Encode(w.After))
			return
		}
	}
	r.atRest()
}

// passing reports whether a write is one that says what happens.
func passing(w apiserver.Write) bool {
	switch w.Resource {
	case "events":
		return true
	case "compositecontrollers", "decoratorcontrollers":
		return w.Subresource == "status"
	}
	return false
}

// tellsAnew reports whether a write says something else than was said before, though nothing fails.
func (r *runner) tellsAnew(w apiserver.Write) bool {
	switch {
	case !passing(w) || r.fails():
		return false
	case w.Resource == "events":
		return true
	}
	return !reflect.DeepEqual(invariant.Lasting(w.Before), invariant.Lasting(w.After))
}

// tidies reports whether a write deletes a revision that a killed engine created late. The next sync of its parent does so, for which nobody
// is woken: it refers to no children, and harms nobody meanwhile.
func (r *runner) tidies(w apiserver.Write) bool { return w.Verb == "delete" && r.latecomers[w.UID] }

// stored reports whether a write has changed nothing but the form in which an object is stored: a field is gone that the schema does not
// have any more, which was pruned whenever the object was read.
func stored(w apiserver.Write) bool {
	if w.Before == nil || w.After == nil {
		return false
	}
	before, after := value.Shallow(w.Before), value.Shallow(w.After)
	for _, o := range []value.Object{before, after} {
		meta := value.Shallow(value.Map(o, "metadata"))
		delete(meta, "resourceVersion")
		o["metadata"] = meta
	}
	return value.Equal(before, after)
}

// perParent are the most elements for each parent of the values of the metric of what is remembered.
var perParent = map[string]int{
	"parents": 1, "customize_responses": 1, "own_writes": 1, "synced_parents": 1, "settling": 1, "obstacles": 1, "told": 2, "failing": 3,
	"finalizing": 1, "selectors": 1,
}

// controllers has the metrics of controllers alone: those of the process are slow to read.
var controllers = sync.OnceValue(func() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.Collector())
	return r
})

// remembers checks that controllers remember nothing of parents that are gone, by the metrics of the engine.
func (r *runner) remembers() bool {
	families, err := controllers().Gather()
	if err != nil {
		r.violatedf(invariant.NothingRemembered, "the metrics cannot be read: %v", err)
		return false
	}
	for _, family := range families {
		if family.GetName() != "metacontroller_remembered" {
			continue
		}
		for _, m := range family.GetMetric() {
			if !r.remembersNoMore(m) {
				return false
			}
		}
	}
	return true
}

func (r *runner) remembersNoMore(m *dto.Metric) bool {
	labels := map[string]string{}
	for _, pair := range m.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	_, name, _ := strings.Cut(labels["controller"], "-")
	what, parents := labels["what"], r.tracker.Parents(name)
	if most, checked := perParent[what]; checked && m.GetGauge().GetValue() > float64(most*parents) {
		r.violatedf(invariant.NothingRemembered, "%s remembers %v %s, and has %d parents", name, m.GetGauge().GetValue(), what, parents)
		return false
	}
	return true
}
