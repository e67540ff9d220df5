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
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// Length is the number of decisions of a generated history, at least.
const Length = 100

const (
	// spread is by how much the steps may go on beyond Length, and longSpread beyond twice Length, in one of every longOnes histories: most
	// of what can be found needs few decisions, and some of it many.
	spread, longSpread, longOnes = 40, 250, 10
	// most is the number of steps after which it is insisted that something is decided, in so many rounds.
	most, rounds = 600, 60
)

// parentsOf is how many objects of each kind users create.
var parentsOf = []int{hooks.Thing: 3, hooks.Realm: 2, hooks.Gadget: 2, hooks.ConfigMap: 2}

// relatedObjects is the number of related objects in each namespace.
const relatedObjects = 4

// generator makes the steps of one history.
type generator struct {
	*rand.Rand

	options Options
	steps   []Step
	// controllers are those that the history is mostly about, and objects how many objects of each kind there are.
	controllers []int
	objects     []int
	// weights are how often each choice is made in this history.
	weights []float64
	total   float64
	choices []choice
}

// choice is a kind of step with the weight that it has on average. One that is essential is made in every history.
type choice struct {
	weight    float64
	make      func(*generator) Step
	essential bool
}

const (
	// swarming is the part of histories that leave out some choices, and leftOut the part of the choices that these leave out: what
	// happens seldom beside everything else happens often where little else does.
	swarming = 0.75
	leftOut  = 0.5
)

// Generate makes a history from a seed. Each seed draws choices and weights of its own, and what it is about, so that different seeds
// stress different pairs.
func Generate(seed uint64) History {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x51e4)), choices: choices()}
	g.options = Options{
		Chain: g.IntN(4) == 0, ServerSide: g.IntN(4) == 0, Patient: g.IntN(8) == 0, Workloads: g.IntN(4) == 0, RelatedKinds: g.IntN(4) == 0,
	}
	g.options = g.options.drawing(seed)
	g.choices = append(g.choices, g.options.choices()...)
	g.weigh()
	g.narrow()
	g.preamble()
	for len(g.steps) < most {
		g.add(g.choose())
		for g.IntN(3) == 0 {
			// Steps without a decision between them are a coincidence.
			g.add(g.choose())
		}
		g.schedule()
	}
	g.insist()
	return History{Seed: seed, Options: g.options, Enough: enough(seed), Steps: g.steps}
}

// enough draws after how many decisions a history has been long enough.
func enough(seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 0xe407))
	if r.IntN(longOnes) == 0 {
		return 2*Length + r.IntN(longSpread)
	}
	return Length + r.IntN(spread)
}

// insist gives the engine something to do where the steps before did not: what it needs is there, and objects are edited.
func (g *generator) insist() {
	for range rounds {
		g.add(Step{Do: StartEngine})
		g.add(Step{Do: FreeWatches})
		for kind := range hooks.Kinds {
			g.add(Step{Do: RestoreKind, Kind: kind})
		}
		controller := g.controllers[g.IntN(len(g.controllers))]
		g.add(Step{Do: Define, Controller: controller})
		g.add(Step{Do: EditDefinition, Controller: controller, How: "resume"})
		g.add(g.object(Step{Do: CreateObject}))
		g.add(g.object(Step{Do: EditObject}))
		g.add(Step{Do: RunOn, Count: 20})
	}
}

// weigh draws how often each choice is made.
func (g *generator) weigh() {
	swarm := g.Float64() < swarming
	for _, c := range g.choices {
		// Log-normal: most choices have about their weight, a few of each seed much more or next to none.
		w := c.weight * math.Exp(1.2*g.NormFloat64())
		if out := g.Float64() < leftOut; swarm && out && !c.essential {
			w = 0
		}
		g.weights = append(g.weights, w)
		g.total += w
	}
}

// narrow draws what the history is about: the fewer objects and controllers there are, the more often things happen to the same one.
func (g *generator) narrow() {
	g.controllers = g.Perm(Controllers)[:1+g.IntN(Controllers)]
	for _, most := range parentsOf {
		g.objects = append(g.objects, 1+g.IntN(most))
	}
	if g.options.Many > few {
		// One controller and one object of each kind are work enough.
		g.controllers = []int{[]int{0, 0, 1, 2}[g.IntN(4)]}
		if g.options.Chain {
			g.controllers = []int{2 * g.IntN(2)} // Gadgets want a few children.
		}
		for kind := range g.objects {
			g.objects[kind] = 1
		}
	}
}

// controller draws a controller, seldom one that the history is not about.
func (g *generator) controller() int {
	if g.IntN(12) == 0 {
		return g.IntN(Controllers)
	}
	return g.controllers[g.IntN(len(g.controllers))]
}

func (g *generator) add(s Step) {
	s.Seed = g.Uint32()
	g.steps = append(g.steps, s)
}

func (g *generator) preamble() {
	for _, i := range g.controllers {
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
	s.On = g.IntN(g.objects[s.Kind])
	return s
}

// child completes a step with a child of an object, of a kind that the controller may have for parents.
func (g *generator) child(s Step) Step {
	s = g.object(s)
	switch s.Controller = g.controller(); s.Controller {
	case 0:
		s.Kind = hooks.Thing
	case 1:
		if s.Kind = hooks.Realm; g.options.Chain {
			s.Kind = hooks.Gadget
		}
	}
	children := childrenOfParents
	if g.options.Workloads {
		children += deploymentsOfParents
	}
	s.On, s.Child = g.IntN(g.objects[s.Kind]), g.IntN(children)
	return s
}

// composed completes a step with a child of a composite whose parents are no children themselves: one that the history is about, if it can be.
func (g *generator) composed(s Step) Step {
	s.Controller, s.Kind = 0, hooks.Thing
	if slices.Contains(g.controllers, 1) && !g.options.Chain && (g.IntN(2) == 0 || !slices.Contains(g.controllers, 0)) {
		s.Controller, s.Kind = 1, hooks.Realm
	}
	s.On, s.Child = g.IntN(g.objects[s.Kind]), g.IntN(childrenOfParents)
	if g.options.Workloads {
		s.Child = g.IntN(childrenOfParents + deploymentsOfParents)
	}
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
		s := Step{Do: a, Controller: g.controller()}
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

// onAny completes a step with a kind of objects.
func onAny(a Action, kinds ...int) func(*generator) Step {
	return func(g *generator) Step {
		if g.options.Workloads {
			kinds := append(slices.Clip(kinds), hooks.Deployment, hooks.Deployment)
			return onKind(a, kinds...)(g)
		}
		return onKind(a, kinds...)(g)
	}
}

// meanwhile completes a step with what somebody does, and with the decisions that follow.
func meanwhile(step func(*generator) Step) func(*generator) Step {
	return func(g *generator) Step {
		s := step(g)
		s.How, s.Count = interferences[g.IntN(len(interferences))], 1+g.IntN(20)
		return s
	}
}

func choices() []choice { return slices.Concat(userChoices(), administratorChoices(), faultChoices()) }

// few is the number of children up to which a history is about several objects that want as many.
const few = 30

// choices are those that only histories with some options have.
func (o Options) choices() []choice {
	var all []choice
	if o.Many > 0 {
		weight := 15.0
		if o.Many > few {
			weight = 40 // There is little else that such a history is for.
		}
		all = append(all, choice{weight: weight, essential: true, make: func(g *generator) Step {
			s := g.parent(Step{Do: InTurn, How: turns[g.IntN(len(turns))]})
			return s
		}})
	}
	if o.Related > 0 {
		all = append(all, choice{weight: 16, essential: true, make: func(g *generator) Step {
			do := []Action{CreateRelated, CreateRelated, DeleteRelated}[g.IntN(3)]
			return Step{Do: do, On: g.IntN(relatedObjects), Kind: g.IntN(len(hooks.Namespaces))}
		}})
	}
	if o.Admission {
		all = append(all, choice{weight: 16, essential: true, make: func(g *generator) Step {
			s := onAny(Configure, hooks.Gadget, hooks.ConfigMap)(g)
			s.How, s.Count = configurations[g.IntN(len(configurations))], g.IntN(2)
			return s
		}})
	}
	if o.Inline != 0 {
		all = append(all, choice{weight: 4, make: onController(EditDefinition, "inline")})
	}
	if o.Restless {
		pause := func(g *generator) int64 { return int64(math.Exp(9 + g.Float64()*3)) } // 8 s to 160 s.
		all = append(all,
			choice{weight: 16, essential: true, make: func(g *generator) Step {
				return Step{Do: HoldBack, How: endsOfPauses[g.IntN(len(endsOfPauses))], Count: 1 + g.IntN(2), Millis: pause(g)}
			}},
			choice{weight: 8, essential: true, make: func(g *generator) Step { return Step{Do: Alternate, Millis: pause(g)} }},
			choice{weight: 3, make: func(g *generator) Step {
				s := onController(Behave, restlessBehaviors...)(g)
				s.Count = 1 + g.IntN(8)
				return s
			}},
		)
	}
	return all
}

// parent completes a step with a controller, and with an object that may want many children of it.
func (g *generator) parent(s Step) Step {
	s.Controller, s.Kind = g.controller(), hooks.Thing
	if s.Controller == 1 && !g.options.Chain {
		s.Kind = hooks.Realm
	}
	s.On = g.IntN(g.objects[s.Kind])
	return s
}

// pauseObject pauses a parent or target for ever or for a while, or ends that.
func pauseObject(g *generator) Step {
	s := on(PauseObject)(g)
	s.How, s.Count = []string{"ever", "time", "time", "no"}[g.IntN(4)], 1+g.IntN(60)
	return s
}

func userChoices() []choice {
	policies := []string{"Background", "Background", "Background", "Foreground", "Orphan"}
	return []choice{
		{weight: 10, make: on(CreateObject), essential: true},
		{weight: 14, make: on(EditObject), essential: true},
		{weight: 4, make: on(SelectObject)},
		{weight: 3, make: on(AnnotateObject)},
		{weight: 2, make: pauseObject},
		{weight: 7, make: on(DeleteObject, policies...)},
		{weight: 2, make: on(ReplaceObject)},
		{weight: 2, make: on(EditStatus)},
		{weight: 1, make: on(StripFinalizers)},
		{weight: 1, make: on(HoldObject)},
		{weight: 2, make: on(FreeObject)},
		{weight: 1.5, make: on(DenyWrites)},
		{weight: 1, make: on(AllowWrites)},
		{weight: 1.5, make: onAny(Inject, hooks.Gadget, hooks.ConfigMap)},
		{weight: 1, make: func(g *generator) Step {
			s := onAny(Revoke, hooks.Thing, hooks.Realm, hooks.Gadget, hooks.Gadget, hooks.ConfigMap, hooks.ConfigMap)(g)
			s.How = verbs[g.IntN(len(verbs))]
			return s
		}},
		{weight: 2, make: some(Grant, 1), essential: true},
		{weight: 10, make: onChild(EditChild)},
		{weight: 5, make: onChild(ContestChild)},
		{weight: 3, make: onChild(ApplyChild)},
		{weight: 3, make: onChild(RelabelChild, "other", "parent", "none")},
		{weight: 3, make: onChild(OrphanChild)},
		{weight: 1, make: onChild(StealChild)},
		{weight: 5, make: onChild(DeleteChild, policies...)},
		{weight: 1, make: onChild(HoldChild)},
		{weight: 2, make: onChild(FreeChild)},
		{weight: 4, make: onChild(ChildStatus)},
		{weight: 4, make: func(g *generator) Step {
			if !g.options.Workloads {
				return onChild(ChildStatus)(g)
			}
			return Step{Do: RollOut, How: []string{"done", "done", "begun", "some"}[g.IntN(4)]}
		}},
		{weight: 1, make: func(g *generator) Step {
			s := g.composed(Step{Do: ThinOut, Count: 1 + g.IntN(30)})
			s.Controller, s.Kind, s.On, s.Child = 0, hooks.Thing, g.IntN(g.objects[hooks.Thing]), g.IntN(childrenOfParents)
			return s
		}},
		{weight: 2, make: onChild(Stranger, "plain", "matching", "controlled")},
		{weight: 1, make: func(g *generator) Step { return g.composed(Step{Do: Stranger, How: "matching", Count: 1}) }},
		{weight: 2, make: onChild(ReplaceChild, "plain", "matching", "controlled")},
		{weight: 4, make: func(g *generator) Step {
			return Step{Do: CreateRelated, On: g.IntN(relatedObjects), Kind: g.IntN(len(hooks.Namespaces))}
		}},
		{weight: 2, make: func(g *generator) Step {
			return Step{Do: DeleteRelated, On: g.IntN(relatedObjects), Kind: g.IntN(len(hooks.Namespaces))}
		}},
		{weight: 4, make: func(g *generator) Step {
			return Step{Do: RelabelRelated, On: g.IntN(relatedObjects), Kind: g.IntN(len(hooks.Namespaces))}
		}},
	}
}

func administratorChoices() []choice {
	return []choice{
		{weight: 4, make: onController(Define), essential: true},
		{weight: 8, make: onController(EditDefinition, edits...), essential: true},
		{weight: 2, make: onController(DeleteDefinition)},
		{weight: 3, make: onController(EditDefinition, "pause")},
		{weight: 4, make: onController(EditDefinition, "resume"), essential: true},
		{weight: 2, make: func(g *generator) Step {
			s := onController(EditPaused, "finalize", "finalize", "parents", "kinds")(g)
			s.Count = 1 + g.IntN(20)
			return s
		}},
		{weight: 5, make: onController(EditDefinition, "guard")},
		{weight: 2, make: onController(ConfirmDeletions)},
		{weight: 2, make: onController(Relent)},
		{weight: 3, make: onKind(UpgradeKind, hooks.Gadget, hooks.Gadget, hooks.Realm)},
		{weight: 2, make: func(g *generator) Step {
			return Step{Do: WithdrawVersion, On: g.IntN(g.objects[hooks.Gadget]), Count: 1 + g.IntN(20), Millis: int64(math.Exp(g.Float64() * 10))}
		}},
		{weight: 1.5, make: func(g *generator) Step {
			s := g.composed(Step{Do: TakeField, Count: 1 + g.IntN(30), Millis: int64(math.Exp(g.Float64() * 10))})
			s.How = []string{"recreating", "recreating", "server-side", "server-side", "kinds", "finalize"}[g.IntN(6)]
			s.Controller = g.controller()
			return s
		}},
		{weight: 1, make: onKind(RemoveKind, hooks.Thing, hooks.Realm, hooks.Gadget)},
		{weight: 3, make: onKind(RestoreKind, hooks.Thing, hooks.Realm, hooks.Gadget), essential: true},
		{weight: 2, make: some(KillEngine, 1)},
		{weight: 2, make: func(g *generator) Step {
			s := g.composed(Step{Do: Reselect})
			if g.options.Workloads && g.IntN(3) > 0 {
				s.Count = heldFor
			}
			return s
		}},
		{weight: 1, make: some(StopEngine, 1)},
		{weight: 4, make: some(StartEngine, 1), essential: true},
	}
}

func faultChoices() []choice {
	all := []int{hooks.Thing, hooks.Realm, hooks.Gadget, hooks.ConfigMap}
	return []choice{
		{weight: 5, make: func(g *generator) Step {
			s := onController(Behave, behaviors...)(g)
			s.Count = 1 + g.IntN(8)
			return s
		}},
		{weight: 2, make: some(LoseResponse, 3, "", "failed")},
		{weight: 2, make: some(Refuse, 6, "429", "500", "503", "409", "conflict", "conflict", "403")},
		{weight: 0.5, make: some(Hang, 1)},
		{weight: 2, make: onAny(BreakWatch, all...)},
		{weight: 1.5, make: onAny(ExpireWatch, all...)},
		{weight: 4, make: onAny(HoldWatch, all...)},
		{weight: 5, make: onKind(FreeWatches, all...), essential: true},
		{weight: 3, make: onAny(StaleAfterWrite, all...)},
		{weight: 2, make: onAny(SkipEvents, all...)},
		{weight: 3, make: some(KillAfterWrite, 6)},
		{weight: 4, make: some(KillLate, 40)},
		{weight: 5, make: meanwhile(onAny(Intercept, hooks.Thing, hooks.Realm, hooks.Gadget, hooks.Gadget, hooks.ConfigMap, hooks.ConfigMap))},
		{weight: 1, make: onAny(RefuseWrite, hooks.Gadget, hooks.ConfigMap)},
		{weight: 5, make: meanwhile(onChild(Undermine))},
		{weight: 3, make: meanwhile(onChild(MissChange))},
		{weight: 3, make: meanwhile(onChild(SlowList))},
		{weight: 2, make: func(g *generator) Step { return g.composed(Step{Do: ContestClaim, Count: 1 + g.IntN(20)}) }},
		{weight: 1, make: func(g *generator) Step {
			s := g.composed(Step{Do: DoubtRevision, Count: 1 + g.IntN(30)})
			s.How = []string{"revert", "revert", "select", ""}[g.IntN(4)]
			return s
		}},
		{weight: 2, make: some(FaultyHooks, 4, "hang", "lose", "slow")},
	}
}

// Draws counts what was drawn: what it is about, and which variant of it.
type Draws map[string]map[string]int

// What draws are about.
const (
	ofChildren       = "children"
	ofRelated        = "related objects"
	ofConfigurations = "webhook configurations and policies"
	// ofInlineHooks are calls of inline hooks.
	ofInlineHooks = "calls of inline hooks"
	// ofConfigurationsAtRest are those of which it is checked what the engine does about them.
	ofConfigurationsAtRest = "webhook configurations and policies at rest"
	ofPauses               = "ends of pauses"
	ofTurns                = "one after the other"
)

// drew counts a draw. It is one of the history's own.
func (r *runner) drew(what string, variant any) {
	if r.step == none {
		return
	}
	if r.result.Draws == nil {
		r.result.Draws = Draws{}
	}
	r.result.Draws.add(what, fmt.Sprint(variant), 1)
}

func (d Draws) add(what, variant string, n int) {
	if d[what] == nil {
		d[what] = map[string]int{}
	}
	d[what][variant] += n
}

// Merge adds the counts of others.
func (d Draws) Merge(others Draws) {
	for what, variants := range others {
		for variant, n := range variants {
			d.add(what, variant, n)
		}
	}
}

// Table says how many of each variant there were, numbers in their order.
func (d Draws) Table() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(d)) {
		variants := slices.SortedFunc(maps.Keys(d[what]), func(x, y string) int {
			m, first := strconv.Atoi(x)
			n, second := strconv.Atoi(y)
			if first == nil && second == nil {
				return m - n
			}
			return strings.Compare(x, y)
		})
		for i, variant := range variants {
			variants[i] = fmt.Sprintf("%s: %d", variant, d[what][variant])
		}
		fmt.Fprintf(&b, "%s: %s\n", what, strings.Join(variants, ", "))
	}
	return b.String()
}

// Of so many histories, manyOnes have one of the numbers of children in many, and as many one of related objects.
const (
	drawn        = 400
	mostOnes     = 3
	manyOnes     = 16
	admittedOnes = drawn / 10
	restlessOnes = drawn / 10
	inlineOnes   = drawn / 10
	// retainingOnes have controllers with children that stay without their parents.
	retainingOnes = drawn / 10
	// sayingOnes have composites that keep the condition Synced.
	sayingOnes = drawn / 10
)

// drawing returns the options with what only some histories draw, by a source of its own: the others are as without it.
func (o Options) drawing(seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, 0xd7a3))
	many := func() int {
		switch n := r.IntN(drawn); {
		case n < mostOnes:
			return 150
		case n < manyOnes:
			return 30
		}
		return 0
	}
	o.Many, o.Related = many(), many()
	o.Admission = r.IntN(drawn) < admittedOnes
	o.Restless = r.IntN(drawn) < restlessOnes
	r = rand.New(rand.NewPCG(seed, 0x1e11))
	if r.IntN(drawn) < inlineOnes && !o.Restless { // Inline hooks are never restless.
		o.Inline = 1 + r.UintN(1<<Controllers-1)
	}
	r = rand.New(rand.NewPCG(seed, 0x57a7))
	if r.IntN(drawn) < retainingOnes {
		o.Retain = 1 + r.UintN(1<<Controllers-1)
	}
	r = rand.New(rand.NewPCG(seed, 0x5a1d))
	if r.IntN(drawn) < sayingOnes {
		o.Synced = 1 + r.UintN(3)
	}
	return o
}
