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
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// History is a sequence of steps. The same history has the same effect whenever it is run.
type History struct {
	// Name says what happens, for histories that are kept.
	Name string `json:"name,omitempty"`
	// Invariant is the invariant that the history violated when it was found. Empty: none is known.
	Invariant string `json:"invariant,omitempty"`
	// Explanation says why, for people.
	Explanation string `json:"explanation,omitempty"`
	// Seed is what Generate made it from, and decides what the scheduler does.
	Seed uint64 `json:"seed"`
	// Options are the same during the whole history.
	Options Options `json:"options"`
	// Enough is the number of decisions after which no further step is done. 0: all steps are done.
	Enough int `json:"enough,omitempty"`
	// Steps are done one after the other.
	Steps []Step `json:"steps"`
}

// Until returns the history that has the first steps alone, and all of them.
func (h History) Until(steps int) History {
	h.Enough, h.Steps = 0, h.Steps[:steps]
	return h
}

// Options are settings of a history.
type Options struct {
	// Chain has the composite c1 run on Gadgets, which are children of others; otherwise it runs on Realms, and a decorator may write
	// the status of Gadgets.
	Chain bool `json:"chain,omitempty"`
	// ServerSide has the engine write children by server-side apply where no rule says otherwise.
	ServerSide bool `json:"serverSide,omitempty"`
	// Patient has composites ask for a resync in the far future.
	Patient bool `json:"patient,omitempty"`
	// Workloads has controllers whose children are Deployments, too.
	Workloads bool `json:"workloads,omitempty"`
	// RelatedKinds has customize hooks select objects of custom kinds, which come and go.
	RelatedKinds bool `json:"relatedKinds,omitempty"`
	// Many is a number of children that parents may want besides 0, 1 and 2. 0: there is none.
	Many int `json:"many,omitempty"`
	// Related is the number of objects that a step with related objects is about. 0: one.
	Related int `json:"related,omitempty"`
	// Admission has webhook configurations and policies come and go.
	Admission bool `json:"admission,omitempty"`
	// Restless has hooks return something new with each call for a while.
	Restless bool `json:"restless,omitempty"`
	// Inline has a bit for each controller whose hooks are inline when it is defined.
	Inline uint `json:"inline,omitempty"`
	// Retain has a bit for each controller whose children stay when their parents are deleted.
	Retain uint `json:"retain,omitempty"`
	// Synced has a bit for each composite that keeps the condition Synced in its parents.
	Synced uint `json:"synced,omitempty"`
}

// Step is one thing that happens. What it refers to and does not exist makes it do nothing, so that any step can be left out.
type Step struct {
	// Do is what happens.
	Do Action `json:"do"`
	// Seed decides what the action leaves open.
	Seed uint32 `json:"seed,omitempty"`
	// Kind is the index of a kind, On that of an object of the kind, Controller that of a controller, and Child that of a child.
	Kind       int `json:"kind,omitempty"`
	On         int `json:"on,omitempty"`
	Controller int `json:"controller,omitempty"`
	Child      int `json:"child,omitempty"`
	// How is the variant of the action.
	How string `json:"how,omitempty"`
	// Count is a number of decisions, calls or requests.
	Count int `json:"count,omitempty"`
	// Millis is a time in milliseconds.
	Millis int64 `json:"millis,omitempty"`
}

// Time returns the time of the step.
func (s Step) Time() time.Duration { return time.Duration(s.Millis) * time.Millisecond }

// Read reads a history from a file.
func Read(file string) (History, error) {
	var h History
	data, err := os.ReadFile(file)
	if err != nil {
		return h, fmt.Errorf("reading a history: %w", err)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("decoding the history %s: %w", file, err)
	}
	return h, nil
}

// Write writes a history into a file, each step on a line of its own.
func (h History) Write(file string) error {
	steps := h.Steps
	h.Steps = nil
	head, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding a history: %w", err)
	}
	out := head[:len(head)-len("null\n}")]
	out = append(out, '[')
	for i, s := range steps {
		line, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("encoding a step: %w", err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, "\n    "...), line...)
	}
	out = append(out, "\n  ]\n}\n"...)
	if err := os.WriteFile(file, out, 0o644); err != nil {
		return fmt.Errorf("writing a history: %w", err)
	}
	return nil
}

// Action is what a step does.
type Action string

// What users do.
const (
	// CreateObject creates object On of a kind, as a parent or target.
	CreateObject Action = "create"
	// EditObject changes what it wants.
	EditObject Action = "edit"
	// SelectObject sets or removes the label by which controllers select it.
	SelectObject Action = "select"
	// AnnotateObject sets an annotation that nobody reads.
	AnnotateObject Action = "annotate"
	// PauseObject pauses it, as How says: for ever, for a time, or not any more.
	PauseObject Action = "pause-object"
	// DeleteObject deletes it; How is the propagation policy.
	DeleteObject Action = "delete"
	// ReplaceObject deletes it and creates another one of its name at once.
	ReplaceObject Action = "replace"
	// EditStatus writes its status.
	EditStatus Action = "edit-status"
	// StripFinalizers takes all finalizers off it.
	StripFinalizers Action = "strip-finalizers"
	// HoldObject puts the finalizer of a stranger on it, and FreeObject takes it off.
	HoldObject Action = "hold"
	FreeObject Action = "free"

	// EditChild and what follows do the same to the child of an object.
	EditChild Action = "edit-child"
	// ContestChild edits a child and what its parent wants, both before the engine sees either.
	ContestChild Action = "contest-child"
	ApplyChild   Action = "apply-child"
	RelabelChild Action = "relabel-child"
	OrphanChild  Action = "orphan-child"
	StealChild   Action = "steal-child"
	DeleteChild  Action = "delete-child"
	HoldChild    Action = "hold-child"
	FreeChild    Action = "free-child"
	// InTurn has an object want many children, and has what How says happen to them one after the other, while nothing else does.
	InTurn Action = "in-turn"
	// ThinOut has a composite create the children of an object in order and roll out changes, has the object want others, in no order, and
	// deletes all children but one while the engine works on that.
	ThinOut Action = "thin-out"
	// ReplaceChild deletes a child, and somebody else takes its name at once; How says what that looks like.
	ReplaceChild Action = "replace-child"
	// ChildStatus writes the status of a child.
	ChildStatus Action = "child-status"
	// RollOut has the controller of Deployments write their status; How says how far they are.
	RollOut Action = "roll-out"
	// Stranger creates an object with the name of a child; How says what it looks like. With a Count all comes to rest before and after.
	Stranger Action = "stranger"

	// DenyWrites has a webhook deny what the engine writes of an object itself, until AllowWrites.
	DenyWrites  Action = "deny-writes"
	AllowWrites Action = "allow-writes"
	// Inject has a webhook put a label, and data, into the children of a kind that the engine creates or changes, and Inject again ends that.
	Inject Action = "inject"
	// Revoke takes a right on a kind, which How names, from the engine, and Grant gives all rights back.
	Revoke Action = "revoke"
	Grant  Action = "grant"
	// Configure creates, changes or deletes a webhook configuration or a policy, which How names; with a Count at rest, where it is checked
	// what the engine does about it.
	Configure Action = "configure"

	// CreateRelated creates or replaces a related object, and DeleteRelated deletes it.
	CreateRelated Action = "create-related"
	DeleteRelated Action = "delete-related"
	// RelabelRelated has an object that a parent selects be selected no more, or one that none selects be selected.
	RelabelRelated Action = "relabel-related"
)

// What administrators do.
const (
	// Define creates a controller, EditDefinition changes it as How says, and DeleteDefinition deletes it.
	Define           Action = "define"
	EditDefinition   Action = "edit-definition"
	DeleteDefinition Action = "delete-definition"
	// ConfirmDeletions confirms the deletions that a controller holds.
	ConfirmDeletions Action = "confirm-deletions"
	// Relent has the parents of a controller that holds deletions want children again.
	Relent Action = "relent"
	// EditPaused pauses a controller, makes Count decisions, changes it as How says, and makes as many again.
	EditPaused Action = "edit-paused"
	// UpgradeKind changes the definition of a kind, RemoveKind deletes it, and RestoreKind brings it back.
	UpgradeKind Action = "upgrade-kind"
	// WithdrawVersion has the second version of Gadgets not served for a while, in which the engine notices that, and object On is edited.
	WithdrawVersion Action = "withdraw-version"
	RemoveKind      Action = "remove-kind"
	RestoreKind     Action = "restore-kind"
	// KillEngine ends the engine between two requests, StopEngine lets it shut down. StartEngine starts one if none runs.
	KillEngine  Action = "kill"
	StopEngine  Action = "stop"
	StartEngine Action = "start"
)

// What hooks and faults do.
const (
	// Behave changes how a controller's hooks respond to the next Count calls.
	Behave Action = "behave"
	// HoldBack has a controller's hooks return something new with each call for a time, so that parents are held back. What How says happens
	// then, of which the hook is to be asked at once.
	HoldBack Action = "hold-back"
	// Alternate has a controller's hooks fail with every other call for a time, and return something new with the others.
	Alternate Action = "alternate"
	// LoseResponse loses the responses of the next Count writes of the engine, which are done. If How is "failed", they say that the API
	// server failed, which has clients send them again at once.
	LoseResponse Action = "lose-response"
	// Refuse refuses the next Count requests of the engine; How is the status code.
	Refuse Action = "refuse"
	// Hang leaves the next request of the engine without a response.
	Hang Action = "hang"
	// BreakWatch breaks the watches of a kind, and ExpireWatch lets them expire too, so that they list again.
	BreakWatch  Action = "break-watch"
	ExpireWatch Action = "expire-watch"
	// HoldWatch holds back the events of a kind until FreeWatches, which frees those of all kinds.
	HoldWatch   Action = "hold-watch"
	FreeWatches Action = "free-watches"
	// StaleAfterWrite waits until the engine writes an object of a kind, holds back the events of that kind, and makes Count decisions.
	StaleAfterWrite Action = "stale-after-write"
	// SkipEvents holds back the events of a kind, makes Count decisions, and has the watch expire, so that what was between is not seen.
	SkipEvents Action = "skip-events"
	// SlowList does to a child what How says, which no watch shows, and has the list that follows be on its way while the engine writes a
	// child. It then holds back the events of the kind, and makes Count decisions.
	SlowList Action = "slow-list"
	// Intercept waits until the engine is about to write an object of a kind, and has somebody do to it what How says first.
	Intercept Action = "intercept"
	// RefuseWrite waits as Intercept does, refuses the write as a conflict though nobody has changed anything, and lets all come to rest.
	RefuseWrite Action = "refuse-write"
	// Undermine does to a child what How says while the engine does not see it and the parent comes to want something else. MissChange
	// does it where no watch shows it.
	Undermine  Action = "undermine"
	MissChange Action = "miss"
	// FaultyHooks has the next Count calls of hooks hang, be lost or be slow, as How says.
	FaultyHooks Action = "faulty-hooks"
	// ContestClaim takes a child from its parent, and has somebody else take it when the engine is about to claim it.
	ContestClaim Action = "contest-claim"
	// DoubtRevision has a composite roll out changes, and loses the response to the write of a revision, whose events are held back while
	// Count decisions are made: the object changes in them as How says.
	DoubtRevision Action = "doubt-revision"
	// TakeField has the definition of Gadgets lose a field that children have, lets time pass, changes a controller as How says, makes Count
	// decisions, and gives the field back.
	TakeField Action = "take-field"
	// Reselect kills the engine, has the object want of Deployments what no update can change, and starts the engine. With a Count it has
	// a controller recreate Deployments before, and makes that many decisions.
	Reselect Action = "reselect"
	// KillLate kills the engine when writes of it are under way, and starts it again after the time. They arrive after Count more decisions,
	// when the next engine has begun to work.
	KillLate Action = "kill-late"
	// KillAfterWrite kills the engine right after its Count-th write from now, and starts it again after the time.
	KillAfterWrite Action = "kill-after-write"
)

// What the scheduler does.
const (
	// RunOn makes Count decisions.
	RunOn Action = "run"
	// Pass lets time pass.
	Pass Action = "pass"
	// Rest lets everything come to rest.
	Rest Action = "rest"
)

// Table prints what happened in a history: who did what when, and which invariant was violated.
func Table(out io.Writer, h History, r Result) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "STEP\tAT\tWHO\tWHAT") // What cannot be written cannot be reported there either.
	for _, d := range r.Log {
		step := "end"
		if d.Step >= 0 && d.Step < len(h.Steps) {
			step = fmt.Sprintf("%d %s", d.Step, h.Steps[d.Step].Do)
		}
		_, _ = fmt.Fprintf(t, "%s\t%.3fs\t%s\t%s\n", step, d.At.Seconds(), d.Who, d.What)
	}
	_ = t.Flush()
	if r.Violation != nil {
		_, _ = fmt.Fprintf(out, "VIOLATED %v\n", r.Violation)
	}
}

// Pairs counts which action followed which.
type Pairs map[string]int

// Add adds the actions of a history.
func (p Pairs) Add(happened []Action) {
	for i := 1; i < len(happened); i++ {
		p[string(happened[i-1])+" "+string(happened[i])]++
	}
}

// Merge adds the counts of others.
func (p Pairs) Merge(others Pairs) {
	for pair, n := range others {
		p[pair] += n
	}
}

// Table says how many pairs there were, and which were not.
func (p Pairs) Table() string {
	var b strings.Builder
	var absent []string
	actions := acting()
	for _, first := range actions {
		for _, second := range actions {
			if first != second && p[string(first)+" "+string(second)] == 0 {
				absent = append(absent, string(first)+" → "+string(second))
			}
		}
	}
	all := len(actions) * (len(actions) - 1)
	fmt.Fprintf(&b, "%d of %d pairs of different actions followed each other.", all-len(absent), all)
	if len(absent) > 0 {
		fmt.Fprintf(&b, " Not: %s", strings.Join(absent[:min(len(absent), 20)], ", "))
	}
	return b.String()
}

// acting are the actions that are not the scheduler's.
func acting() []Action {
	var all []Action
	for _, a := range slices.Sorted(maps.Keys(actions)) {
		switch a {
		case RunOn, Pass, Rest:
		default:
			all = append(all, a)
		}
	}
	return all
}
