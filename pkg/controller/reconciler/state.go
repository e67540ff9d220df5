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

package reconciler

import (
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
)

// State is what a running controller knows of how it is doing. Package manager publishes the conditions that follow from it.
type State struct {
	// Started says that the caches are filled and parents are reconciled.
	Started bool
	// Problem says why the controller cannot list or watch its objects, nil if it can.
	Problem error
	// Missing are the declared resources that the cluster does not serve and that the controller does without.
	Missing []string
	// Hooks are the hooks of which all recent calls have failed.
	Hooks []FailingHook
	// Called says that the outcome of a call of a hook is known.
	Called bool
	// Parents is the number of parents, Failing that of those whose last sync failed, and Unserved that of those among them that could not be
	// given children of kinds that the cluster does not serve, and with which nothing else was wrong.
	Parents, Failing, Unserved int
	// Error is the error of the parent whose syncs have failed for the longest time, with its name; empty if there is none. Parents that
	// Unserved counts are left out.
	Error string
	// Unsynced is the number of parents that were not synced since the start; zero from the moment at which all were.
	Unsynced int
	// Rolling is the number of parents with a rolling update under way, and Outdated that of their children that are not on the latest
	// revision.
	Rolling, Outdated int
	// Finalizing is the number of parents for which the finalize hook has not returned "finalized": true for a minute, or whose syncs fail until
	// it does. FinalizingAt says of one of them which it is, what is wrong, and what to do.
	Finalizing   int
	FinalizingAt string
	// Differing is the number of parents about which the hook returns something else each time, and ChangedBack that of parents to which
	// another client writes what the controller wrote before. DiffersAt and ChangedBackAt say of the last one which place that is and what
	// to do.
	Differing, ChangedBack   int
	DiffersAt, ChangedBackAt string
	// Permission is what the controller's service account may do.
	Permission access.State
	// Releasing says how far the release of finalizers is, empty if none is under way.
	Releasing string
	// Paused says that the definition pauses the controller, UnderWay how many syncs, and releases of a finalizer, are under way, and Object
	// what kubectl names the controller object.
	Paused   bool
	UnderWay int
	Object   string
	// Held says which deletions are held and how to confirm them, empty if none is.
	Held string
	// SyncsFailing says that the last sync of every parent has failed, and not only for a moment.
	SyncsFailing bool
}

// FailingHook is a hook of which all recent calls have failed.
type FailingHook struct {
	// Name is that of the hook in spec.hooks.
	Name string
	// Since is when the first of these calls failed.
	Since time.Time
	// Cause is why the last of them failed, and what to do.
	Cause string
	// Credentials says that a Secret or ConfigMap is missing or cannot be used.
	Credentials bool
	// Blocking says that no sync can succeed until the hook can be called again.
	Blocking bool
}

// AllFailing reports whether the last sync of every parent has failed. Where a kind is not served, syncs do what they can and fail all the same:
// those do not count.
func (s *State) AllFailing() bool { return s.Parents > 0 && s.Failing-s.Unserved >= s.Parents }
