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
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// pause pauses or resumes the controller.
func (w *world) pause(paused bool) {
	w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Paused = &paused })
	after(0)
}

// locked changes the world while nobody looks at it.
func (w *world) locked(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func TestAPauseIsShownAtOnceAndUntilTheControllerGoesOn(t *testing.T) {
	play(t, finalizing("services"), func(_ *testing.T, w *world) {
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionPaused, "none")
		w.is(func(s *reconciler.State) { s.UnderWay = 2 })
		w.pause(true)
		w.wantShows(v1alpha1.ConditionReady, "False Paused")
		w.wantShows(v1alpha1.ConditionPaused, "False Pausing", "2 left")
		w.is(func(s *reconciler.State) { s.UnderWay = 0 })
		after(time.Second)
		w.wantShows(v1alpha1.ConditionPaused, "True Paused")
		w.wantShows(v1alpha1.ConditionProgressing, "False Paused")
		w.wantShows(v1alpha1.ConditionHooksHealthy, "Unknown NotCalled")
		w.pause(false)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.wantShows(v1alpha1.ConditionPaused, "False NotPaused")
	})
}

func TestAControllerThatIsCreatedPausedIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := unfinalized(t)
		w.controller.Spec.Paused = new(true)
		defer w.run()()
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "False Paused")
		w.wantShows(v1alpha1.ConditionPaused, "True Paused")
		if n := w.published(); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

func TestAPausedControllerThatCannotRunSaysBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.missing["services"] = true
		defer w.run()()
		w.wantShows(v1alpha1.ConditionReady, "False ResourceNotFound")
		w.pause(true)
		w.wantShows(v1alpha1.ConditionReady, "False ResourceNotFound")
		w.wantShows(v1alpha1.ConditionPaused, "True Paused")
		w.pause(false)
		w.wantShows(v1alpha1.ConditionPaused, "False NotPaused")
	})
}

func TestNothingIsReleasedDuringAPause(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// change makes the finalizer of Services superfluous.
		change func(*world)
	}{
		"an edit during the pause": {"What is not declared any more waits.", func(w *world) { w.pause(true); w.declare("configmaps") }},
		"the hook goes": {"So does what is not finalized any more.", func(w *world) {
			w.pause(true)
			w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Hooks.Finalize = nil })
		}},
		"a pause during the release": {"What is under way ends.", func(w *world) {
			w.locked(func() { w.block("services") })
			w.declare("configmaps")
			w.pause(true)
			w.wantShows(v1alpha1.ConditionPaused, "False Pausing", "1 left")
		}},
		"a release that fails": {"It is not tried again.", func(w *world) {
			w.locked(func() { w.broken["services/ns/a"], w.broken["services/ns/b"] = errRefused, errRefused })
			w.declare("configmaps")
			w.pause(true)
			w.locked(func() { clear(w.broken) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "services")
				stop := w.run()
				tc.change(w)
				after(5 * time.Second)
				w.locked(func() { w.unblock("services") })
				w.took("")
				carried := w.carries()
				after(time.Hour)
				w.wantShows(v1alpha1.ConditionPaused, "True Paused")
				w.wantShows(v1alpha1.ConditionFinalizersReleased, "False Paused", "not paused any more")
				stop()
				stop = w.run()
				defer stop()
				after(time.Hour)
				equal(t, "released", w.took("release"), nil)
				equal(t, "with the finalizer", w.carries(), carried)
				w.pause(false)
				after(time.Minute)
				w.wantShows(v1alpha1.ConditionFinalizersReleased, "True Released")
				for _, name := range w.carries() {
					if name == "services/ns/a" || name == "services/ns/b" {
						t.Errorf("%s is not released after the pause: %s", name, tc.reason)
					}
				}
			})
		})
	}
}

// TestNothingIsLeftToReleaseOnceItIsDeclaredAgainDuringAPause gives a paused controller back what its definition did not finalize any more.
func TestNothingIsLeftToReleaseOnceItIsDeclaredAgainDuringAPause(t *testing.T) {
	for name, tc := range map[string]struct {
		// lose makes the finalizer of Services superfluous, regain takes that back.
		lose, regain func(*v1alpha1.DecoratorController)
	}{
		"the hook": {
			func(c *v1alpha1.DecoratorController) { c.Spec.Hooks.Finalize = nil },
			func(c *v1alpha1.DecoratorController) { c.Spec.Hooks.Finalize = &v1alpha1.Hook{} },
		},
		"the resource": {
			func(c *v1alpha1.DecoratorController) { c.Spec.Resources = rules("configmaps") },
			func(c *v1alpha1.DecoratorController) { c.Spec.Resources = rules("configmaps", "services") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, finalizing("services"), func(t *testing.T, w *world) {
				w.pause(true)
				w.write(tc.lose)
				after(time.Minute)
				w.wantShows(v1alpha1.ConditionFinalizersReleased, "False Paused", "not paused any more")
				w.write(tc.regain)
				after(time.Minute)
				w.wantShows(v1alpha1.ConditionPaused, "True Paused")
				w.wantShows(v1alpha1.ConditionFinalizersReleased, "True Released")
				w.pause(false)
				after(time.Minute)
				w.wantShows(v1alpha1.ConditionFinalizersReleased, "True Released")
				equal(t, "released", w.took("release"), nil)
			})
		})
	}
}

func TestAPausedControllerThatIsDeletedReleasesItsParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.controller.Finalizers = []string{"example.com/other"}
		defer w.run()()
		w.pause(true)
		after(time.Minute)
		w.delete()
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "False Terminating")
		equal(t, "with the finalizer", w.carries(), []string{})
		equal(t, "finalizers of the controller object", w.controller.Finalizers, []string{"example.com/other"})
	})
}

func TestAPauseAndItsEndWithinOneReleaseLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services", "secrets")
		w.block("services")
		defer w.run()()
		w.declare("configmaps")
		w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Paused = new(true) })
		w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Paused = nil })
		after(0)
		w.locked(func() { w.unblock("services") })
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "True Released")
		equal(t, "recorded", w.recorded(), []string{"configmaps"})
	})
}
