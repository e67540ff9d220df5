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

package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// workers is how many calls of a hook there are at once.
	workers = 20
	// retriedWithin is how soon every parent is tried again after the hook has returned.
	retriedWithin = 5 * time.Minute
	// guarded is how many children a guard lets go.
	guarded = 5
)

// hookDown lets changes of all parents meet a hook that nobody serves.
func hookDown(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.HookDown)
	parents, away := report.Pick(100, 1000), report.Pick(3*time.Second, 10*time.Minute)
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 1})
	f.Create("before")
	f.Converge("creation")
	f.Hook.Down()
	f.Change("meanwhile", f.Names()...)
	f.Controller.AwaitStatus("what is wrong", func(s *v1alpha1.ControllerStatus) bool { return len(s.LastErrors) > 0 })
	pause(t, away)

	f.Hook.Forget()
	f.Hook.Up()
	returned := time.Now()
	var tried int
	cluster.EventuallyEvery(t, 20*time.Millisecond, retriedWithin, "every parent to be tried again", func(context.Context) (bool, string) {
		tried = len(f.Hook.Seen())
		return tried == parents, fmt.Sprintf("%d of %d", tried, parents)
	})
	took := time.Since(returned)
	f.Converge("the hook returned")
	if most := f.Hook.Most(); most > workers {
		t.Errorf("there were %d calls at once, want %d at most", most, workers)
	}
	figures.Sayf("down for %s: all of %d parents were tried again within %s of its return", away, parents, seconds(took))
	figures.Sayf("%d calls at once at most, with %d workers", f.Hook.Most(), workers)
}

// noChildren has the hook want no children any more, and then again what it wanted before.
func noChildren(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.NoChildren)
	parents := report.Pick(30, 500)
	t.Run("Guarded", func(t *testing.T) {
		f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Edit: func(spec *v1alpha1.CompositeControllerSpec) {
			spec.DeletionGuard = &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(guarded))}
		}})
		f.Create("before")
		f.Converge("creation")
		left := wantNone(t, f)
		f.Controller.AwaitCondition(v1alpha1.ConditionDeletionsHeld, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
		if left < 2*parents-guarded {
			t.Errorf("%d children of %d are left, and the guard lets %d go", left, 2*parents, guarded)
		}
		wantAgain(f)
		figures.Sayf("with a guard of %d: %d of %d children are left", guarded, left, 2*parents)
	})
	t.Run("Unguarded", func(t *testing.T) {
		f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2})
		f.Create("before")
		f.Converge("creation")
		if left := wantNone(t, f); left != 0 {
			t.Errorf("%d children are left although the hook wants none", left)
		}
		wantAgain(f)
		figures.Sayf("without one: 0 are left, as the hook wants, and all are back once it wants them")
	})
}

// wantNone has the hook want no children for all parents, and returns how many are left.
func wantNone(t *testing.T, f *fleet.Fleet) int {
	t.Helper()
	f.Hook.RespondNone(true)
	f.Change("none", f.Names()...)
	f.AwaitState("all parents to be synced", func(s *fleet.State) (bool, string) {
		synced := 0
		for _, parent := range s.Parents {
			if fixture.Value(parent, "status", "value") == "none" {
				synced++
			}
		}
		return synced == len(s.Parents), fmt.Sprintf("%d of %d", synced, len(s.Parents))
	})
	f.Idle(f.Controller)
	state, err := f.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(state.Children)
}

// wantAgain has the hook want the children again. Those that are left must stay.
func wantAgain(f *fleet.Fleet) {
	f.T.Helper()
	f.ForgetDeleted()
	f.Hook.RespondNone(false)
	f.Change("again", f.Names()...)
	f.Converge("the hook wants children again")
}
