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
	"net/http"
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

const (
	ownGroup   = "/apis/metacontroller.k8s.io/v1alpha1/"
	crdsOfKind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

func (r *runner) define(s Step) {
	d := define(s.Controller, r.history.Options, r.random)
	_, resource := d.kind()
	if r.post(ownGroup+resource, d.object()).Code == http.StatusCreated {
		r.definitions[s.Controller] = d
	}
}

func (r *runner) editDefinition(s Step) {
	d := r.definitions[s.Controller]
	if d == nil {
		return
	}
	edited := d.clone()
	edited.edit(s.How, r.random)
	_, resource := d.kind()
	if r.change(ownGroup+resource+"/"+controllerName(s.Controller), func(o map[string]any) { o["spec"] = edited.object()["spec"] }) {
		r.definitions[s.Controller] = edited
	}
}

// editPaused changes a controller that is paused, so that what it had put on its parents is to be taken off later.
func (r *runner) editPaused(s Step) {
	for _, how := range []string{"pause", s.How} {
		r.editDefinition(Step{Controller: s.Controller, How: how})
		r.decisions(s.Count, nil)
	}
}

func (r *runner) deleteDefinition(s Step) {
	if d := r.definitions[s.Controller]; d != nil {
		_, resource := d.kind()
		r.remove(ownGroup+resource+"/"+controllerName(s.Controller), "")
	}
}

func crdPath(kind int) string {
	return crdsOfKind + "/" + hooks.Kinds[kind].Resource + "." + hooks.Group
}

// serve creates the definition of a custom kind in its present edition.
func (r *runner) serve(kind int) {
	edition := r.editions[kind]
	if definition := hooks.CustomResourceDefinition(kind, edition); definition != nil {
		if r.post(crdsOfKind, definition).Code != http.StatusCreated {
			return
		}
	}
	r.served[kind] = &edition
}

func (r *runner) upgradeKind(s Step) {
	if r.served[s.Kind] == nil {
		return
	}
	e := &r.editions[s.Kind]
	switch r.random.IntN(4) {
	case 0, 1:
		e.Extra = !e.Extra
	case 2:
		e.Graded = !e.Graded
	case 3:
		e.Single = !e.Single && s.Kind == hooks.Gadget
	}
	r.edition(s.Kind)
}

// withdrawVersion has the second version of Gadgets not served for a while, in which a Gadget changes that nobody sees in that version.
func (r *runner) withdrawVersion(s Step) {
	if r.served[hooks.Gadget] == nil {
		return
	}
	r.editions[hooks.Gadget].Single = true
	r.edition(hooks.Gadget)
	r.pass(s)
	r.editAt(placeOf(hooks.Gadget, s.On))
	r.decisions(s.Count, nil)
	r.editions[hooks.Gadget].Single = false
	r.edition(hooks.Gadget)
}

// edition changes the definition of a kind, if there is one, to the present edition.
func (r *runner) edition(kind int) {
	edition := r.editions[kind]
	if r.served[kind] != nil {
		r.served[kind] = &edition
	}
	r.change(crdPath(kind), func(o map[string]any) { o["spec"] = hooks.CustomResourceDefinition(kind, edition)["spec"] })
}

func (r *runner) removeKind(s Step) {
	if r.served[s.Kind] != nil {
		r.remove(crdPath(s.Kind), "")
		r.served[s.Kind] = nil
	}
}

func (r *runner) restoreKind(s Step) {
	if r.served[s.Kind] == nil {
		r.serve(s.Kind)
	}
}

// takeField has the definition of Gadgets lose a field that children have, and get it back, while a controller changes as How says.
func (r *runner) takeField(s Step) {
	if r.served[hooks.Gadget] == nil {
		return
	}
	declared := func(on bool) {
		r.editions[hooks.Gadget].Extra = on
		r.edition(hooks.Gadget)
	}
	parent := placeOf(s.Kind, s.On)
	declared(true)
	r.reshape(parent, func(shape int64) int64 { return shape | hooks.WithExtra })
	r.decisions(heldFor, nil)
	declared(false)
	r.pass(s)
	r.editDefinition(Step{Controller: s.Controller, How: s.How})
	r.decisions(s.Count, nil)
	declared(true)
	// The engine learns of the definition before its informer does.
	r.slow = hooks.Kinds[hooks.Gadget].Resource
	r.holdWatch(Step{Kind: hooks.Gadget})
	r.merge(parent.path(), "", metadata(map[string]any{"annotations": map[string]any{"note": s.How}}))
	r.decisions(s.Count, nil)
	r.slow = ""
	delete(r.held, hooks.Kinds[hooks.Gadget].Resource)
	r.decisions(s.Count, nil)
}

// reselect has the engine come to know of what an object wants of Deployments, which no update can change, by its start.
func (r *runner) reselect(s Step) {
	if s.Count > 0 {
		r.editDefinition(Step{Controller: s.Controller, How: "replacing"})
		r.decisions(s.Count, nil)
	}
	r.killEngine(s)
	r.reshape(placeOf(s.Kind, s.On), func(shape int64) int64 { return shape ^ hooks.WithProtocol })
	r.startEngine(s)
}

// reshape changes the shape that an object wants.
func (r *runner) reshape(p place, change func(int64) int64) {
	r.change(p.path(), func(o map[string]any) {
		if spec, ok := o["spec"].(map[string]any); ok {
			spec["shape"] = change(hooks.WishOf(o).Shape)
		}
	})
}

func (r *runner) start() {
	if r.engine == none {
		r.follow()
		r.tracker.Starts(r.world.Now())
		r.engine = r.world.Start()
		r.happened()
	}
}

func (r *runner) startEngine(Step) { r.start() }

func (r *runner) killEngine(Step) {
	if r.engine != none {
		r.world.Kill(r.engine)
		r.engine = none
		r.notef("world", "the engine is killed")
		r.happened()
	}
}

// killLate kills the engine when a write of it is under way, which arrives when the next engine has begun to work.
func (r *runner) killLate(s Step) {
	underWay := func() bool {
		return slices.ContainsFunc(r.ready(), func(p world.Pending) bool { return writes(p) && p.Engine == r.engine })
	}
	for n := 0; r.engine != none && !underWay() && n < heldFor; n++ {
		if _, ok := r.decide(); r.check() || !ok && !r.world.Idle(anything) {
			return
		}
	}
	if r.engine == none || !underWay() {
		return
	}
	r.world.KillLate(r.engine)
	r.engine, r.late = none, true
	r.notef("world", "the engine is killed, and what it writes last arrives late")
	r.happened()
	r.pass(Step{Millis: s.Millis})
	r.start()
	r.decisions(s.Count, nil)
	r.late = false
}

func (r *runner) stopEngine(Step) {
	if r.engine == none {
		return
	}
	if err := r.world.Stop(r.engine); err != nil {
		r.violatedf(invariant.EverythingEnds, "%v", err)
	}
	r.follow()
	r.engine = none
	r.notef("world", "the engine is stopped")
	r.happened()
}

func (r *runner) behave(s Step) {
	b := &r.behaviors[s.Controller]
	b.how, b.left = s.How, s.Count
	r.notef("hook", "%s: %s for %d calls", controllerName(s.Controller), s.How, s.Count)
}

// touch changes an annotation of the object with a UID, so that its hooks are asked again.
func (r *runner) touch(uid string) {
	if o := r.tracker.Object(uid); o != nil {
		r.merge(placeOfObject(o).path(), "", metadata(map[string]any{"annotations": map[string]any{"touched": r.world.Now().String()}}))
	}
}

// resumeAll ends the pauses of all controllers.
func (r *runner) resumeAll() {
	for i, d := range r.definitions {
		if d != nil && d.paused {
			r.editDefinition(Step{Controller: i, How: "resume"})
		}
	}
}

// confirmDeletions confirms what a controller holds, with the annotation that its condition names.
func (r *runner) confirmDeletions(s Step) {
	r.follow()
	d := r.definitions[s.Controller]
	confirmation := r.tracker.Confirmation(controllerName(s.Controller))
	if d == nil || confirmation == "" {
		return
	}
	_, resource := d.kind()
	r.merge(ownGroup+resource+"/"+controllerName(s.Controller), "",
		metadata(map[string]any{"annotations": map[string]any{invariant.ConfirmDeletions: confirmation}}))
}

// relent has the parents of a controller want children again, if it holds deletions.
func (r *runner) relent(s Step) {
	r.follow()
	if d := r.definitions[s.Controller]; d != nil && r.tracker.Confirmation(controllerName(s.Controller)) != "" {
		for _, rule := range d.parents {
			for _, o := range r.tracker.Objects(rule.kind) {
				if rule.kind == hooks.Thing || rule.kind == hooks.Realm {
					r.merge(placeOfObject(o).path(), "", map[string]any{"spec": map[string]any{"children": 2}})
				}
			}
		}
	}
}

// confirmAll confirms what is held until nothing is, which ends: a confirmation is one of all that is wanted within ten minutes.
func (r *runner) confirmAll() bool {
	for range Controllers * len(hooks.Kinds) {
		held := false
		for i := range r.definitions {
			if r.tracker.Confirmation(controllerName(i)) != "" {
				held = true
				r.confirmDeletions(Step{Controller: i})
			}
		}
		if !held {
			return true
		}
		if !r.settle() {
			return false
		}
	}
	r.violatedf(invariant.DeletionsGuarded, "deletions are held though they were confirmed again and again")
	return false
}

const (
	// endured is how long a controller has for an edit while writes are denied.
	endured = 3 * time.Minute
	// told is how long a controller has to say that a write is refused.
	told = time.Minute
	// forgiven is the time after which the engine has tried again what was denied: longer than the longest back-off.
	forgiven = 6 * time.Minute
)

func (r *runner) denyWrites(s Step) {
	p := placeOf(s.Kind, s.On)
	r.denied[p], r.denials = true, true
	r.notef("admin", "a webhook denies the engine's writes of %s", p.path())
}

func (r *runner) allowWrites(s Step) {
	if p := placeOf(s.Kind, s.On); r.denied[p] {
		delete(r.denied, p)
		r.notef("admin", "writes of %s are denied no more", p.path())
		r.happened()
	}
}

// denies reports whether a write is one that a webhook denies.
func (r *runner) denies(a apiserver.Admission) bool {
	if a.User != world.ClusterUser || a.Operation != "UPDATE" || a.Subresource != "" {
		return false
	}
	p := place{hooks.ByResource(a.Group, a.Resource), a.Namespace, a.Name}
	if p.kind < 0 || !r.denied[p] {
		return false
	}
	r.took(DenyWrites)
	// A write of what is there no more in that state is a conflict once it is allowed, and may be that of a sync whose parent has left.
	outdated := a.Old != nil && hooks.Meta(a.Object, "resourceVersion") != hooks.Meta(a.Old, "resourceVersion")
	if _, before := r.refused[p]; !before && !outdated {
		r.refused[p] = r.world.Now()
	}
	return true
}

// inject has a webhook put something into children of a kind from now on, or do so no more.
func (r *runner) inject(s Step) {
	r.injecting[s.Kind] = !r.injecting[s.Kind]
	r.notef("admin", "a webhook puts a label into children, of %s: %v", hooks.Kinds[s.Kind].Resource, r.injecting[s.Kind])
}

// injected returns the JSON of a child that an engine writes, with what a webhook puts into it; nil if it leaves it as it is.
func (r *runner) injected(a apiserver.Admission) []byte {
	written := a.Old
	if a.Operation == "CREATE" {
		written = a.Object
	}
	kind := hooks.ByResource(a.Group, a.Resource)
	if kind < 0 || !r.injecting[kind] || a.User != world.ClusterUser || a.Object == nil || a.Subresource != "" || !invariant.IsChild(written) {
		return nil
	}
	r.took(Inject)
	o := value.Shallow(a.Object)
	meta := value.Shallow(value.Map(o, "metadata"))
	labels := value.Shallow(value.Map(o, "metadata", "labels"))
	labels["injected"] = "yes"
	meta["labels"], o["metadata"] = labels, meta
	if kind == hooks.ConfigMap {
		data := value.Shallow(value.Map(o, "data"))
		data["injected"] = "yes"
		o["data"] = data
	}
	return value.Encode(o)
}

// right is a verb of a kind.
type right struct {
	kind int
	verb string
}

// verbs are the rights that engines lose.
var verbs = []string{"create", "patch", "update", "delete", "get", "list", "watch"}

func (r *runner) revoke(s Step) {
	r.revoked[right{s.Kind, s.How}], r.denials = true, true
	r.notef("admin", "the engine may not %s %s any more", s.How, hooks.Kinds[s.Kind].Resource)
}

func (r *runner) grant(Step) {
	if len(r.revoked) > 0 {
		clear(r.revoked)
		r.notef("admin", "the engine may do everything again")
		r.happened()
	}
}

// authorize reports whether a user may do something.
func (r *runner) authorize(a apiserver.Attributes) bool {
	if a.User != world.ClusterUser || !r.revoked[right{hooks.ByResource(a.Group, a.Resource), a.Verb}] {
		return true
	}
	r.took(Revoke)
	return false
}

// endure lets everything happen for a while, in which what is denied is tried again and again, and checks that edits of controllers have
// an effect all the same, and that somebody says what is denied.
func (r *runner) endure() {
	r.faults = faults{}
	clear(r.refused)
	r.pass(Step{Millis: endured.Milliseconds()})
	if r.check() || r.engine == none {
		return
	}
	r.result.Violation = r.tracker.EditsSeen(r.world.Now())
	for _, p := range slices.SortedFunc(maps.Keys(r.refused), place.compare) {
		if since := r.refused[p]; r.result.Violation == nil && r.world.Now()-since > told {
			r.result.Violation = r.tracker.ErrorTold(r.world.Now(), since, p.kind, p.namespace, p.name)
		}
	}
}

// forgive ends denials, gives rights back, and waits until the engine tries again.
func (r *runner) forgive() {
	if r.denials {
		clear(r.denied)
		clear(r.revoked)
		r.wait(forgiven)
		r.denials = false
	}
}
