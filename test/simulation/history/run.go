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
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

// workers is the number of hook calls of a controller that may be under way at the same time, where it does not say.
const workers = 4

// none is the number of no engine.
const none = -1

// Done is what a step did.
type Done struct {
	// At is the time since the history began.
	At time.Duration
	// Step is the step's number, -1 for what follows after the last one.
	Step int
	// Who did what, with which result.
	Who, What string
}

// Result is what came of a history.
type Result struct {
	// Violation is the first invariant that did not hold, nil if all did.
	Violation *invariant.Violation
	// Log has what the steps did, if it was asked for, and Trace what the world did.
	Log   []Done
	Trace []world.Entry
	// Happened are the actions that had an effect, in their order.
	Happened []Action
	// Draws counts what was drawn, by what it is about.
	Draws Draws
	// Steps counts the steps that were done.
	Steps int
	// Decisions, Calls and Writes count what happened.
	Decisions, Calls, Writes int
	// Hash is equal for two runs in which the same was written at the same times.
	Hash uint64
}

// Run lets a history happen and checks the invariants. With logged it keeps what happened.
func Run(t *testing.T, h History, logged bool) (result Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		r := newRunner(h, logged)
		defer func() {
			r.finish()
			result = r.result
		}()
		r.steps()
		if r.result.Violation == nil {
			r.end()
		}
	})
	return result
}

// runner is the run of one history.
type runner struct {
	history History
	logged  bool
	world   *world.World
	tracker *invariant.Tracker
	result  Result

	// step is the number of the step, and random its source of chance.
	step   int
	random *rand.Rand
	// acting is the action that is under way.
	acting Action

	engine      int
	definitions [Controllers]*definition
	behaviors   [Controllers]behavior
	served      []*hooks.Edition
	// events is the number of events that were created.
	events   int
	editions []hooks.Edition
	faults   faults
	// tried says that at the end all that fails was tried again.
	tried bool
	// resynced is when the last period of resyncs began.
	resynced time.Duration
	// asked has the UIDs of the parents that calls are about, by their IDs.
	asked map[uint64]string
	// denied are the objects of which the engine's writes are denied.
	denied map[place]bool
	// refused has since when the writes of an object are denied, of which the engine has tried one.
	refused map[place]time.Duration
	// injecting are the kinds into whose children a webhook puts something, and revoked the verbs of kinds that the engine may not use.
	injecting map[int]bool
	revoked   map[right]bool
	// denials says that some were denied at any time, or rights revoked.
	denials bool
	// held are the resources whose watches are held back.
	held map[string]bool
	// slow is the resource whose lists are held back on their way to the engine, empty for none.
	slow string
	// late says that requests of an engine that was killed are held back, and arriving is the engine of one that arrives now, none otherwise.
	late     bool
	arriving int
	// latecomers are the revisions that engines created which were gone by then, by UID.
	latecomers map[string]bool
	// calls counts the calls of sync and finalize hooks by controller and parent, and reads and dryRuns the requests of engines for one
	// object and those that change nothing, by resource.
	calls, reads, dryRuns map[string]int
	// configured are the webhook configurations and policies that there are, by their paths, and configurations counts their changes.
	configured     map[string]bool
	configurations int
	// provoked says that parents may be held back, since a hook returned something new with each call.
	provoked bool
	// turned is how often something happened to children one after the other.
	turned int
	// weights are how likely what is pending is chosen, by what it is.
	weights map[string]float64
}

func newRunner(h History, logged bool) *runner {
	r := &runner{
		history: h, logged: logged, engine: none, arriving: none, held: map[string]bool{}, weights: map[string]float64{},
		denied: map[place]bool{}, refused: map[place]time.Duration{}, injecting: map[int]bool{}, revoked: map[right]bool{},
		asked: map[uint64]string{}, latecomers: map[string]bool{}, configured: map[string]bool{},
		calls: map[string]int{}, reads: map[string]int{}, dryRuns: map[string]int{},
		served: make([]*hooks.Edition, len(hooks.Kinds)), editions: make([]hooks.Edition, len(hooks.Kinds)),
	}
	r.tracker = invariant.NewTracker(invariant.Options{Start: time.Now(), Engine: r.engineOf, Workers: workers, Reported: r.reported})
	r.world = world.New(world.Options{
		Seed: h.Seed, Hook: r.hook, Collect: r.collect, Trace: logged, Endless: r.endless, Arrived: r.arrived,
		API:    apiserver.Options{Now: time.Now, Admit: r.admit, Authorize: r.authorize, Policies: h.Options.Admission},
		Engine: reconciler.Options{Workers: workers, ServerSideApply: h.Options.ServerSide, ClientQPS: -1, CacheFlushInterval: resyncs, KindsRecheck: resyncs},
	})
	r.seed(0)
	r.prepare()
	r.result.Log, r.result.Happened, r.result.Draws = nil, nil, Draws{}
	return r
}

// admit gives events names of their own: client-go names them by the nanosecond, of which virtual time has few.
func (r *runner) admit(a apiserver.Admission) (result apiserver.AdmissionResult) {
	if r.denies(a) {
		return apiserver.AdmissionResult{Denied: "a webhook does not like it"}
	}
	if a.Resource != "events" || a.Operation != "CREATE" {
		result.Object = r.injected(a)
		return result
	}
	r.events++
	result.Name = fmt.Sprintf("%s-%d", a.Name, r.events)
	return result
}

// prepare makes the cluster in which histories happen.
func (r *runner) prepare() {
	for _, name := range append([]string{"metacontroller"}, hooks.Namespaces...) {
		r.post("/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	for kind := range hooks.Kinds {
		r.serve(kind)
	}
	r.start()
}

func (r *runner) engineOf(user string) (int, bool) {
	engine := r.engine
	if r.arriving != none {
		engine = r.arriving
	}
	return engine, user == world.ClusterUser || user == world.LoopbackUser
}

func (r *runner) seed(seed uint32) {
	r.random = rand.New(rand.NewPCG(r.history.Seed, uint64(seed)))
}

// steps does the steps until enough was decided, or an invariant is violated.
func (r *runner) steps() {
	for i, s := range r.history.Steps {
		if enough := r.history.Enough; enough > 0 && r.result.Decisions >= enough {
			break
		}
		r.result.Steps++
		r.step, r.acting = i, s.Do
		r.seed(s.Seed)
		r.do(s)
		if r.check() {
			return
		}
	}
	r.step = none
}

// check takes what was written, and reports whether an invariant is violated.
func (r *runner) check() bool {
	r.follow()
	if r.result.Violation == nil {
		r.result.Violation = r.tracker.Violation()
	}
	return r.result.Violation != nil
}

// follow gives the tracker the writes that it has not seen.
func (r *runner) follow() {
	journal := r.world.API.Journal()
	for _, w := range journal[r.tracker.Written():] {
		r.tracker.Write(w)
	}
	for _, place := range r.world.Unheard() {
		r.tracker.Unacknowledged(place)
	}
}

// violatedf notes a violation that the tracker does not see.
func (r *runner) violatedf(name, format string, args ...any) {
	if r.result.Violation == nil {
		r.result.Violation = invariant.New(name, r.world.Now(), format, args...)
	}
}

// finish ends the world.
func (r *runner) finish() {
	if err := r.world.Close(); err != nil {
		name := invariant.EverythingEnds
		if len(r.world.Panics()) > 0 {
			name = invariant.NoPanic
		}
		r.violatedf(name, "%v", err)
	}
	r.result.Calls, r.result.Writes = r.world.HookCalls(), len(r.world.API.Journal())
	r.result.Trace = r.world.Trace()
	written := fnv.New64a()
	for _, w := range r.world.API.Journal() {
		_, _ = fmt.Fprintln(written, w.Revision, w.At.UnixNano(), w.User, w.Verb, w.Resource, w.Subresource, w.Namespace, w.Name) // It does not fail.
	}
	r.result.Hash = written.Sum64()
}

// hook responds to a call of a hook.
func (r *runner) hook(c world.HookCall) world.HookResponse {
	r.follow()
	request, err := hooks.Decode(c.Request)
	if err != nil {
		return world.HookResponse{Err: err}
	}
	name := hooks.Meta(request.Controller, "name")
	index := controllerIndex(name)
	if index < 0 {
		return world.HookResponse{Err: errors.New("a call of an unknown controller " + c.Controller)}
	}
	if hook.Name(c.Hook) != hook.Customize {
		r.calls[name+" "+hooks.Meta(request.Parent, "uid")]++
	}
	var reply reply
	if c.Inline {
		reply = r.evaluated(c, request)
	} else {
		reply = r.behaviors[index].reply(hook.Name(c.Hook), request)
	}
	if !reply.pure {
		r.took(Behave)
		r.provoked = r.provoked || slices.Contains(restlessBehaviors, r.behaviors[index].how)
	}
	call := &invariant.Call{
		At: r.world.Now(), Writes: r.tracker.Written(), Engine: c.Engine, Controller: name, Hook: hook.Name(c.Hook), Request: request,
		Response: reply.response, Pure: reply.pure, InFlight: 1, AboutParent: 1,
	}
	r.asked[c.ID] = hooks.Meta(request.Parent, "uid")
	r.underWay(c, call)
	r.tracker.Call(call)
	r.notef(c.Controller, "%s of %s → %d", c.Hook, hooks.Meta(request.Parent, "name"), reply.code)
	response := world.HookResponse{Code: reply.code, Body: reply.body}
	if reply.retryAfter != "" {
		response.Header = map[string][]string{"Retry-After": {reply.retryAfter}}
	}
	return response
}

// evaluated returns what an inline hook has returned, which must be what the webhook that it is the twin of returns.
func (r *runner) evaluated(c world.HookCall, request *hooks.Request) reply {
	r.drew(ofInlineHooks, c.Hook)
	if c.Err != nil {
		// Objects of a kind that has gone are shown for a while still.
		if unserved := "was not served when the hook was compiled"; slices.Contains(r.served, nil) && strings.Contains(c.Err.Error(), unserved) {
			return reply{code: http.StatusInternalServerError, pure: true}
		}
		r.violatedf(invariant.InlineAgrees, "the inline %s hook of %s failed for %s: %v", c.Hook, c.Controller, hooks.Meta(request.Parent, "name"), c.Err)
		return reply{code: http.StatusInternalServerError, pure: true}
	}
	response, err := hooks.DecodeResponse(c.Body)
	if err != nil {
		r.violatedf(invariant.InlineAgrees, "%v", err)
		return reply{code: http.StatusInternalServerError, pure: true}
	}
	twin := respond(hook.Name(c.Hook), request, true)
	if want, err := hooks.DecodeResponse(twin.body); err != nil || !equality.Semantic.DeepEqual(response, want) {
		r.violatedf(invariant.InlineAgrees, "the inline %s hook of %s returns for %s\n%s\nand the webhook\n%s", c.Hook, c.Controller,
			hooks.Meta(request.Parent, "name"), c.Body, twin.body)
	}
	return reply{code: http.StatusOK, body: c.Body, response: response, pure: true}
}

// underWay counts the calls that are under way besides one, whether they have arrived or not, and adds the writes.
func (r *runner) underWay(c world.HookCall, call *invariant.Call) {
	for _, p := range r.world.UnderWay(c.Engine) {
		switch {
		case (p.Kind == world.Call || p.Kind == world.CallResponse) && p.Controller == c.Controller:
			call.InFlight++
			if r.about(p) == r.asked[c.ID] {
				call.AboutParent++
			}
		case slices.Contains([]string{"create", "update", "apply"}, p.Verb):
			// Others may be writes of a controller whose parent the child is.
			if hooks.ByResource(p.Group, p.Resource) >= 0 {
				call.Writing = append(call.Writing, invariant.Writing{Body: p.Body()})
			}
		}
	}
}

// about returns the UID of the parent that a call is about.
func (r *runner) about(p world.Pending) string {
	uid, known := r.asked[p.ID()]
	if !known {
		if request, err := hooks.Decode(p.Body()); err == nil {
			uid = hooks.Meta(request.Parent, "uid")
		}
		r.asked[p.ID()] = uid
	}
	return uid
}

func controllerIndex(name string) int {
	for i := range Controllers {
		if controllerName(i) == name {
			return i
		}
	}
	return -1
}

// reported keeps an event, each once.
func (r *runner) reported(kind, subject, message string) {
	text := kind + " about " + subject + ": " + message
	if r.logged && !slices.ContainsFunc(r.result.Log, func(d Done) bool { return d.What == text }) {
		r.notef("event", "%s", text)
	}
}

// notef keeps what somebody did.
func (r *runner) notef(who, format string, args ...any) {
	if r.logged {
		r.result.Log = append(r.result.Log, Done{r.world.Now(), r.step, who, fmt.Sprintf(format, args...)})
	}
}

// happened says that the action that is under way had an effect.
func (r *runner) happened() {
	if r.acting != "" {
		r.took(r.acting)
	}
}

// took says that an action had an effect now, be it one that was prepared before.
func (r *runner) took(a Action) {
	if n := len(r.result.Happened); r.step != none && (n == 0 || r.result.Happened[n-1] != a) {
		r.result.Happened = append(r.result.Happened, a)
	}
}

// do does a step.
func (r *runner) do(s Step) {
	if act, ok := actions[s.Do]; ok {
		act(r, s)
		return
	}
	panic(fmt.Sprintf("there is no action %q", s.Do)) //nolint:forbidigo // The history is wrong.
}

var actions map[Action]func(*runner, Step)

func init() { //nolint:gochecknoinits // The functions refer to each other.
	actions = map[Action]func(*runner, Step){
		CreateObject: (*runner).createObject, EditObject: (*runner).editObject, SelectObject: (*runner).selectObject,
		AnnotateObject: (*runner).annotateObject, PauseObject: (*runner).pauseObject, DeleteObject: (*runner).deleteObject, ReplaceObject: (*runner).replaceObject,
		EditStatus:      (*runner).editStatus,
		StripFinalizers: (*runner).stripFinalizers, DenyWrites: (*runner).denyWrites, AllowWrites: (*runner).allowWrites,
		Inject: (*runner).inject, Configure: (*runner).configure, Revoke: (*runner).revoke, Grant: (*runner).grant,
		HoldObject: (*runner).holdObject, FreeObject: (*runner).freeObject,
		EditChild: (*runner).editChild, ContestChild: (*runner).contestChild, ApplyChild: (*runner).applyChild, RelabelChild: (*runner).relabelChild,
		OrphanChild: (*runner).orphanChild, StealChild: (*runner).stealChild, DeleteChild: (*runner).deleteChild,
		HoldChild: (*runner).holdChild, FreeChild: (*runner).freeChild, ReplaceChild: (*runner).replaceChild, InTurn: (*runner).inTurn, ThinOut: (*runner).thinOut, ChildStatus: (*runner).childStatus, RollOut: (*runner).rollOut, Stranger: (*runner).stranger,
		CreateRelated: (*runner).createRelated, DeleteRelated: (*runner).deleteRelated, RelabelRelated: (*runner).relabelRelated,
		Define: (*runner).define, EditDefinition: (*runner).editDefinition, DeleteDefinition: (*runner).deleteDefinition,
		ConfirmDeletions: (*runner).confirmDeletions, Relent: (*runner).relent, EditPaused: (*runner).editPaused,
		UpgradeKind: (*runner).upgradeKind, WithdrawVersion: (*runner).withdrawVersion, RemoveKind: (*runner).removeKind, RestoreKind: (*runner).restoreKind,
		TakeField: (*runner).takeField, Reselect: (*runner).reselect, KillEngine: (*runner).killEngine, StopEngine: (*runner).stopEngine, StartEngine: (*runner).startEngine,
		Behave: (*runner).behave, HoldBack: (*runner).holdBack, Alternate: (*runner).alternate, LoseResponse: (*runner).loseResponse, Refuse: (*runner).refuse, Hang: (*runner).hang,
		BreakWatch: (*runner).breakWatch, ExpireWatch: (*runner).expireWatch, HoldWatch: (*runner).holdWatch, FreeWatches: (*runner).freeWatches,
		StaleAfterWrite: (*runner).staleAfterWrite, SkipEvents: (*runner).skipEvents, SlowList: (*runner).slowList, ContestClaim: (*runner).contestClaim, DoubtRevision: (*runner).doubtRevision,
		Intercept: (*runner).intercept, RefuseWrite: (*runner).refuseWrite, Undermine: (*runner).undermine, MissChange: (*runner).miss, FaultyHooks: (*runner).faultyHooks, KillAfterWrite: (*runner).killAfterWrite, KillLate: (*runner).killLate,
		RunOn: (*runner).runOn, Pass: (*runner).pass, Rest: (*runner).rest,
	}
}

// request sends a request of a user.
func (r *runner) request(q apiserver.Request) apiserver.Response {
	q.UserAgent, q.Accept = user, "application/json"
	if q.ContentType == "" {
		q.ContentType = "application/json"
	}
	response := r.world.Do(user, q)
	if q.Method != http.MethodGet {
		r.notef(user, "%s %s → %d", q.Method, q.Path, response.Code)
		if response.Code < 300 {
			r.happened()
		}
	}
	return response
}
