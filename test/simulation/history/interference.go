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
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

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
	resource := hooks.Kinds[s.Kind].Resource
	for range heldFor {
		for _, p := range r.ready() {
			if writes(p) && p.Resource == resource && p.Name != "" && p.Subresource == "" {
				r.interceptWrite(s, p)
				return
			}
		}
		if _, ok := r.decide(); r.check() || !ok && !r.world.Idle(anything) {
			return
		}
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
