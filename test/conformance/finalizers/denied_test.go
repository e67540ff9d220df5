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
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// releasedCondition is the condition that tells of finalizers that are being taken off.
	releasedCondition = "FinalizersReleased"
	// observed is how long attempts are counted, and fewAttempts how many there may be for one object in that time.
	observed, fewAttempts = 10 * time.Second, 20
)

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
