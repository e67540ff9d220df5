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
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// unfinalized returns a world whose controller has no finalize hook: nothing has to be written before it runs.
func unfinalized(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "services")
	w.controller.Spec.Hooks.Finalize = nil
	return w
}

func TestAStartIsOneWriteThatWaitsForClients(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		// early and late are the numbers of writes before and after a second has passed.
		early, late int
	}{
		"Created":  {"A client that updates what it created finds it in the version that it got.", func(*world) {}, 0, 1},
		"Missing":  {"A failure is told at once.", func(w *world) { w.missing["services"] = true }, 1, 1},
		"Watching": {"What cannot be watched may be watched a moment later.", func(w *world) { w.problem = errors.New("forbidden") }, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := unfinalized(t)
				tc.change(w)
				defer w.run()()
				<-time.After(990 * time.Millisecond)
				synctest.Wait()
				if w.published() != tc.early {
					t.Errorf("%d writes within a second, want %d: %s", w.published(), tc.early, tc.reason)
				}
				after(20 * time.Millisecond)
				after(time.Minute)
				if w.published() != tc.late {
					t.Errorf("%d writes, want %d: %s", w.published(), tc.late, tc.reason)
				}
			})
		})
	}
}

func TestARestartWithoutNewsWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := unfinalized(t)
		w.run()()
		stop := w.run()
		after(time.Minute)
		stop()
		before := w.published()
		stop = w.run()
		defer stop()
		after(time.Hour)
		if w.published() != before {
			t.Errorf("%d writes after a restart", w.published()-before)
		}
	})
}

func TestEveryConditionIsAboutTheLatestGeneration(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		w.declare("configmaps")
		after(time.Minute)
		if n := w.published() - before; n != 1 {
			t.Errorf("an edit is %d writes, want 1", n)
		}
		for _, name := range []string{
			v1alpha1.ConditionReady, v1alpha1.ConditionEstablished, v1alpha1.ConditionHooksHealthy, v1alpha1.ConditionProgressing,
		} {
			c := meta.FindStatusCondition(w.controller.Status.Conditions, name)
			if c == nil || c.ObservedGeneration != 2 || c.Reason == "" || c.Message == "" {
				t.Errorf("condition %s is %+v", name, c)
			}
		}
	})
}

func TestFailuresOfHooksAreToldWithinTwoSeconds(t *testing.T) {
	play(t, unfinalized, func(_ *testing.T, w *world) {
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionHooksHealthy, "Unknown NotCalled")
		dead := reconciler.FailingHook{Name: "sync", Since: time.Now(), Cause: "connection refused", Blocking: true}
		w.is(func(s *reconciler.State) { s.Called, s.Hooks = true, []reconciler.FailingHook{dead} })
		after(time.Second)
		w.wantShows(v1alpha1.ConditionReady, "False HookFailing", "connection refused")
		w.wantShows(v1alpha1.ConditionHooksHealthy, "False HookFailing", "sync hook", "connection refused")
		w.wantShows(v1alpha1.ConditionEstablished, "True Established")
		w.is(func(s *reconciler.State) { s.Hooks[0].Cause = "500" })
		after(time.Second)
		w.wantShows(v1alpha1.ConditionHooksHealthy, "False HookFailing", "500")
		w.is(func(s *reconciler.State) { s.Hooks = nil })
		after(time.Second)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.wantShows(v1alpha1.ConditionHooksHealthy, "True Responding")
	})
}

// TestWhatDoesNotGoAwayIsStalled has a controller get into a state and out of it again.
func TestWhatDoesNotGoAwayIsStalled(t *testing.T) {
	account := access.State{Account: "ns/a", Known: true}
	for name, tc := range map[string]struct {
		reason string
		change func(*reconciler.State)
		want   string
	}{
		"HookFailing": {
			"Somebody has to start the hook.",
			func(s *reconciler.State) {
				s.Called, s.Hooks = true, []reconciler.FailingHook{{Name: "sync", Since: time.Now(), Cause: "refused; start it", Blocking: true}}
			}, "refused; start it",
		},
		"CredentialsMissing": {
			"Somebody has to create the Secret.", func(s *reconciler.State) {
				s.Hooks = []reconciler.FailingHook{{Name: "sync", Since: time.Now(), Cause: "no Secret", Blocking: true, Credentials: true}}
			}, "no Secret",
		},
		"SyncsFailing": {
			"Somebody has to correct what the error names.",
			func(s *reconciler.State) { s.Parents, s.Failing, s.Error = 2, 2, "things/ns/a: forbidden" }, "things/ns/a: forbidden",
		},
		"ServiceAccountNotFound": {
			"Somebody has to create it.",
			func(s *reconciler.State) {
				s.Permission = account
				s.Permission.NotFound, s.Permission.Held = true, true
			}, "Create it",
		},
		"RightMissing": {
			"Somebody has to grant it.",
			func(s *reconciler.State) {
				s.Permission = account
				s.Permission.NotImpersonated, s.Permission.Held = true, true
			}, "Grant it",
		},
		"RightsUnknown": {
			"The cluster is asked again.", func(s *reconciler.State) {
				s.Permission = access.State{Account: "ns/a", Problem: errors.New("timeout"), Held: true}
			}, "",
		},
		"Paused": {"That is what was asked for.", func(s *reconciler.State) { s.Paused = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, unfinalized, func(t *testing.T, w *world) {
				after(time.Minute)
				before := w.published()
				w.is(tc.change)
				after(3 * time.Second)
				w.wantShows(v1alpha1.ConditionReady, "False "+name)
				want := "none"
				if tc.want != "" {
					want = strings.TrimPrefix(w.shows(v1alpha1.ConditionReady), "False")
					w.wantShows(v1alpha1.ConditionStalled, tc.want)
				}
				if got := strings.TrimPrefix(w.shows(v1alpha1.ConditionStalled), "True"); got != want {
					t.Errorf("Stalled is %q, want %q: %s", got, want, tc.reason)
				}
				if n := w.published() - before; n != 1 {
					t.Errorf("%d writes, want 1", n)
				}
				w.is(func(s *reconciler.State) { *s = reconciler.State{Started: true} })
				after(3 * time.Second)
				w.wantShows(v1alpha1.ConditionReady, "True Running")
				if got := w.shows(v1alpha1.ConditionStalled); got != "none" {
					t.Errorf("Stalled is %q when it is over", got)
				}
				if n := w.published() - before; n != 2 {
					t.Errorf("%d writes, want 2", n)
				}
			})
		})
	}
}

func TestAControllerThatMayNotWatchIsStalled(t *testing.T) {
	forbidden := func(t *testing.T) *world {
		t.Helper()
		w := finalizing("services")(t)
		w.problem = apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no"))
		return w
	}
	play(t, forbidden, func(_ *testing.T, w *world) {
		w.wantShows(v1alpha1.ConditionReady, "False RightMissing Cannot watch")
		w.wantShows(v1alpha1.ConditionStalled, "True RightMissing Cannot watch")
	})
}

func TestAControllerThatDoesNotRunIsStalledUnlessItWaits(t *testing.T) {
	watching := func(t *testing.T) *world {
		t.Helper()
		w := finalizing("services")(t)
		w.problem = errors.New("forbidden")
		return w
	}
	play(t, watching, func(_ *testing.T, w *world) {
		w.wantShows(v1alpha1.ConditionReady, "False Starting Cannot watch")
		w.wantShows(v1alpha1.ConditionStalled, "none")
		w.serve(func() { w.problem, w.missing["services"] = nil, true })
		w.wantShows(v1alpha1.ConditionReady, "False ResourceNotFound")
		w.wantShows(v1alpha1.ConditionStalled, "none")
		w.serve(func() { delete(w.missing, "services") })
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.breaks("services/ns/a", errors.New("refused"))
		w.delete()
		w.wantShows(v1alpha1.ConditionReady, "False Terminating")
		w.wantShows(v1alpha1.ConditionStalled, "none")
	})
}

func TestSyncsThatFailForAMomentAreNoNews(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		all := func(failing int) {
			w.is(func(s *reconciler.State) { s.Parents, s.Failing, s.Error = 2, failing, "things/ns/a: forbidden" })
		}
		for range 10 {
			all(2)
			after(900 * time.Millisecond)
			all(1)
			after(900 * time.Millisecond)
		}
		if w.published() != before {
			t.Errorf("%d writes", w.published()-before)
		}
		all(2)
		after(1600 * time.Millisecond)
		w.wantShows(v1alpha1.ConditionReady, "False SyncsFailing", "things/ns/a: forbidden")
		all(0)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
	})
}

func TestNumbersInMessagesAreNotToldAtOnce(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		for left := 60; left > 0; left-- {
			w.is(func(s *reconciler.State) { s.Unsynced, s.Parents = left, 60 })
			after(time.Second)
		}
		if n := w.published() - before; n < 2 || n > 3 {
			t.Errorf("%d writes within a minute in which only a number changed, want one and another one every 30 s", n)
		}
		w.is(func(s *reconciler.State) { s.Unsynced = 0 })
		w.wantShows(v1alpha1.ConditionProgressing, "False Settled")
	})
}

func TestConditionsThatChangeAllTheTimeArePublishedLessOften(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		for n := range 600 {
			w.is(func(s *reconciler.State) {
				s.Called, s.Hooks = true, nil
				if n%2 == 0 {
					s.Hooks = []reconciler.FailingHook{{Name: "sync", Cause: "down", Since: time.Now()}}
				}
			})
			after(time.Second)
		}
		if n := w.published() - before; n > 10+600/5 {
			t.Errorf("%d writes within 10 minutes", n)
		}
		after(30 * time.Second)
		w.wantShows(v1alpha1.ConditionHooksHealthy, "True Responding")
	})
}

func TestAHookThatFailsInOtherWordsEachTimeIsPublishedRarely(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		for n := range 600 {
			w.is(func(s *reconciler.State) {
				s.Called, s.Hooks = true, []reconciler.FailingHook{{Name: "sync", Cause: "does not like " + string(rune('a'+n%26)), Since: time.Now()}}
			})
			after(time.Second)
			if n == 3 {
				w.wantShows(v1alpha1.ConditionHooksHealthy, "does not like d")
			}
		}
		if n := w.published() - before; n > 4+600/30 {
			t.Errorf("%d writes within 10 minutes", n)
		}
	})
}

func TestNumbersArePublishedWithin30Seconds(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		quantile, calls := int64(5), int64(7)
		change := func(n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.instance.hooks = []v1alpha1.HookStatus{{Name: "sync", Calls: calls, P50Milliseconds: new(quantile + int64(n))}}
			w.instance.errors = []v1alpha1.ParentError{{Resource: "things", Name: "a", Message: "boom", Time: metav1.NewTime(time.Unix(1, 0))}}
			w.active()
		}
		change(0)
		after(5 * time.Second)
		if s := w.controller.Status; len(s.Hooks) != 1 || s.Hooks[0].Calls != 7 || len(s.LastErrors) != 1 || s.LastErrors[0].Message != "boom" {
			t.Errorf("the status is %+v", s)
		}
		// It was published a moment ago.
		calls++
		change(0)
		after(30 * time.Second)
		if s := w.controller.Status; len(s.Hooks) != 1 || s.Hooks[0].Calls != 8 {
			t.Errorf("after 30 seconds the status is %+v", s)
		}
		// Between two looks at the numbers a condition is published.
		after(2 * time.Second)
		w.is(func(s *reconciler.State) {
			s.Called, s.Hooks = true, []reconciler.FailingHook{{Name: "sync", Since: time.Now(), Cause: "boom", Blocking: true}}
		})
		after(time.Second)
		calls++
		change(0)
		after(30 * time.Second)
		if s := w.controller.Status; s.Hooks[0].Calls != 9 {
			t.Errorf("30 seconds after a condition was published the status is %+v", s)
		}
		before += 2
		// How long calls take changes without calls.
		for n := range 100 {
			change(n)
			after(10 * time.Second)
		}
		if n := w.published() - before; n != 2 {
			t.Errorf("%d writes, want 2", n)
		}
	})
}

func TestAControllerThatDoesNotRunSaysSoEverywhere(t *testing.T) {
	play(t, finalizing("services"), func(_ *testing.T, w *world) {
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.serve(func() { w.missing["services"] = true })
		w.wantShows(v1alpha1.ConditionReady, "False ResourceNotFound")
		w.wantShows(v1alpha1.ConditionEstablished, "False ResourceNotFound", "services")
		w.wantShows(v1alpha1.ConditionHooksHealthy, "Unknown NotRunning")
		w.wantShows(v1alpha1.ConditionProgressing, "False NotRunning")
	})
}

// TestADeletedControllerComplainsOfNoMissingResource deletes a controller while the cluster does not serve what it needs, and keeps its finalizer
// from being taken off.
func TestADeletedControllerComplainsOfNoMissingResource(t *testing.T) {
	play(t, finalizing("services"), func(_ *testing.T, w *world) {
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.breaks("services/ns/a", errors.New("refused"))
		w.declare("configmaps")
		w.serve(func() { w.missing["configmaps"] = true })
		w.wantShows(v1alpha1.ConditionResourcesServed, "False ResourceNotFound")
		w.delete()
		w.wantShows(v1alpha1.ConditionReady, "False Terminating")
		w.wantShows(v1alpha1.ConditionResourcesServed, "Unknown NotRunning")
	})
}

// TestADeletedControllerDoesNotSayWhatIsServed keeps the finalizer from being taken off, so that the controller object stays.
func TestADeletedControllerDoesNotSayWhatIsServed(t *testing.T) {
	play(t, finalizing("services"), func(_ *testing.T, w *world) {
		w.wantShows(v1alpha1.ConditionResourcesServed, "True Served")
		w.breaks("services/ns/a", errors.New("refused"))
		w.delete()
		w.wantShows(v1alpha1.ConditionReady, "False Terminating")
		w.wantShows(v1alpha1.ConditionResourcesServed, "Unknown NotRunning")
	})
}

func TestProgressingTellsOfTheRelease(t *testing.T) {
	play(t, finalizing("services"), func(_ *testing.T, w *world) {
		w.breaks("services/ns/a", errors.New("refused"))
		w.declare("configmaps")
		w.wantShows(v1alpha1.ConditionProgressing, "True Releasing", "services/ns/a: refused")
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.delete()
		w.wantShows(v1alpha1.ConditionReady, "False Terminating")
		w.wantShows(v1alpha1.ConditionProgressing, "True Releasing", "services/ns/a: refused")
	})
}

func TestHealthIsReadSoonAfterSomethingHappenedAndElseRarely(t *testing.T) {
	play(t, unfinalized, func(t *testing.T, w *world) {
		after(time.Minute)
		read := func(d time.Duration) int {
			before := w.instance.reads.Load()
			after(d)
			return int(w.instance.reads.Load() - before)
		}
		if n := read(time.Hour); n < 60*60/5-2 || n > 60*60/5+1 {
			t.Errorf("health of an idle instance was read %d times within an hour", n)
		}
		for range 3 {
			w.is(func(*reconciler.State) {})
			if n := read(500 * time.Millisecond); n != 1 {
				t.Errorf("health was read %d times within half a second after something happened", n)
			}
			if n := read(10 * time.Second); n < 5 || n > 9 {
				t.Errorf("health was read %d times within the ten seconds that followed, want six for a while and one or two after it", n)
			}
		}
		for range 100 {
			w.is(func(*reconciler.State) {})
			after(10 * time.Millisecond)
		}
		if n := read(time.Millisecond); n > 1 {
			t.Errorf("health was read %d times within a millisecond", n)
		}
	})
}
