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

package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

var since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// dead is a sync hook that cannot be reached.
func dead() reconciler.FailingHook {
	return reconciler.FailingHook{Name: "sync", Since: since, Cause: "calling http://h: connection refused; start the hook", Blocking: true}
}

func show(t *testing.T, conditions []metav1.Condition, name string) string {
	t.Helper()
	c := meta.FindStatusCondition(conditions, name)
	if c == nil {
		t.Fatalf("there is no condition %s", name)
	}
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

func TestConditions(t *testing.T) {
	running := reconciler.State{Started: true, Called: true, Parents: 4}
	for name, tc := range map[string]struct {
		reason                              string
		change                              func(*reconciler.State)
		ready, established, hooks, progress string
	}{
		"Runs": {
			"All is well.", func(*reconciler.State) {},
			"True Running", "True Established", "True Responding", "False Settled",
		},
		"Starts": {
			"Nothing is reconciled before the caches are filled.", func(s *reconciler.State) { *s = reconciler.State{} },
			"False Starting Reading", "False Starting Reading", "Unknown NotCalled", "False Settled",
		},
		"CannotWatch": {
			"The message has the error, before and after the start.", func(s *reconciler.State) { s.Problem = errors.New("pods is forbidden") },
			"False Starting Cannot watch: pods is forbidden", "False Starting Cannot watch: pods is forbidden", "True Responding", "False Settled",
		},
		"MayNotWatch": {
			"It lasts until somebody grants it.", func(s *reconciler.State) {
				s.Problem = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
			},
			"False RightMissing Cannot watch: pods is forbidden", "False RightMissing Cannot watch: pods is forbidden", "True Responding", "False Settled",
		},
		"KindIsMissing": {
			"The rest runs on, so Ready stays True although syncs say what they could not do.",
			func(s *reconciler.State) {
				s.Missing, s.Failing, s.Unserved = []string{"foos in example.com/v1"}, 4, 4
			},
			"True Running", "False ResourceNotFound The cluster does not serve foos in example.com/v1.", "True Responding", "False Settled",
		},
		"KindIsMissingAndSyncsFailForAnotherReason": {
			"What is missing explains nothing.",
			func(s *reconciler.State) {
				s.Missing, s.Failing, s.SyncsFailing, s.Error = []string{"foos in example.com/v1"}, 4, true, "things.example.com ns/a: boom"
			},
			"False SyncsFailing The last sync of every parent has failed, for the longest time that of things.example.com ns/a: boom.",
			"False ResourceNotFound The cluster does not serve foos in example.com/v1.", "True Responding", "False Settled",
		},
		"HookIsDead": {
			"No sync can succeed; hook, time, cause and cure are named.", func(s *reconciler.State) { s.Hooks = []reconciler.FailingHook{dead()} },
			"False HookFailing No sync can succeed. The sync hook fails since 2026-01-02T03:04:05Z: calling http://h: connection refused; start the hook.",
			"True Established",
			"False HookFailing The sync hook fails since 2026-01-02T03:04:05Z: calling http://h: connection refused; start the hook.",
			"False Settled",
		},
		"HookFailsForSome": {
			"Other syncs can succeed.", func(s *reconciler.State) {
				s.Hooks, s.Failing = []reconciler.FailingHook{{Name: "finalize", Since: since, Cause: "500."}}, 3
			},
			"True Running", "True Established", "False HookFailing The finalize hook fails since 2026-01-02T03:04:05Z: 500.", "False Settled",
		},
		"HookFailsForAll": {
			"Every sync has failed, and the hook is why.", func(s *reconciler.State) {
				s.Hooks, s.Failing, s.SyncsFailing = []reconciler.FailingHook{{Name: "sync", Since: since, Cause: "500"}}, 4, true
			},
			"False HookFailing The last sync of every parent has failed. The sync hook fails", "True Established", "False HookFailing", "False Settled",
		},
		"SyncsFailForAll": {
			"Every sync has failed, and no hook is why: a write is refused, for example.", func(s *reconciler.State) {
				s.Failing, s.SyncsFailing, s.Error = 4, true, "things/ns/a: forbidden"
			},
			"False SyncsFailing The last sync of every parent has failed, for the longest time that of things/ns/a: forbidden. Correct", "True Established",
			"True Responding", "False Settled",
		},
		"MayNotReadWhatHooksAreShown": {
			"Nothing goes on, whatever was under way.", func(s *reconciler.State) {
				s.Permission = access.State{Account: "a/b", Known: true, Held: true, Missing: []rights.Right{{Verb: rights.List, Resource: "pods"}}}
				s.Rolling, s.Outdated, s.Finalizing = 1, 2, 1
			},
			"False RightMissing", "True Established", "True Responding",
			"False RightMissing Nothing is done until the service account may read what hooks are shown: see the condition Permitted. Updating children",
		},
		"SyncsFailForAMoment": {
			"A retry may follow at once.", func(s *reconciler.State) { s.Failing = 4 },
			"True Running", "True Established", "True Responding", "False Settled",
		},
		"CredentialsAreMissing": {
			"A reason of its own.", func(s *reconciler.State) {
				s.Hooks = []reconciler.FailingHook{{Name: "sync", Since: since, Cause: "Secret ns/s: not found", Credentials: true, Blocking: true}}
			},
			"False CredentialsMissing No sync can succeed. The sync hook cannot be called since", "True Established",
			"False CredentialsMissing The sync hook cannot be called since 2026-01-02T03:04:05Z: Secret ns/s: not found.", "False Settled",
		},
		"TwoHooksFail": {
			"Both are named; credentials are not the reason of both.", func(s *reconciler.State) {
				s.Hooks = []reconciler.FailingHook{dead(), {Name: "customize", Since: since, Cause: "Secret ns/s: not found", Credentials: true}}
			},
			"False HookFailing No sync", "True Established", "False HookFailing The sync hook fails since 2026-01-02T03:04:05Z: calling http://h: " +
				"connection refused; start the hook. The customize hook cannot be called since 2026-01-02T03:04:05Z: Secret ns/s: not found.",
			"False Settled",
		},
		"FirstSync": {
			"It says how many are left.", func(s *reconciler.State) { s.Unsynced = 3 },
			"True Running", "True Established", "True Responding", "True FirstSync Syncing every parent once since the start; 3 of 4 left.",
		},
		"All at once": {
			"One condition, one reason, all sentences.", func(s *reconciler.State) {
				s.Unsynced, s.Rolling, s.Outdated, s.Releasing = 1, 2, 7, "Taking the finalizer f off; 9 left."
			},
			"True Running", "True Established", "True Responding", "True FirstSync Syncing every parent once since the start; 1 of 4 left. " +
				"Updating children to the latest revision; 7 left, of 2 parents. The condition Updated of a parent says what it waits for. " +
				"Taking the finalizer f off; 9 left.",
		},
		"Finalizing": {
			"Somebody waits for a parent to go.", func(s *reconciler.State) { s.Finalizing, s.FinalizingAt = 2, "things/ns/a, with the error forbidden." },
			"True Running", "True Established", "True Responding",
			`True Finalizing The finalize hook has not returned "finalized": true for 2 parents, and they stay until it does. See the log of the hook, or what an inline one has in finalized, ` +
				"and the events of the parents, or of this object where their namespace is being deleted. It takes longest for things/ns/a, with the error forbidden.",
		},
		"Paused": {
			"Whoever waits for Ready is not told that syncs can succeed. What is left is told as well.", func(s *reconciler.State) {
				s.Paused, s.Object, s.Rolling, s.Outdated = true, "compositecontroller/c", 1, 3
				s.Hooks, s.SyncsFailing, s.Failing = []reconciler.FailingHook{dead()}, true, 4
			},
			"False Paused spec.paused is true: no hook is called", "True Established", "False HookFailing",
			"False Paused Nothing is done while the controller is paused. Updating children",
		},
		"Pausing": {
			"Syncs end.", func(s *reconciler.State) { s.Paused, s.UnderWay, s.Unsynced = true, 2, 3 },
			"False Paused", "True Established", "True Responding", "True FirstSync",
		},
		"RollingUpdate": {
			"The last child is updated, and not ready.", func(s *reconciler.State) { s.Rolling = 1 },
			"True Running", "True Established", "True Responding", "True RollingUpdate Updating children to the latest revision; 0 left, of 1 parent.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := running
			tc.change(&s)
			conditions := state{&s}.conditions()
			if conditions[0].Type != v1alpha1.ConditionReady {
				t.Errorf("the first condition is %s", conditions[0].Type)
			}
			for condition, want := range map[string]string{
				v1alpha1.ConditionReady: tc.ready, v1alpha1.ConditionEstablished: tc.established,
				v1alpha1.ConditionHooksHealthy: tc.hooks, v1alpha1.ConditionProgressing: tc.progress,
			} {
				if got := show(t, conditions, condition); !strings.HasPrefix(got, want) {
					t.Errorf("%s is %q, want %q…: %s", condition, got, want, tc.reason)
				}
			}
		})
	}
}

func TestNotRunning(t *testing.T) {
	for releasing, progress := range map[string]string{
		"":                    "False NotRunning",
		"Taking it off; left": "True Releasing Taking it off; left",
	} {
		conditions := conditionsNotRunning("Terminating", "It is being deleted.", releasing)
		for condition, want := range map[string]string{
			v1alpha1.ConditionReady: "False Terminating It is being deleted.", v1alpha1.ConditionEstablished: "False Terminating It is being deleted.",
			v1alpha1.ConditionHooksHealthy: "Unknown NotRunning", v1alpha1.ConditionProgressing: progress,
			v1alpha1.ConditionPermitted: "Unknown NotRunning",
		} {
			if got := show(t, conditions, condition); !strings.HasPrefix(got, want) {
				t.Errorf("releasing %q: %s is %q, want %q…", releasing, condition, got, want)
			}
		}
	}
}

func TestAllFailing(t *testing.T) {
	for s, want := range map[*reconciler.State]bool{
		{}: false, {Parents: 2, Failing: 1}: false, {Parents: 2, Failing: 2}: true, {Parents: 1, Failing: 2}: true, {Failing: 1}: false,
		{Parents: 2, Failing: 2, Unserved: 1}: false, // One of them does what can be done.
	} {
		if got := s.AllFailing(); got != want {
			t.Errorf("%d of %d: %v", s.Failing, s.Parents, got)
		}
	}
}

func TestBrakes(t *testing.T) {
	for name, tc := range map[string]struct {
		state        reconciler.State
		paused, held string
	}{
		"Nothing": {reconciler.State{}, "False NotPaused", "False NoneHeld"},
		"Paused": {
			reconciler.State{Paused: true, Object: "decoratorcontroller/d"}, "True Paused spec.paused is true: no hook is called, and nothing is " +
				"written to parents, children and revisions. Changes are noted, and synced when it is false again: kubectl patch " +
				`decoratorcontroller/d --type=merge -p '{"spec":{"paused":false}}'`, "False NoneHeld",
		},
		"Pausing":   {reconciler.State{Paused: true, UnderWay: 3}, "False Pausing spec.paused is true. Ending what is under way: 3 left.", "False NoneHeld"},
		"Not again": {reconciler.State{UnderWay: 3}, "False NotPaused", "False NoneHeld"},
		"Held":      {reconciler.State{Held: "5 deletions are held."}, "False NotPaused", "True LimitPassed 5 deletions are held."},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := []metav1.Condition{state{&tc.state}.pausing(), state{&tc.state}.holding()}
			for condition, want := range map[string]string{v1alpha1.ConditionPaused: tc.paused, v1alpha1.ConditionDeletionsHeld: tc.held} {
				if got := show(t, conditions, condition); !strings.HasPrefix(got, want) {
					t.Errorf("%s is %q, want %q…", condition, got, want)
				}
			}
		})
	}
}

func TestPermitted(t *testing.T) {
	account := access.State{Account: "team/web", Known: true}
	with := func(change func(*access.State)) access.State {
		p := account
		change(&p)
		return p
	}
	pods := []rights.Right{{Verb: rights.List, Resource: "pods"}, {Verb: rights.Watch, Resource: "pods"}}
	const lacks = "False RightMissing The service account team/web lacks, in all namespaces unless one is named: list, watch pods. Grant that to it; " +
		`"metacontroller-apiserver rbac compositecontroller/web" prints all that the controller needs. The server looks again every 30 seconds.`
	for name, tc := range map[string]struct {
		permission       access.State
		permitted, ready string
	}{
		"no account": {access.State{}, "True ServerRights", "True Running"},
		"all rights": {account, "True Permitted The service account team/web has", "True Running"},
		"before the first review": {
			with(func(p *access.State) { p.Known, p.Held = false, true }),
			"Unknown Starting Asking the cluster what the service account team/web may do.", "False Starting Asking the cluster",
		},
		"no response": {
			with(func(p *access.State) { p.Known, p.Held, p.Problem = false, true, errors.New("no") }),
			"Unknown RightsUnknown The cluster does not say what the service account team/web may do: no.", "False RightsUnknown",
		},
		"no response for a moment": {with(func(p *access.State) { p.Problem = errors.New("no") }), "True Permitted", "True Running"},
		"no such account": {
			with(func(p *access.State) { p.Held, p.NotFound = true, true }),
			"False ServiceAccountNotFound The service account team/web does not exist. Create it, or change spec.serviceAccountRef. No parent is synced until then.",
			"False ServiceAccountNotFound",
		},
		"a server that may not act as it": {
			with(func(p *access.State) { p.Held, p.NotImpersonated = true, true }),
			"False RightMissing The server lacks: impersonate serviceaccounts team/web. Grant it to the server;", "False RightMissing",
		},
		"a right to read is missing": {
			with(func(p *access.State) { p.Held, p.Missing = true, pods }),
			lacks + " No parent is synced before the account may list and watch what hooks are shown.", "False RightMissing The service account",
		},
		"a right to write is missing": {with(func(p *access.State) { p.Missing = pods }), lacks, "True Running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := reconciler.State{Started: true, Called: true, Parents: 4, Permission: tc.permission, Object: "compositecontroller/web"}
			for condition, want := range map[string]string{v1alpha1.ConditionPermitted: tc.permitted, v1alpha1.ConditionReady: tc.ready} {
				if got := show(t, state{&s}.conditions(), condition); !strings.HasPrefix(got, want) {
					t.Errorf("%s is %q, want %q…", condition, got, want)
				}
			}
		})
	}
}
