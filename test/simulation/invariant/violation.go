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

package invariant

import (
	"fmt"
	"time"
)

// Violation is an invariant that does not hold.
type Violation struct {
	// Invariant is its name.
	Invariant string
	// Source is where the specification says so.
	Source string
	// At is the time since the history began.
	At time.Duration
	// Detail says what was found.
	Detail string
}

// String says in a line what was violated, when, and how.
func (v *Violation) String() string {
	return fmt.Sprintf("%s at %v (%s): %s", v.Invariant, v.At, v.Source, v.Detail)
}

// Names of invariants, each with its source.
const (
	// KnowledgeIsFresh: a hook is not asked, and so nothing is written, on a state that an earlier write of the same controller for the
	// same parent made old.
	KnowledgeIsFresh = "knowledge-is-fresh"
	// GenerationShown: the observedGeneration that a status gets is one that the hook was shown.
	GenerationShown = "generation-shown"
	// WantedStays: what the last response wants as it is, is neither deleted nor recreated.
	WantedStays = "wanted-stays"
	// StrangersUntouched: objects that the controller does not own, and fields of others, are left alone.
	StrangersUntouched = "strangers-untouched"
	// FinalizerFirst: a controller that finalizes has its finalizer on the parent before its hook can ask for children.
	FinalizerFirst = "finalizer-first"
	// FinalizeAsked: the engine takes a finalizer off when the finalize hook said so, or when nobody is to be asked any more.
	FinalizeAsked = "finalize-asked"
	// ChildrenFirst: the finalizer comes off a parent that is not selected any more when the children are gone that its hook left out.
	ChildrenFirst = "children-first"
	// ChildrenStay: a child that stays without its parent has a keeper, and is not deleted with the parent.
	ChildrenStay = "children-stay"
	// HooksWithinLimit: no more calls of a controller's hooks are under way than it allows.
	HooksWithinLimit = "hooks-within-limit"
	// OneSyncAtATime: there is one sync of a parent and controller at a time.
	OneSyncAtATime = "one-sync-at-a-time"
	// ParentsAsSelected: hooks are asked about objects that the controller selects, and those that carry its finalizer still.
	ParentsAsSelected = "parents-as-selected"
	// PausedRests: while a controller is paused, and the engine knows it, no hook of it is asked, and nothing of it is written but its status. No
	// hook is asked about a parent that is shown as paused.
	PausedRests = "paused-rests"
	// DeletionsGuarded: no more children are deleted within a minute than the controller's guard allows, and deletions are held that
	// a response wants.
	DeletionsGuarded = "deletions-guarded"
	// ComesToRest: what users do has an end, and so has what the engine does about it: hooks are asked, and objects written, a limited number
	// of times for what has changed.
	ComesToRest = "comes-to-rest"
	// HooksNotBlamed: no Warning says of a hook that behaves well that its responses differ.
	HooksNotBlamed = "hooks-not-blamed"
	// PausesEnd: a parent that is held back is synced at once when something changes that its hook is shown.
	PausesEnd = "pauses-end"
	// UnrelatedIgnored: a change of the admission configuration that changes no stored value has nothing asked and nothing tried, and one that
	// may has each child tried once.
	UnrelatedIgnored = "unrelated-ignored"
	// ReadOnce: an object is read once for each of its versions, and not with each sync.
	ReadOnce = "read-once"
	// LatestSeen: at rest, the last request to the hook shows everything as it is now.
	LatestSeen = "latest-seen"
	// ChildrenAsWanted: at rest, the desired children are there as desired, and no others.
	ChildrenAsWanted = "children-as-wanted"
	// ParentAsWanted: at rest, the parent's status, labels and annotations are those of the last response.
	ParentAsWanted = "parent-as-wanted"
	// SyncedKept: at rest, the condition Synced of a parent that does not fail or wait is True and about its generation. Hooks are not shown it.
	SyncedKept = "synced-kept"
	// FinalizersAsDefined: at rest, objects have the finalizers of the controllers that finalize them, and no others.
	FinalizersAsDefined = "finalizers-as-defined"
	// ResyncWritesNothing: at rest, a resync writes nothing but counts and times, and tells of nothing.
	ResyncWritesNothing = "resync-writes-nothing"
	// ResyncAsks: at rest, the hook is asked about every parent again within the longest period of resyncs, and not more often than it says.
	ResyncAsks = "resync-asks"
	// RestartWritesNothing: at rest, an engine that starts anew writes nothing, and says the same of its controllers.
	RestartWritesNothing = "restart-writes-nothing"
	// ConditionsAsIs: at rest, conditions of controllers tell of nothing that has ended.
	ConditionsAsIs = "conditions-as-is"
	// Ready: at rest, controllers whose kinds are served are ready.
	Ready = "ready"
	// ErrorsTold: an error that lasts is told in a status or an event, and what a status tells of at rest has its cause still.
	ErrorsTold = "errors-told"
	// EditsSeen: an edit of a controller has an effect soon, even while one of its parents cannot be written.
	EditsSeen = "edits-seen"
	// InlineAgrees: an inline hook returns what a webhook returns that computes the same.
	InlineAgrees = "inline-agrees"
	// NothingRemembered: what is remembered of parents that are gone is gone.
	NothingRemembered = "nothing-remembered"
	// EverythingEnds: every goroutine ends with its engine.
	EverythingEnds = "everything-ends"
	// NoPanic: no input ends the engine or one of its goroutines.
	NoPanic = "no-panic"
)

const lawsOfTheEngine = "docs/architecture.md, laws of the engine"

var sources = map[string]string{
	KnowledgeIsFresh:     "docs/reference/compatibility.md#d5.2",
	GenerationShown:      "docs/reference/contract.md#s6",
	WantedStays:          "docs/reference/contract.md#s11",
	StrangersUntouched:   "docs/reference/contract.md#s8",
	FinalizerFirst:       "docs/reference/contract.md#s15",
	FinalizeAsked:        "docs/reference/contract.md#s15",
	ChildrenFirst:        "docs/reference/compatibility.md#d15",
	ChildrenStay:         "docs/reference/controllers.md#children-that-stay-without-their-parent",
	HooksWithinLimit:     "docs/reference/compatibility.md#d19.1",
	OneSyncAtATime:       "docs/architecture.md, how a change is reconciled",
	ParentsAsSelected:    "docs/reference/contract.md#s15",
	PausedRests:          "docs/reference/controllers.md#pausing-a-controller",
	DeletionsGuarded:     "docs/reference/controllers.md#guarding-deletions",
	ComesToRest:          "docs/reference/compatibility.md#d12.4",
	HooksNotBlamed:       "docs/reference/compatibility.md#d12.4",
	PausesEnd:            "docs/reference/controllers.md",
	UnrelatedIgnored:     lawsOfTheEngine,
	ReadOnce:             lawsOfTheEngine,
	LatestSeen:           "docs/reference/contract.md#s5.2",
	ChildrenAsWanted:     "docs/reference/contract.md#s11",
	ParentAsWanted:       "docs/reference/contract.md#s6",
	SyncedKept:           "docs/reference/controllers.md#the-condition-synced-of-parents",
	FinalizersAsDefined:  "docs/reference/compatibility.md#d15",
	ResyncWritesNothing:  lawsOfTheEngine,
	ResyncAsks:           "docs/reference/contract.md#s5.3",
	RestartWritesNothing: "docs/reference/compatibility.md#d13",
	ConditionsAsIs:       "docs/reference/compatibility.md#d4",
	Ready:                "docs/reference/compatibility.md#d4",
	ErrorsTold:           lawsOfTheEngine,
	EditsSeen:            lawsOfTheEngine,
	InlineAgrees:         "docs/design/0024-inline-hooks.md",
	NothingRemembered:    "docs/architecture.md, how a controller starts, changes and stops",
	EverythingEnds:       "docs/architecture.md, how a controller starts, changes and stops",
	NoPanic:              lawsOfTheEngine,
}

// New returns a violation of an invariant.
func New(invariant string, at time.Duration, format string, args ...any) *Violation {
	return &Violation{Invariant: invariant, Source: sources[invariant], At: at, Detail: fmt.Sprintf(format, args...)}
}
