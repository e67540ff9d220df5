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
	"math/rand/v2"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// Length is the number of steps of a generated history, at least.
const Length = 100

// parentsOf is how many objects of each kind users create.
var parentsOf = []int{hooks.Thing: 3, hooks.Realm: 2, hooks.Gadget: 2, hooks.ConfigMap: 2}

// relatedObjects is the number of related objects in each namespace.
const relatedObjects = 4

// generator makes the steps of one history.
type generator struct {
	*rand.Rand

	options Options
	steps   []Step
	// weights are how often each choice is made in this history.
	weights []float64
	total   float64
	choices []choice
}

// choice is a kind of step with the weight that it has on average.
type choice struct {
	weight float64
	make   func(*generator) Step
}

// Generate makes a history from a seed. Each seed draws weights of its own, so that different seeds stress different pairs.
func Generate(seed uint64) History {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x51e4)), choices: choices()}
	g.options = Options{Chain: g.IntN(4) == 0, ServerSide: g.IntN(4) == 0, Patient: g.IntN(8) == 0}
	for _, c := range g.choices {
		// Log-normal: most choices have about their weight, a few of each seed much more or next to none.
		w := c.weight * math.Exp(1.2*g.NormFloat64())
		g.weights = append(g.weights, w)
		g.total += w
	}
	g.preamble()
	for len(g.steps) < Length+g.IntN(20) {
		g.add(g.choose())
		for g.IntN(3) == 0 {
			// Steps without a decision between them are a coincidence.
			g.add(g.choose())
		}
		g.schedule()
	}
	return History{Seed: seed, Options: g.options, Steps: g.steps}
}

func (g *generator) add(s Step) {
	s.Seed = g.Uint32()
	g.steps = append(g.steps, s)
}

func (g *generator) preamble() {
	for _, i := range g.Perm(Controllers)[:1+g.IntN(Controllers)] {
		g.add(Step{Do: Define, Controller: i})
	}
	for range 2 + g.IntN(3) {
		g.add(g.object(Step{Do: CreateObject}))
	}
	if g.IntN(2) == 0 {
		g.add(Step{Do: Rest})
	}
}

// schedule lets the engine work for a while.
func (g *generator) schedule() {
	switch n := g.IntN(20); {
	case n < 12:
		g.add(Step{Do: RunOn, Count: 1 + int(g.ExpFloat64()*12)})
	case n < 15:
		g.add(Step{Do: Pass, Millis: int64(math.Exp(g.Float64() * 11))})
	case n < 16:
		g.add(Step{Do: Rest})
	}
}

func (g *generator) choose() Step {
	at := g.Float64() * g.total
	for i, w := range g.weights {
		if at -= w; at < 0 {
			return g.choices[i].make(g)
		}
	}
	return g.choices[len(g.choices)-1].make(g)
}

// object completes a step with an object.
func (g *generator) object(s Step) Step {
	s.Kind = []int{hooks.Thing, hooks.Thing, hooks.Thing, hooks.Realm, hooks.Gadget, hooks.ConfigMap}[g.IntN(6)]
	if s.Kind == hooks.Realm && g.options.Chain {
		s.Kind = hooks.Gadget
	}
	s.On = g.IntN(parentsOf[s.Kind])
	return s
}

// child completes a step with a child of an object.
func (g *generator) child(s Step) Step {
	s = g.object(s)
	s.Controller = g.IntN(Controllers)
	if g.IntN(2) == 0 { // The controller that has most children.
		s.Kind, s.On, s.Controller = hooks.Thing, g.IntN(parentsOf[hooks.Thing]), 0
	}
	s.Child = g.IntN(4)
	return s
}

func on(a Action, hows ...string) func(*generator) Step {
	return func(g *generator) Step {
		s := g.object(Step{Do: a})
		if len(hows) > 0 {
			s.How = hows[g.IntN(len(hows))]
		}
		return s
	}
}

func onChild(a Action, hows ...string) func(*generator) Step {
	return func(g *generator) Step {
		s := g.child(Step{Do: a})
		if len(hows) > 0 {
			s.How = hows[g.IntN(len(hows))]
		}
		return s
	}
}

func onController(a Action, hows ...string) func(*generator) Step {
	return func(g *generator) Step {
		s := Step{Do: a, Controller: g.IntN(Controllers)}
		if len(hows) > 0 {
			s.How = hows[g.IntN(len(hows))]
		}
		return s
	}
}

func onKind(a Action, kinds ...int) func(*generator) Step {
	return func(g *generator) Step { return Step{Do: a, Kind: kinds[g.IntN(len(kinds))], Count: 1 + g.IntN(12)} }
}

func some(a Action, most int, hows ...string) func(*generator) Step {
	return func(g *generator) Step {
		s := Step{Do: a, Count: 1 + g.IntN(most), Millis: int64(math.Exp(g.Float64() * 10))}
		if len(hows) > 0 {
			s.How = hows[g.IntN(len(hows))]
		}
		return s
	}
}

func choices() []choice {
	policies := []string{"Background", "Background", "Background", "Foreground", "Orphan"}
	all := []int{hooks.Thing, hooks.Realm, hooks.Gadget, hooks.ConfigMap}
	return []choice{
		{10, on(CreateObject)},
		{14, on(EditObject)},
		{4, on(SelectObject)},
		{3, on(AnnotateObject)},
		{7, on(DeleteObject, policies...)},
		{2, on(ReplaceObject)},
		{2, on(EditStatus)},
		{1, on(StripFinalizers)},
		{1, on(HoldObject)},
		{2, on(FreeObject)},
		{1.5, on(DenyWrites)},
		{1, on(AllowWrites)},
		{10, onChild(EditChild)},
		{5, onChild(ContestChild)},
		{3, onChild(ApplyChild)},
		{3, onChild(RelabelChild, "other", "parent", "none")},
		{3, onChild(OrphanChild)},
		{1, onChild(StealChild)},
		{5, onChild(DeleteChild, policies...)},
		{1, onChild(HoldChild)},
		{2, onChild(FreeChild)},
		{4, onChild(ChildStatus)},
		{2, onChild(Stranger, "plain", "matching", "controlled")},
		{2, onChild(ReplaceChild, "plain", "matching", "controlled")},
		{4, func(g *generator) Step {
			return Step{Do: CreateRelated, On: g.IntN(relatedObjects), Kind: g.IntN(len(hooks.Namespaces))}
		}},
		{2, func(g *generator) Step {
			return Step{Do: DeleteRelated, On: g.IntN(relatedObjects), Kind: g.IntN(len(hooks.Namespaces))}
		}},
		{4, onController(Define)},
		{8, onController(EditDefinition, edits...)},
		{2, onController(DeleteDefinition)},
		{3, onKind(UpgradeKind, hooks.Gadget, hooks.Gadget, hooks.Realm)},
		{1, onKind(RemoveKind, hooks.Thing, hooks.Realm, hooks.Gadget)},
		{3, onKind(RestoreKind, hooks.Thing, hooks.Realm, hooks.Gadget)},
		{2, some(KillEngine, 1)},
		{1, some(StopEngine, 1)},
		{4, some(StartEngine, 1)},
		{5, func(g *generator) Step {
			s := onController(Behave, behaviors...)(g)
			s.Count = 1 + g.IntN(8)
			return s
		}},
		{2, some(LoseResponse, 3)},
		{2, some(Refuse, 6, "429", "500", "503", "409", "conflict")},
		{0.5, some(Hang, 1)},
		{2, onKind(BreakWatch, all...)},
		{1.5, onKind(ExpireWatch, all...)},
		{4, onKind(HoldWatch, all...)},
		{5, onKind(FreeWatches, all...)},
		{3, onKind(StaleAfterWrite, all...)},
		{2, onKind(SkipEvents, all...)},
		{3, some(KillAfterWrite, 6)},
	}
}
