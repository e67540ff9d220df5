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
	"fmt"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

func (r *runner) editChild(s Step) { r.editChildAt(childOf(s)) }

func (r *runner) editChildAt(p place) {
	r.change(p.path(), func(o map[string]any) {
		switch {
		case r.random.IntN(4) == 0:
			r.editMetadata(field(o, "metadata"))
		case p.kind == hooks.ConfigMap:
			r.editEntries(field(o, "data"), "color", "level", "own-more")
		case p.kind == hooks.Deployment:
			r.editDeployment(field(o, "spec"))
		default:
			r.editSpec(field(o, "spec"))
		}
	})
}

// contestChild has somebody edit a child, by appending to its lists if it has some, while its parent comes to want something else.
func (r *runner) contestChild(s Step) {
	before := r.random.IntN(3) > 0
	if before {
		r.editObject(s)
	}
	r.contestAt(childOf(s))
	if !before {
		r.editObject(s)
		return
	}
	// The controller sees its parent first, and meets the other edit when it writes the child.
	kind := Step{Kind: childOf(s).kind}
	r.holdWatch(kind)
	r.decisions(contested, nil)
	delete(r.held, hooks.Kinds[kind.Kind].Resource)
}

// contestAt edits a child, by appending to its lists if it has some.
func (r *runner) contestAt(p place) {
	if p.kind != hooks.Gadget {
		r.editChildAt(p)
		return
	}
	r.change(p.path(), func(o map[string]any) { r.lengthen(field(o, "spec")) })
}

// contested is the number of decisions for which a contested child is not seen.
const contested = 6

// lengthen appends to the lists of a Gadget.
func (r *runner) lengthen(spec map[string]any) {
	for name, item := range map[string]any{
		"tags": "foreign", "tolerations": "foreign", "ports": map[string]any{"name": fmt.Sprintf("f-%d", r.random.IntN(1000)), "port": int64(1)},
	} {
		if list, ok := spec[name].([]any); ok {
			spec[name] = append(list, item)
		}
	}
}

// editMetadata changes a label or an annotation.
func (r *runner) editMetadata(meta map[string]any) {
	switch r.random.IntN(4) {
	case 0:
		field(meta, "labels")["f-label"] = r.color()
	case 1:
		field(meta, "annotations")["f-note"] = r.color()
	case 2:
		if labels := field(meta, "labels"); labels["own-color"] != nil {
			labels["own-color"] = "foreign"
		}
	case 3:
		delete(field(meta, "annotations"), "own-level")
	}
}

// editEntries changes, removes or adds an entry of a map. It changes only what is there, and adds only what is a stranger's.
func (r *runner) editEntries(m map[string]any, names ...string) {
	name := names[r.random.IntN(len(names))]
	switch r.random.IntN(3) {
	case 0:
		m["f-"+name] = r.color()
	case 1:
		delete(m, name)
	case 2:
		if m[name] != nil {
			m[name] = "foreign"
		}
	}
}

// editSpec changes the spec of a Gadget somewhere.
func (r *runner) editSpec(spec map[string]any) {
	ports, _ := spec["ports"].([]any)   // Absent: none.
	stages, _ := spec["stages"].([]any) // Likewise.
	switch r.random.IntN(12) {
	case 0:
		spec["color"] = "foreign"
	case 1:
		r.editEntries(field(spec, "settings"), "own-color", "own-more")
	case 2:
		spec["ports"] = append(ports, map[string]any{"name": fmt.Sprintf("f-%d", r.random.IntN(1000)), "port": int64(1)})
	case 3:
		if len(ports) > 0 {
			spec["ports"] = ports[1:]
		}
	case 4:
		if len(ports) > 0 {
			field(map[string]any{"": ports[0]}, "")["port"] = int64(1)
		}
	case 5:
		if len(ports) > 0 {
			field(map[string]any{"": ports[0]}, "")["comment"] = r.color()
		}
	case 6:
		spec["tags"] = []any{"foreign"}
	case 7:
		if spec["parts"] != nil {
			spec["parts"] = []any{map[string]any{"id": int64(7)}}
		}
	case 8:
		spec["foreign"], spec["mode"] = r.color(), r.color()
	case 9:
		r.editEntries(field(spec, "matching"), "own-color", "own-more")
	case 10:
		spec["stages"] = append(stages, map[string]any{"name": fmt.Sprintf("f-%d", r.random.IntN(1000))})
	case 11:
		if len(stages) > 0 {
			spec["stages"] = stages[1:]
		}
	}
}

// podTemplate returns the spec of a Deployment with a spec of its Pods.
func podTemplate(spec map[string]any) map[string]any {
	return map[string]any{"template": map[string]any{"spec": spec}}
}

// editDeployment changes the spec of a Deployment somewhere.
func (r *runner) editDeployment(spec map[string]any) {
	template := field(spec, "template")
	pods := field(template, "spec")
	containers, _ := pods["containers"].([]any) // A Deployment has one at least.
	if len(containers) == 0 {
		return
	}
	chosen := field(map[string]any{"": containers[r.random.IntN(len(containers))]}, "")
	env, _ := chosen["env"].([]any) // Absent: none.
	switch r.random.IntN(7) {
	case 0:
		chosen["image"] = "foreign:1"
	case 1:
		pods["containers"] = append(containers, map[string]any{"name": fmt.Sprintf("f-%d", r.random.IntN(1000)), "image": "f:1"})
	case 2:
		chosen["env"] = append(env, map[string]any{"name": fmt.Sprintf("f-%d", r.random.IntN(1000)), "value": r.color()})
	case 3:
		if len(env) > 0 {
			field(map[string]any{"": env[0]}, "")["value"] = "foreign"
		}
	case 4:
		spec["replicas"] = int64(5)
	case 5:
		if len(containers) > 1 {
			pods["containers"] = containers[1:]
		}
	case 6:
		field(field(template, "metadata"), "annotations")["f-restarted"] = r.color()
	}
}

// rollOut writes the status of Deployments as their controller does, whose Pods may be available or not.
func (r *runner) rollOut(s Step) {
	r.follow()
	for _, o := range r.tracker.Objects(hooks.Deployment) {
		r.report(o, s.How == "done" || s.How == "some" && r.random.IntN(2) == 0)
	}
}

// report writes the status of a Deployment, and the annotation with its revision.
func (r *runner) report(deployment map[string]any, done bool) {
	path := placeOfObject(deployment).path()
	generation := fmt.Sprint(field(deployment, "metadata")["generation"])
	r.merge(path, "", metadata(map[string]any{"annotations": map[string]any{"deployment.kubernetes.io/revision": generation}}))
	r.merge(path, "status", map[string]any{"status": hooks.Rollout(deployment, done)})
}

// collect has the controller of Deployments finish what has begun, one Deployment with each call. It returns false if it has nothing to do.
func (r *runner) collect() bool {
	if !r.history.Options.Workloads {
		return false
	}
	r.follow()
	for _, o := range r.tracker.Objects(hooks.Deployment) {
		if !hooks.RolledOut(o) && !hooks.Deleting(o) {
			r.report(o, true)
			return true
		}
	}
	return false
}

// applyChild applies fields with server-side apply.
func (r *runner) applyChild(s Step) {
	p := childOf(s)
	if r.get(p.path()) == nil {
		return
	}
	k := hooks.Kinds[p.kind]
	o := map[string]any{
		"apiVersion": k.APIVersion(k.Versions[0]), "kind": k.Name,
		"metadata": map[string]any{"name": p.name, "namespace": p.namespace, "labels": map[string]any{"f-applied": r.color()}},
	}
	switch p.kind {
	case hooks.ConfigMap:
		o["data"] = map[string]any{"f-applied": r.color()}
	case hooks.Deployment:
		env := []any{map[string]any{"name": "f-applied", "value": r.color()}}
		o["spec"] = podTemplate(map[string]any{"containers": []any{map[string]any{"name": "own-main", "env": env}}})
	default:
		o["spec"] = map[string]any{"foreign": r.color(), "settings": map[string]any{"f-applied": r.color()}}
	}
	r.apply(p, "kubectl", o)
}

func (r *runner) relabelChild(s Step) {
	var value any
	switch s.How {
	case "other":
		value = "other"
	case "parent":
		value = placeOf(s.Kind, s.On).name
	}
	r.merge(childOf(s).path(), "", metadata(map[string]any{"labels": map[string]any{"app": value}}))
}

func (r *runner) orphanChild(s Step) { r.orphanAt(childOf(s)) }

func (r *runner) orphanAt(p place) {
	r.merge(p.path(), "", metadata(map[string]any{"ownerReferences": nil}))
}

// stealChild makes somebody else the controlling owner.
func (r *runner) stealChild(s Step) { r.stealAt(childOf(s)) }

func (r *runner) stealAt(p place) {
	r.merge(p.path(), "", metadata(map[string]any{"ownerReferences": []any{r.somebodyElse(p)}}))
}

// somebodyElse returns a reference to a controller that is none of the history's.
func (r *runner) somebodyElse(p place) map[string]any {
	namespace := r.get("/api/v1/namespaces/" + p.namespace)
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": p.namespace, "uid": hooks.Meta(namespace, "uid"), "controller": true}
}

func (r *runner) deleteChild(s Step) { r.remove(childOf(s).path(), s.How) }

func (r *runner) replaceChild(s Step) { r.replaceAt(childOf(s), s.How, placeOf(s.Kind, s.On).name) }

// replaceAt deletes an object, if it is there, and has a stranger take its name.
func (r *runner) replaceAt(p place, how, app string) {
	if r.get(p.path()) != nil {
		r.remove(p.path(), "Background")
		r.strangerAt(p, how, app)
	}
}

func (r *runner) childStatus(s Step) {
	if p := childOf(s); p.kind == hooks.Gadget {
		r.merge(p.path(), "status", map[string]any{"status": map[string]any{"phase": r.color(), "f-seen": r.color()}})
	}
}

// stranger creates an object where a child may be wanted, at rest if there is a Count, where nothing else has a parent synced.
func (r *runner) stranger(s Step) {
	if s.Count > 0 {
		r.rest(s)
		defer r.rest(s)
	}
	r.strangerAt(childOf(s), s.How, placeOf(s.Kind, s.On).name)
}

// strangerAt creates an object; app is the label of one that matches.
func (r *runner) strangerAt(p place, how, app string) {
	o := metadata(map[string]any{})
	switch how {
	case "matching":
		field(o, "metadata")["labels"] = map[string]any{"app": app}
	case "controlled":
		field(o, "metadata")["ownerReferences"] = []any{r.somebodyElse(p)}
	}
	switch p.kind {
	case hooks.ConfigMap:
		o["data"] = map[string]any{"f-stranger": r.color()}
	case hooks.Deployment:
		spec := podTemplate(map[string]any{"containers": []any{map[string]any{"name": "f-stranger", "image": r.color()}}})
		// As that of a child: no update could change it.
		spec["selector"] = map[string]any{"matchLabels": map[string]any{"deployment": p.name}}
		field(field(spec, "template"), "metadata")["labels"] = map[string]any{"deployment": p.name}
		o["spec"] = spec
	default:
		o["spec"] = map[string]any{"foreign": r.color()}
	}
	r.create(p, o)
}

// interferences are what somebody may do to an object while the engine is about to write it, or does not see it.
var interferences = []string{
	"edit", "contest", "relabel", "orphan", "steal", "steal", "delete", "replace-plain", "replace-matching", "replace-controlled", "hold", "strip",
}

// interfere does something to an object, which belongs to a parent of the name app if it is a child.
func (r *runner) interfere(p place, how, app string) {
	parent := p.kind == hooks.Thing || p.kind == hooks.Realm
	replaced, stranger := strings.CutPrefix(how, "replace-")
	switch {
	case how == "hold":
		r.setHold(p.path(), true)
	case how == "strip":
		r.stripAt(p)
	case how == "delete":
		r.remove(p.path(), "Background")
	case parent && stranger:
		r.remove(p.path(), "Background")
		r.createAt(p)
	case parent && how == "relabel":
		r.selectAt(p)
	case parent:
		r.editAt(p)
	case stranger:
		r.replaceAt(p, replaced, app)
	case how == "relabel":
		r.merge(p.path(), "", metadata(map[string]any{"labels": map[string]any{"app": "other"}}))
	case how == "orphan":
		r.orphanAt(p)
	case how == "steal":
		r.stealAt(p)
	case how == "contest":
		r.contestAt(p)
	default:
		r.editChildAt(p)
	}
}

// appOf returns the name of the parent in the name of a child.
func appOf(p place) string {
	app, _, _ := strings.Cut(p.name, "-")
	return app
}

// intercept waits until the engine is about to write an object of a kind, and has somebody do something to that object first.
func (r *runner) intercept(s Step) {
	if p, ok := r.aboutToWrite(ofKind(s.Kind)); ok {
		r.interceptWrite(s, p)
	}
}

func (r *runner) interceptWrite(s Step, p world.Pending) {
	at := place{s.Kind, p.Namespace, p.Name}
	r.notef("fault", "%s %s meanwhile", p, s.How)
	r.interfere(at, s.How, appOf(at))
	if r.random.IntN(2) == 0 {
		// The write is done before the engine can learn of it.
		r.release(p)
	}
	r.decisions(s.Count, nil)
}

// undermine has somebody do something to a child that the engine does not see, while its parent comes to want something else.
func (r *runner) undermine(s Step) {
	child := childOf(s)
	kind := Step{Kind: child.kind}
	r.holdWatch(kind)
	r.interfere(child, s.How, placeOf(s.Kind, s.On).name)
	switch parent := placeOf(s.Kind, s.On); r.random.IntN(6) {
	case 0:
		r.remove(parent.path(), "Background")
	case 1, 2:
		r.merge(parent.path(), "", map[string]any{"spec": map[string]any{"children": r.random.IntN(2)}})
	default:
		r.editAt(parent)
	}
	r.decisions(s.Count, nil)
	delete(r.held, hooks.Kinds[child.kind].Resource)
	if r.random.IntN(3) == 0 {
		r.expireWatch(kind)
	}
}

// slowList has the engine write a child while a list from before the write is on its way.
func (r *runner) slowList(s Step) {
	child, parent := childOf(s), placeOf(s.Kind, s.On)
	kind, resource := Step{Kind: child.kind}, hooks.Kinds[child.kind].Resource
	missed := s
	missed.Count = 0
	r.miss(missed)
	if !r.decisions(heldFor, func(p world.Pending) bool {
		return p.Kind == world.Request && p.Verb == "list" && p.Resource == resource
	}) {
		return
	}
	r.slow = resource
	r.editAt(parent)
	written := r.decisions(heldFor, func(p world.Pending) bool {
		return p.Kind == world.Response && p.Verb != "list" && p.Resource == resource
	})
	r.slow = ""
	if written {
		r.holdWatch(kind)
		r.editAt(parent)
		r.decisions(s.Count, nil)
		delete(r.held, resource)
	}
}

// thinOut has a child be wanted for the latest revision that the hook does not want any more for the one that the child is on.
func (r *runner) thinOut(s Step) {
	parent, child := placeOf(s.Kind, s.On), childOf(s)
	want := func(ordered bool) {
		r.merge(parent.path(), "", map[string]any{"spec": map[string]any{"children": 2, "ordered": ordered, "color": r.color()}})
	}
	r.editDefinition(Step{Controller: s.Controller, How: "rolling"})
	want(true)
	r.decisions(heldFor, nil)
	kinds := []int{hooks.Gadget, hooks.ConfigMap}
	for _, kind := range kinds {
		r.holdWatch(Step{Kind: kind})
	}
	for i := range childrenOfParents {
		s.Child = i
		if p := childOf(s); p != child {
			r.remove(p.path(), "Background")
		}
	}
	want(false)
	edited := hooks.Kinds[s.Kind].Resource
	if !r.decisions(heldFor, func(p world.Pending) bool { return p.Kind == world.Event && p.Resource == edited }) {
		return
	}
	for _, kind := range kinds {
		r.watches(kind, func(p world.Pending) { r.world.Release(p, world.Fault{Kind: world.Burst, Events: childrenOfParents}) })
	}
	r.freeWatches(Step{})
	r.decisions(s.Count, nil)
}

// miss has something happen to a child that no watch shows: the next list has what became of it.
func (r *runner) miss(s Step) {
	child := childOf(s)
	kind := Step{Kind: child.kind}
	r.holdWatch(kind)
	r.interfere(child, s.How, placeOf(s.Kind, s.On).name)
	r.decisions(s.Count, nil)
	delete(r.held, hooks.Kinds[child.kind].Resource)
	r.expireWatch(kind)
}
