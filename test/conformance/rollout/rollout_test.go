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

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// fleetSize is the number of children in the long rollouts.
const fleetSize = 8

// inOrder are the names of the first n ships in the hook's order.
func inOrder(n int) []string {
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("s%02d", i)
	}
	return names
}

func TestRollingUpdates(t *testing.T) {
	w := setUp(t)
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateRollingInPlace, v1alpha1.ChildUpdateRollingRecreate} {
		for _, clusterScoped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%sGoesOneByOneAndFinishes/ClusterScoped=%v", method, clusterScoped), func(t *testing.T) {
				finishes(t, w, options{method: method, cluster: clusterScoped, ships: fleetSize})
			})
		}
	}
	t.Run("AChildThatIsNotReadyStopsItAndIsNamed", func(t *testing.T) { pauses(t, w) })
	t.Run("ASecondChangeIsFollowed", func(t *testing.T) { follows(t, w) })
	t.Run("MaxUnavailableAllowsMoreAtATime", func(t *testing.T) { several(t, w) })
	t.Run("ARevisionThatSomebodyMadeUpReachesNoHook", func(t *testing.T) { distrusts(t, w) })
	t.Run("ARestartInTheMiddleChangesNothing", func(t *testing.T) { restarts(t, w) })
}

func finishes(t *testing.T, w *world, o options) {
	s := newScene(t, w, o)
	before := s.revisions()
	if len(before) != 1 || !strings.HasPrefix(before[0].Name, s.resource.Resource+".rollout.example.com-") {
		t.Fatalf("revisions before the rollout: %v", before)
	}
	if l := before[0].Labels; l["metacontroller.k8s.io/apiGroup"] != "rollout.example.com" ||
		l["metacontroller.k8s.io/resource"] != s.resource.Resource || l["controller-uid"] == "" {
		t.Errorf("the revision has the labels %v", l)
	}
	s.update("2")
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == o.ships, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
	order, largest := s.dock.log("2")
	if !slices.Equal(order, inOrder(o.ships)) {
		t.Errorf("ships were updated in the order %v", order)
	}
	if largest != 1 {
		t.Errorf("%d ships were in work at a time, want 1", largest)
	}
	s.await("the former revision to be gone", func() (bool, string) {
		after := s.revisions()
		return len(after) == 1 && after[0].Name != before[0].Name, fmt.Sprint(len(after), " revisions")
	})
	names := s.revisions()[0].Children
	if len(names) != 1 || names[0].Kind != "Ship" || names[0].APIGroup != "rollout.example.com" || len(names[0].Names) != o.ships {
		t.Fatalf("the revision holds the children %v", names)
	}
	want := "s00"
	if o.cluster {
		want = s.namespace + "/s00"
	}
	if names[0].Names[0] != want {
		t.Errorf("the first child of the revision is %q, want %q", names[0].Names[0], want)
	}
}

func pauses(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 5})
	s.dock.hold("s02")
	s.update("2")
	s.awaitUpdated("False", "RolloutWaiting", "s02")
	// The ships are watched beside the status of their parent.
	s.await("the ships up to s02, which is not Ready, to have version 2", func() (bool, string) {
		order, _ := s.dock.log("2")
		return slices.Equal(order, inOrder(3)), fmt.Sprint(order)
	})
	s.dock.release(t.Context(), "s02")
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == 5, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
}

// distrusts has a revision in the middle of a rollout that its author made up.
func distrusts(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 3})
	s.dock.hold("s01")
	s.update("2")
	s.awaitUpdated("False", "RolloutWaiting", "s01")
	stored := s.revisions()
	i := slices.IndexFunc(stored, func(r v1alpha1.ControllerRevision) bool { return strings.Contains(string(r.ParentPatch.Raw), `"1"`) })
	if i < 0 {
		t.Fatalf("there is no former revision among %v", stored)
	}
	forged := &v1alpha1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Name: "forged", Namespace: stored[i].Namespace, Labels: stored[i].Labels, OwnerReferences: stored[i].OwnerReferences,
	}, Children: stored[i].Children}
	forged.ParentPatch.Raw = []byte(`{"spec":{"version":"forged"}}`)
	client := s.Versioned.MetacontrollerV1alpha1().ControllerRevisions(forged.Namespace)
	if _, err := client.Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A change of a revision calls no hook; a change of the parent does, of which the server may be told before it is told of the revision.
	looks := 0
	s.parents.AwaitEventOf(func() {
		looks++
		s.parents.Patch(s.resource, s.namespace, fmt.Sprintf(`{"metadata":{"annotations":{"look":"%d"}}}`, looks))
	}, s.namespace, "Warning", "SyncError", "reading parentPatch of ControllerRevision "+forged.Namespace+"/forged: the digest in the name")
	for _, r := range w.hook.Requests("/sync") {
		if strings.Contains(string(r.Body), `"forged"`) {
			t.Fatal("the hook was shown what somebody made up")
		}
	}
	if err := client.Delete(t.Context(), "forged", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.dock.release(t.Context(), "s01")
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == 3, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
}

func follows(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 6})
	s.dock.hold("s03")
	s.update("2")
	s.awaitUpdated("False", "RolloutWaiting", "s03")
	s.update("3")
	// The server may be told of the ship before it is told of the parent.
	s.await("the server to have seen version 3", func() (bool, string) {
		stored := s.revisions()
		return slices.ContainsFunc(stored, func(r v1alpha1.ControllerRevision) bool { return strings.Contains(string(r.ParentPatch.Raw), `"3"`) }), fmt.Sprint(len(stored))
	})
	s.dock.release(t.Context(), "s03")
	s.await("all ships to be of version 3", func() (bool, string) { return s.dock.ready("3") == 6, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
	if order, largest := s.dock.log("3"); !slices.Equal(order, inOrder(6)) || largest != 1 {
		t.Errorf("version 3 reached the ships in the order %v, %d at a time", order, largest)
	}
	if order, _ := s.dock.log("2"); !slices.Equal(order, inOrder(4)) {
		t.Errorf("version 2 reached %v although it was followed by version 3 at s03", order)
	}
	s.await("one revision to be left", func() (bool, string) { n := len(s.revisions()); return n == 1, fmt.Sprint(n) })
}

func several(t *testing.T, w *world) {
	for limit, want := range map[string]int{"3": 3, "50%": 5} {
		t.Run(limit, func(t *testing.T) {
			s := newScene(t, w, options{
				method: v1alpha1.ChildUpdateRollingInPlace, ships: 10, maxUnavailable: new(intstr.Parse(limit)),
			})
			for _, name := range inOrder(10) {
				s.dock.hold(name)
			}
			s.update("2")
			s.await(fmt.Sprintf("%d ships to be in work", want), func() (bool, string) {
				order, largest := s.dock.log("2")
				// They are written side by side, so they arrive in any order.
				slices.Sort(order)
				return largest == want && slices.Equal(order, inOrder(want)), fmt.Sprint(order, largest)
			})
			s.awaitUpdated("False", "RolloutWaiting", "s00")
			for _, name := range inOrder(10) {
				s.dock.release(t.Context(), name)
			}
			s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == 10, s.dock.String() })
			if _, largest := s.dock.log("2"); largest > want {
				t.Errorf("%d ships were in work at a time, want at most %d", largest, want)
			}
		})
	}
}

func restarts(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingRecreate, ships: fleetSize})
	middle := fmt.Sprintf("s%02d", fleetSize/2-1)
	s.dock.hold(middle)
	s.update("2")
	s.await("half of the ships to be of version 2", func() (bool, string) {
		order, _ := s.dock.log("2")
		return len(order) == fleetSize/2, fmt.Sprint(order)
	})
	w.Server.Kill()
	s.dock.release(t.Context(), middle)
	w.Server.Restart()
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == fleetSize, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
	order, largest := s.dock.log("2")
	if !slices.Equal(order, inOrder(fleetSize)) || largest != 1 {
		t.Errorf("with a restart ships were updated in the order %v, %d at a time", order, largest)
	}
}
