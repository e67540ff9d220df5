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

package finalizers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// releasedCondition is the condition that tells of finalizers that are being taken off.
	releasedCondition = "FinalizersReleased"
	// observed is how long attempts are counted, and fewAttempts how many there may be for one object in that time.
	observed, fewAttempts = 10 * time.Second, 20
)

func notServed(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse }

// serves reports whether the API server serves a resource.
func (s *stage) serves(r schema.GroupVersionResource) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		if _, err := s.Resource(r).List(ctx, metav1.ListOptions{}); err != nil {
			return false, err.Error()
		}
		return true, ""
	}
}

// removalIsDenied has the finalizer's removal refused.
func removalIsDenied(t *testing.T, e *fixture.Environment) {
	for _, c := range []struct {
		name string
		run  func(*stage)
	}{
		{"AnEditedControllerRunsOn", editedWhileDenied},
		{"AnEditThatIsTakenBackIsNoticed", takenBack},
		{"ADeletedControllerSaysWhatHoldsIt", deletedWhileDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newStage(t, e, fixture.Composite, fixture.Things))
		})
	}
}

// denied runs a controller with one parent, of which it cannot take the finalizer.
func (s *stage) denied() (*controllers.Controller, *warden) {
	s.T.Helper()
	w := s.newWarden()
	running := s.Run(s.definition)
	s.Parent("held", nil)
	s.Await(fixture.Things, "held", "to have the finalizer", s.carries)
	return running, w
}

// otherKind has the controller's parents be ClusterThings, or Things again.
func otherKind(c *controllers.Controller, resource string) {
	c.Patch(`{"spec":{"parentResource":{"resource":"` + resource + `"}}}`)
}

func (s *stage) namesHeld(c metav1.Condition) bool {
	return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "held") && strings.Contains(c.Message, "the warden is closed")
}

// fewAttempts counts refused attempts from now on.
func (s *stage) backsOff(w *warden) {
	s.T.Helper()
	w.set(false)
	select {
	case <-s.T.Context().Done():
	case <-time.After(observed):
	}
	n := w.attempts()
	s.T.Logf("%d attempts to take one finalizer off in %v", n, observed)
	if n >= fewAttempts {
		s.T.Errorf("%d attempts in %v to take off one finalizer, want fewer than %d", n, observed, fewAttempts)
	}
}

func editedWhileDenied(s *stage) {
	running, w := s.denied()
	otherKind(running, "clusterthings")
	running.AwaitReady()
	s.Selected(fixture.ClusterThings, s.Name, nil)
	s.In("").Await(fixture.ClusterThings, s.Name, "to have the finalizer", s.carries)
	running.AwaitCondition(releasedCondition, "to name what is held", s.namesHeld)
	s.backsOff(w)
	w.set(true)
	s.Await(fixture.Things, "held", "to be released", s.released)
	running.AwaitCondition(releasedCondition, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
}

func takenBack(s *stage) {
	running, w := s.denied()
	otherKind(running, "clusterthings")
	running.AwaitReady()
	otherKind(running, "things")
	running.AwaitReady()
	before := s.script.Calls("held")
	s.Patch(fixture.Things, "held", `{"spec":{"changed":"1"}}`)
	s.script.AwaitCalls(s.T, "held", before+1)
	// Whoever would still take the finalizer off could do so from now on.
	running.AwaitCondition(releasedCondition, "to name nothing that is held", func(c metav1.Condition) bool {
		return c.Status == "" || c.Status == metav1.ConditionTrue
	})
	w.set(true)
	s.Settle()
	if o := s.Get(fixture.Things, "held"); !s.carries(o) {
		s.T.Errorf("the parent is selected again and has the finalizers %v", o.GetFinalizers())
	}
}

func deletedWhileDenied(s *stage) {
	running, w := s.denied()
	running.Delete()
	running.AwaitCondition(releasedCondition, "to name what is held", s.namesHeld)
	s.backsOff(w)
	w.set(true)
	s.Await(fixture.Things, "held", "to be released", s.released)
	running.AwaitGone()
}

// restartWhileReleasing restarts the server between the edit of a controller and the release of its former parents.
func restartWhileReleasing(t *testing.T, e *fixture.Environment) {
	for _, kill := range []bool{false, true} {
		t.Run(map[bool]string{false: "Stopped", true: "Killed"}[kill], func(t *testing.T) {
			s := newStage(t, e, fixture.Composite, fixture.Things)
			running, w := s.denied()
			otherKind(running, "clusterthings")
			running.AwaitCondition("Ready", "to be about the edit", func(c metav1.Condition) bool { return c.ObservedGeneration > 1 })
			if kill {
				e.Server.Kill()
			} else if err := e.Server.Stop(); err != nil {
				t.Fatal(err)
			}
			e.Server.Restart()
			running.AwaitReady()
			if o := s.Get(fixture.Things, "held"); !s.carries(o) {
				t.Errorf("the finalizers are %v although nobody could take one off", o.GetFinalizers())
			}
			w.set(true)
			s.Await(fixture.Things, "held", "to be released", s.released)
		})
	}
}

// targets is how many objects a decorator has of each kind.
const targets = 5

// edits changes which kinds a decorator finalizes. No object of a kind that it still names may lose its finalizer.
func edits(t *testing.T, e *fixture.Environment) {
	e.DefineManifests(t, fixture.DualManifest("edited", "Edited", "v1alpha1", "v1"))
	older, newer := fixture.Dual("v1alpha1", "edited"), fixture.Dual("v1", "edited")
	for _, c := range []struct {
		name          string
		before, after []schema.GroupVersionResource
	}{
		{"AKindIsAdded", []schema.GroupVersionResource{fixture.ConfigMaps}, []schema.GroupVersionResource{fixture.ConfigMaps, fixture.Secrets}},
		{"AKindIsAddedInFront", []schema.GroupVersionResource{fixture.ConfigMaps}, []schema.GroupVersionResource{fixture.Secrets, fixture.ConfigMaps}},
		{"KindsAreReordered", []schema.GroupVersionResource{fixture.ConfigMaps, fixture.Secrets}, []schema.GroupVersionResource{fixture.Secrets, fixture.ConfigMaps}},
		{"AnotherVersionOfAKind", []schema.GroupVersionResource{older}, []schema.GroupVersionResource{newer}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, e, fixture.Decorator, c.before...)
			running := s.Run(s.definition)
			for i := range targets {
				s.target(c.before[0], targetName(i))
			}
			for i := range targets {
				s.Await(c.before[0], targetName(i), "to have the finalizer", s.carries)
			}
			found := s.watch(c.before[0])
			running.Patch(`{"spec":{"resources":` + s.resources(c.after...) + `}}`)
			running.AwaitReady()
			// What the new definition names works.
			last := c.after[len(c.after)-1]
			s.target(last, "late")
			s.Await(last, "late", "to have the finalizer", s.carries)
			s.keptFinalizers(c.before[0], targetName(0), found)
		})
	}
	t.Run("AKindIsRemoved", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, e, fixture.Decorator, fixture.ConfigMaps, fixture.Secrets)
		running := s.Run(s.definition)
		s.target(fixture.ConfigMaps, "kept")
		s.target(fixture.Secrets, "left")
		s.Await(fixture.ConfigMaps, "kept", "to have the finalizer", s.carries)
		s.Await(fixture.Secrets, "left", "to have the finalizer", s.carries)
		found := s.watch(fixture.ConfigMaps)
		running.Patch(`{"spec":{"resources":` + s.resources(fixture.ConfigMaps) + `}}`)
		s.Await(fixture.Secrets, "left", "to be released", s.released)
		running.AwaitReady()
		s.keptFinalizers(fixture.ConfigMaps, "kept", found)
	})
	t.Run("TheHookIsRemovedAndThenTheKind", func(t *testing.T) {
		t.Parallel()
		hookThenKind(newStage(t, e, fixture.Composite, fixture.Things))
	})
}

// hookThenKind edits twice in a row: without a finalize hook the controller releases its parents, and must do so although they
// are no longer of its kind.
func hookThenKind(s *stage) {
	w := s.newWarden()
	running := s.Run(s.definition)
	for i := range targets {
		s.Parent(targetName(i), nil)
	}
	for i := range targets {
		s.Await(fixture.Things, targetName(i), "to have the finalizer", s.carries)
	}
	running.Patch(`{"spec":{"hooks":{"finalize":null}}}`)
	running.Patch(`{"spec":{"parentResource":{"resource":"clusterthings"}}}`)
	running.AwaitReady()
	w.set(true)
	for i := range targets {
		s.Await(fixture.Things, targetName(i), "to be released", s.released)
	}
}

// versionIsNoLongerServed deletes a controller whose parents are only served in another version by now.
func versionIsNoLongerServed(t *testing.T, e *fixture.Environment) {
	e.DefineManifests(t, fixture.DualManifest("dropped", "Dropped", "v1alpha1", "v1"))
	older, newer := fixture.Dual("v1alpha1", "dropped"), fixture.Dual("v1", "dropped")
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		t.Run(string(kind), func(t *testing.T) {
			e.DefineManifests(t, fixture.DualManifest("dropped", "Dropped", "v1alpha1", "v1"))
			s := newStage(t, e, kind, older)
			cluster.Eventually(t, s.Limit, "the older version to be served", s.serves(older))
			running := s.Run(s.definition)
			for i := range targets {
				s.target(newer, targetName(i))
			}
			for i := range targets {
				s.Await(newer, targetName(i), "to have the finalizer", s.carries)
			}
			e.DefineManifests(t, fixture.DualManifest("dropped", "Dropped", "v1"))
			running.AwaitCondition("Ready", "to say that the version is not served", notServed)
			running.Delete()
			for i := range targets {
				s.Await(newer, targetName(i), "to be released", s.released)
			}
			running.AwaitGone()
		})
	}
}

func targetName(i int) string { return fmt.Sprintf("target-%d", i) }

// target creates an object that the controller selects.
func (s *stage) target(r schema.GroupVersionResource, name string) {
	s.T.Helper()
	if r.Group == fixture.Group && r.Resource != fixture.Things.Resource {
		kind := map[string]string{"edited": "Edited", "dropped": "Dropped"}[r.Resource]
		s.Create(r, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": r.GroupVersion().String(), "kind": kind,
			"metadata": map[string]any{"name": name, "labels": map[string]any{fixture.Label: s.Name}},
		}})
		return
	}
	s.Selected(r, name, nil)
}
