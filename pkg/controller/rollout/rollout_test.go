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
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func TestRolloutGoesOneByOneInTheHooksOrderAndFinishes(t *testing.T) {
	cases := map[string]struct {
		reason    string
		namespace string
		rule      strategy
		lingering bool
	}{
		"InPlaceNamespaced":      {"The usual case.", "home", strategy{Method: inPlace}, false},
		"InPlaceClusterScoped":   {"Children of cluster-scoped parents are named with their namespace.", "", strategy{Method: inPlace}, false},
		"RecreateNamespaced":     {"The child is missing for a while.", "home", strategy{Method: recreate}, false},
		"RecreateClusterScoped":  {"The child is missing for a while.", "", strategy{Method: recreate}, false},
		"RecreateGracePeriod":    {"The child is being deleted for a while.", "home", strategy{Method: recreate}, true},
		"MaxUnavailableZero":     {"Less than one counts as one.", "home", limitOf(intstr.FromInt32(0)), false},
		"MaxUnavailableTooSmall": {"A percentage that is less than one child counts as one.", "home", limitOf(intstr.FromString("4%")), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, tc.namespace, tc.rule, 20)
			s.lingering = tc.lingering
			s.set("spec.template.version", "v2")
			for n, want := range names(19, 0) {
				plan := s.sync()
				if len(plan.Moved) != 1 || plan.Moved[0] != s.key(want) {
					t.Fatalf("%s\nstep %d moved %v, want %s", tc.reason, n, plan.Moved, want)
				}
				progress := Condition{metav1.ConditionFalse, ReasonProgressing, "updating Pod " + relativeName(tc.namespace, s.key(want))}
				if diff := cmp.Diff(progress, plan.Updated); diff != "" {
					t.Fatalf("step %d: condition (-want +got):\n%s", n, diff)
				}
				s.waitForOne(want, n < 19)
				if got := s.versions()["v2"]; got != n+1 {
					t.Fatalf("step %d: %d children of v2, want %d", n, got, n+1)
				}
			}
			plan := s.sync()
			if plan.Updated != onLatest(plan.latest(s)) || len(plan.Writes) != 0 || len(s.revisions) != 1 {
				t.Errorf("%s\nat the end: %v, %d writes, %d revisions; want True, none and one", tc.reason, plan.Updated, len(plan.Writes), len(s.revisions))
			}
		})
	}
}

// waitForOne syncs until the pod is updated and ready. Nothing may move before, when more are to come.
func (s *simulation) waitForOne(name string, more bool) {
	s.t.Helper()
	for {
		plan := s.sync()
		if more && (len(plan.Moved) != 0 || plan.Updated.Reason != ReasonWaiting) {
			s.t.Fatalf("before %s is ready: moved %v, %v; want to wait", name, plan.Moved, plan.Updated)
		}
		s.settle()
		if p := s.pods[s.key(name)]; p != nil && p.version == "v2" && p.ready {
			return
		}
	}
}

// latest returns the name of the only revision that is left.
func (*Plan) latest(s *simulation) string {
	for name := range s.revisions {
		return name
	}
	return ""
}

func TestFirstSyncPutsAllChildrenOnTheLatestRevision(t *testing.T) {
	s := newSimulation(t, "home", strategy{Method: inPlace}, 3)
	if diff := cmp.Diff(map[string][]string{"v1": {"web-0", "web-1", "web-2"}}, s.claimed()); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if plan := s.sync(); plan.Updated.Status != metav1.ConditionTrue || len(plan.Writes) != 0 {
		t.Errorf("the next sync: %v and %d writes; want True and none", plan.Updated, len(plan.Writes))
	}
}

func TestRolloutWaitsForTheChildThatIsNeverReadyAndNamesIt(t *testing.T) {
	for name, namespace := range map[string]string{"home": "home", "cluster": ""} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, namespace, strategy{Method: inPlace}, 5)
			s.stuck["web-3"] = true
			s.set("spec.template.version", "v2")
			moved, last := s.run()
			if diff := cmp.Diff(names(4, 3), moved); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
			message := "child Pod " + relativeName(namespace, s.key("web-3")) + `: condition "Ready" has status "False", want "True"`
			want := Condition{metav1.ConditionFalse, ReasonWaiting, message}
			if diff := cmp.Diff(want, last.Updated); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			if len(last.Writes) != 0 {
				t.Errorf("%d writes while nothing changes", len(last.Writes))
			}
			delete(s.stuck, "web-3")
			s.settle()
			if moved, last = s.run(); !slices.Equal(moved, names(2, 0)) || last.Updated.Status != metav1.ConditionTrue {
				t.Errorf("when it is ready: moved %v, %v; want the rest and True", moved, last.Updated)
			}
		})
	}
}

func TestRolloutFollowsChangesInTheMiddle(t *testing.T) {
	cases := map[string]struct {
		reason string
		// change happens when web-5 and web-4 of six are on v2.
		change  func(s *simulation)
		moved   []string
		want    map[string]int
		between map[string][]string
	}{
		"SecondChange": {
			reason:  "All children move to the newest revision, and older ones go when they are empty.",
			change:  func(s *simulation) { s.set("spec.template.version", "v3") },
			between: map[string][]string{"v1": {"web-0", "web-1", "web-2", "web-3"}, "v2": {"web-4"}, "v3": {"web-5"}},
			moved:   names(5, 0), want: map[string]int{"v3": 6},
		},
		"BackToTheFirst": {
			reason:  "Going back moves those that had gone.",
			change:  func(s *simulation) { s.set("spec.template.version", "v1") },
			between: map[string][]string{"v1": {"web-0", "web-1", "web-2", "web-3", "web-5"}, "v2": {"web-4"}},
			moved:   names(5, 4), want: map[string]int{"v1": 6},
		},
		"ScaleUp": {
			reason:  "New children are created from the latest revision at once, and are waited for.",
			change:  func(s *simulation) { s.set("spec.replicas", int64(8)) },
			between: map[string][]string{"v1": {"web-0", "web-1", "web-2", "web-3"}, "v2": {"web-4", "web-5", "web-6", "web-7"}},
			moved:   names(3, 0), want: map[string]int{"v2": 8},
		},
		"ScaleDown": {
			reason:  "Children that are gone are claimed by nobody.",
			change:  func(s *simulation) { s.set("spec.replicas", int64(3)) },
			between: map[string][]string{"v1": {"web-0", "web-1"}, "v2": {"web-2"}},
			moved:   names(2, 0), want: map[string]int{"v2": 3},
		},
		"HookDropsChildren": {
			reason:  "Children that the hook leaves out are dropped from both revisions.",
			change:  func(s *simulation) { s.dropped["web-5"], s.dropped["web-3"] = true, true },
			between: map[string][]string{"v1": {"web-0", "web-1"}, "v2": {"web-2", "web-4"}},
			moved:   names(2, 0), want: map[string]int{"v2": 4},
		},
		"ChildLost": {
			reason:  "A lost child that has not moved comes back as it was.",
			change:  func(s *simulation) { delete(s.pods, s.key("web-0")) },
			between: map[string][]string{"v1": {"web-0", "web-1", "web-2"}, "v2": {"web-3", "web-4", "web-5"}},
			moved:   names(3, 0), want: map[string]int{"v2": 6},
		},
		"CrashBeforeTheChild": {
			reason:  "When the process ends between the revisions and the child, the child is updated after the restart.",
			change:  func(s *simulation) { s.crash = true },
			between: map[string][]string{"v1": {"web-0", "web-1", "web-2"}, "v2": {"web-3", "web-4", "web-5"}},
			moved:   names(3, 0), want: map[string]int{"v2": 6},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, method := range []v1alpha1.ChildUpdateMethod{inPlace, recreate} {
				s := newSimulation(t, "home", strategy{Method: method}, 6)
				s.set("spec.template.version", "v2")
				s.sync()
				s.waitForOne("web-5", true)
				s.sync()
				s.waitForOne("web-4", true)
				tc.change(s)
				first := s.sync()
				if diff := cmp.Diff(tc.between, s.claimed()); diff != "" {
					t.Errorf("%s\nclaims after the change, by %s (-want +got):\n%s", tc.reason, method, diff)
				}
				s.settle()
				moved, last := s.run()
				for n, key := range first.Moved {
					moved = slices.Insert(moved, n, key.Name)
				}
				if diff := cmp.Diff(tc.moved, moved); diff != "" {
					t.Errorf("%s\nmoved, by %s (-want +got):\n%s", tc.reason, method, diff)
				}
				if diff := cmp.Diff(tc.want, s.versions()); diff != "" {
					t.Errorf("%s\nat the end, by %s (-want +got):\n%s", tc.reason, method, diff)
				}
				if last.Updated.Status != metav1.ConditionTrue || len(s.revisions) != 1 {
					t.Errorf("%s\nat the end: %v, %d revisions; want True and one", tc.reason, last.Updated, len(s.revisions))
				}
			}
		})
	}
}

func TestMaxUnavailableMovesMoreThanOne(t *testing.T) {
	cases := map[string]struct {
		reason string
		rule   strategy
		first  []string
		stuck  []string
		second []string
	}{
		"Three":     {"Three at a time.", limitOf(intstr.FromInt32(3)), names(9, 7), nil, names(6, 4)},
		"Half":      {"Half of ten.", limitOf(intstr.FromString("50%")), names(9, 5), nil, names(4, 0)},
		"RoundDown": {"39% of ten are three.", limitOf(intstr.FromString("39%")), names(9, 7), nil, names(6, 4)},
		"All":       {"A number larger than all.", limitOf(intstr.FromInt32(30)), names(9, 0), nil, nil},
		"OverAll":   {"A percentage larger than all.", limitOf(intstr.FromString("300%")), names(9, 0), nil, nil},
		"TwoStuck":  {"Those that are not ready take up room.", limitOf(intstr.FromInt32(3)), names(9, 7), []string{"web-9", "web-7"}, names(6, 6)},
		"Nonsense":  {"What is no number counts as one.", limitOf(intstr.FromString("many")), names(9, 9), nil, names(8, 8)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, "home", tc.rule, 10)
			s.set("spec.template.version", "v2")
			for _, name := range tc.stuck {
				s.stuck[name] = true
			}
			for step, want := range [][]string{tc.first, tc.second} {
				plan := s.sync()
				var moved []string
				for _, key := range plan.Moved {
					moved = append(moved, key.Name)
				}
				if diff := cmp.Diff(want, moved); diff != "" {
					t.Errorf("%s\nstep %d moved (-want +got):\n%s", tc.reason, step, diff)
				}
				s.settle()
			}
			for name := range s.stuck {
				delete(s.stuck, name)
			}
			s.settle()
			if _, last := s.run(); last.Updated.Status != metav1.ConditionTrue {
				t.Errorf("%s\nat the end: %v, want True", tc.reason, last.Updated)
			}
		})
	}
}

func TestUnchangedChildrenMoveAtOnce(t *testing.T) {
	s := newSimulation(t, "home", strategy{Method: inPlace}, 4)
	s.set("spec.template.version", "v2")
	for _, p := range s.pods {
		p.version = "v2"
	}
	plan := s.sync()
	if plan.Updated.Status != metav1.ConditionTrue || len(plan.Moved) != 0 || len(s.revisions) != 1 {
		t.Errorf("%v, %v moved, %d revisions; want True, none and one: nothing is to be done", plan.Updated, plan.Moved, len(s.revisions))
	}
}

func TestOtherKindsInWorkAreWaitedFor(t *testing.T) {
	three := intstr.FromInt32(3)
	s := newSimulation(t, "home", strategy{Method: inPlace, MaxUnavailable: &three}, 1)
	maps := children.Key{Kind: "ConfigMap", Namespace: "home", Name: "m"}
	s.planner.config.Rules[maps.GroupKind()] = strategy{Method: inPlace, MaxUnavailable: &three}
	pod0, pod1 := s.key("web-0"), s.key("web-1")
	order := Response{Desired: []children.Desired{{Key: pod0}, {Key: maps}, {Key: pod1}}}
	plan := func(unchanged ...children.Key) *Plan {
		revisions, err := s.planner.Revisions(s.parent, nil)
		if err != nil {
			t.Fatal(err)
		}
		old := Revision{Object: revisions[0].Object.DeepCopy(), Exists: true, Parent: s.parent}
		old.Object.Children = claims{pod0: 0, maps: 0, pod1: 0}.children("home", 0)
		p, err := s.planner.Plan(Input{
			Revisions: []Revision{revisions[0], old}, Responses: []Response{order, order},
			Observed:  func(children.Key) (Child, bool) { return &pod{ready: true}, true },
			Unchanged: func(d children.Desired) bool { return slices.Contains(unchanged, d.Key) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if got := plan().Moved; !slices.Equal(got, []children.Key{pod0}) {
		t.Errorf("moved %v; want the first child only, for the next one is of another kind", got)
	}
	if got := plan(pod0).Moved; !slices.Equal(got, []children.Key{maps}) {
		t.Errorf("moved %v; want the ConfigMap alone, for the children after it are of another kind", got)
	}
}

func TestChildUnknownToItsRevisionIsKeptUntilItsTurn(t *testing.T) {
	s := newSimulation(t, "home", strategy{Method: inPlace}, 3)
	s.set("spec.template.version", "v2")
	revisions, err := s.planner.Revisions(s.parent, s.candidates())
	if err != nil {
		t.Fatal(err)
	}
	latest := s.hook(s.parent)
	delete(s.pods, s.key("web-0"))
	plan, err := s.planner.Plan(Input{
		Revisions: revisions, Responses: []Response{latest, {}}, Observed: s.observe, Unchanged: func(children.Desired) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, desired := []children.Key{s.key("web-2"), s.key("web-1")}, []children.Desired{{Key: s.key("web-0"), APIVersion: "v2"}}
	if diff := cmp.Diff(kept, plan.Kept) + cmp.Diff(desired, plan.Desired); diff != "" {
		t.Errorf("the missing child comes from the latest version, which is waited for; the others stay (-want +got):\n%s", diff)
	}
	if want := (Condition{metav1.ConditionFalse, ReasonWaiting, "missing child Pod web-0"}); plan.Updated != want {
		t.Errorf("condition %v, want %v", plan.Updated, want)
	}
}

func TestResponsesAreCombined(t *testing.T) {
	s := newSimulation(t, "home", strategy{Method: inPlace}, 0)
	revisions, err := s.planner.Revisions(s.parent, nil)
	if err != nil {
		t.Fatal(err)
	}
	two := []Revision{revisions[0], revisions[0]}
	cases := map[string]struct {
		reason    string
		responses []Response
		resync    int
		finalized bool
	}{
		"Smallest":     {"The smallest positive time counts.", []Response{{ResyncAfter: 5}, {ResyncAfter: 3, Finalized: true}}, 3, false},
		"ZeroIsNone":   {"Zero is no time.", []Response{{ResyncAfter: 0, Finalized: true}, {ResyncAfter: 7, Finalized: true}}, 7, true},
		"NegativeNone": {"A negative time is none.", []Response{{ResyncAfter: -1}, {}}, 0, false},
	}
	for name, tc := range cases {
		plan, err := s.planner.Plan(Input{Revisions: two, Responses: tc.responses})
		if err != nil || int(plan.ResyncAfter) != tc.resync || plan.Finalized != tc.finalized {
			t.Errorf("%s: %s\ngot %v, %v", name, tc.reason, plan, err)
		}
	}
	if _, err := s.planner.Plan(Input{Revisions: two, Responses: []Response{{}}}); err == nil {
		t.Error("a response is missing, and there is no error")
	}
	if _, err := s.planner.Plan(Input{}); err == nil {
		t.Error("the latest revision is missing, and there is no error")
	}
}

// TestRandomRollouts changes everything at random and checks that no plan has more children in work than allowed because of
// moves, and that every rollout ends once the children become ready.
// Two revisions claim a child if the write that takes it from the older one was lost. It stays on the one to which it has moved, however the two
// were created.
func TestAChildThatTwoFormerRevisionsClaimStaysWhereItHasMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		frozen   bool
		versions []string
	}{
		"InOrder":          {"The one that was created last is the newer one.", false, []string{"v1", "v2"}},
		"InTheSameSecond":  {"Creation times have whole seconds, and names are digests.", true, []string{"v1", "v2"}},
		"BackToAFormerOne": {"A revision that is used again is newer than what came between.", false, []string{"v1", "v2", "v1"}},
	} {
		for _, next := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			t.Run(name+"/"+next, func(t *testing.T) {
				// The texts decide about the digests, of which the order is another one each time.
				at := func(version string) string { return version + next }
				s := newSimulation(t, "ns", limitOf(intstr.FromInt32(1)), 3)
				s.frozen = tc.frozen
				s.set("spec.template.version", at("v0"))
				s.run()
				for _, version := range tc.versions {
					s.set("spec.template.version", at(version))
					s.loses = func(w Write) bool {
						return w.Operation == Delete || w.Revision.Annotations[v1alpha1.AnnotationSuperseded] != ""
					}
					s.sync()
					s.settle()
				}
				last := at(tc.versions[len(tc.versions)-1])
				moved := s.key("web-2")
				if got := s.pods[moved].version; got != last {
					t.Fatalf("%s is at %s, want %s: the test shows nothing", moved, got, last)
				}
				s.loses = nil
				s.set("spec.template.version", at("v9"))
				// The new child is in work, so that no other one moves.
				s.set("spec.replicas", int64(4))
				s.sync()
				if got := s.pods[moved].version; got != last {
					t.Errorf("%s is set back to %s from %s. %s", moved, got, last, tc.reason)
				}
			})
		}
	}
}

func TestRandomRollouts(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			limit := 1 + random.IntN(4)
			rule := limitOf(intstr.FromInt32(int32(limit)))
			if random.IntN(2) != 0 {
				rule.Method = recreate
			}
			s := newSimulation(t, []string{"home", ""}[random.IntN(2)], rule, 8)
			s.planner.config.HistoryLimit = random.IntN(3)
			s.lingering = random.IntN(2) == 0
			for range 150 {
				s.disturb(random)
				before := s.inWork()
				plan := s.sync()
				if len(plan.Moved) > 0 && before+len(plan.Moved) > limit {
					t.Fatalf("%d were in work and %d moved, with a limit of %d", before, len(plan.Moved), limit)
				}
			}
			s.stuck = map[string]bool{}
			for range 60 {
				s.settle()
				s.sync()
			}
			version, _ := field(s.parent, []string{"spec", "template", "version"})
			if plan := s.sync(); plan.Updated.Status != metav1.ConditionTrue || len(s.revisions) > 1+s.planner.config.HistoryLimit || s.versions()[fmt.Sprint(version)] != len(s.pods) {
				t.Errorf("at the end: %v, %d revisions, versions %v; want all on %v", plan.Updated, len(s.revisions), s.versions(), version)
			}
		})
	}
}

// disturb does one random thing.
func (s *simulation) disturb(random *rand.Rand) {
	name := fmt.Sprint("web-", random.IntN(10))
	key := s.key(name)
	switch random.IntN(13) {
	case 0:
		s.set("spec.template.version", fmt.Sprint("v", random.IntN(4)))
	case 1:
		s.set("spec.replicas", int64(random.IntN(10)))
	case 2:
		s.stuck[name] = !s.stuck[name]
	case 3:
		delete(s.pods, key)
	case 4:
		s.crash = true
	case 5:
		s.dropped[name] = !s.dropped[name]
	case 6:
		at := fmt.Sprint(name, "@v", random.IntN(4))
		s.dropped[at] = !s.dropped[at]
	case 7, 8, 9:
		if p := s.pods[key]; p != nil {
			p.ready, p.observed = !s.stuck[name], p.generation
		}
	default:
		s.settle()
	}
}

// inWork counts the children on the latest revision that are not ready, without the planner.
func (s *simulation) inWork() int {
	namespace, _ := s.parent["metadata"].(map[string]any)["namespace"].(string)
	n, claimed := 0, s.claimed()
	for _, d := range s.hook(s.parent).Desired {
		if !slices.Contains(claimed[d.APIVersion], relativeName(namespace, d.Key)) {
			continue
		}
		p := s.pods[d.Key]
		if p == nil || p.deleting || p.version != d.APIVersion || !p.ready || (s.rule.Method == inPlace && p.observed < p.generation && p.observed > 0) {
			n++
		}
	}
	return n
}

// underWay prepares a sync in the middle of a rolling update of so many children, which waits for the first one.
func underWay(tb testing.TB, n int) func() {
	tb.Helper()
	s := newSimulation(tb, "home", strategy{Method: inPlace}, int64(n))
	s.stuck[fmt.Sprint("web-", n-1)] = true
	s.set("spec.template.version", "v2")
	s.sync()
	s.settle()
	return func() {
		if plan := s.sync(); len(plan.Moved) > 0 || plan.Outdated != n-1 {
			tb.Fatalf("%d children move, %d are left", len(plan.Moved), plan.Outdated)
		}
	}
}

func TestAPlanOfARolloutCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, underWay)
}

func BenchmarkRollout(b *testing.B) { slope.Benchmark(b, underWay) }

func TestMessagesNameAFewChildren(t *testing.T) {
	var moved []children.Key
	for _, name := range names(7, 1) {
		moved = append(moved, children.Key{Kind: "Pod", Namespace: "n", Name: name})
	}
	want := "updating Pod n/web-7, Pod n/web-6, Pod n/web-5, Pod n/web-4, Pod n/web-3 and 2 more"
	if got := progressing("", moved).Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := waiting([]string{"missing child Pod a", "x", "y"}).Message, "missing child Pod a and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// document is an observed child by its content.
type document map[string]any

func (d document) Generation() int64 {
	value, _ := field(d, []string{"metadata", "generation"})
	generation, _ := value.(int64)
	return generation
}

func (d document) Deleting() bool {
	_, ok := field(d, []string{"metadata", "deletionTimestamp"})
	return ok
}

func (d document) Value(path ...string) any {
	value, _ := field(d, path)
	return value
}

func TestReadiness(t *testing.T) {
	text := func(s string) *string { return &s }
	ready := v1alpha1.StatusConditionCheck{Type: "Ready", Status: text("True")}
	cases := map[string]struct {
		reason  string
		method  v1alpha1.ChildUpdateMethod
		checks  []v1alpha1.StatusConditionCheck
		child   string
		changed bool
		want    string
	}{
		"NoChecks":           {"Without checks an updated child is enough.", inPlace, nil, `{"metadata":{}}`, false, ""},
		"Missing":            {"A child must be there.", inPlace, nil, ``, false, "missing child Pod a"},
		"Deleting":           {"A child that goes away is not there to stay.", inPlace, nil, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, false, "child Pod a is being deleted"},
		"NotUpdated":         {"A child must have the latest version.", inPlace, nil, `{"metadata":{}}`, true, "child Pod a has not been updated to the latest revision"},
		"GenerationOld":      {"The child's own controller must have seen the change.", inPlace, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":2}}`, false, "child Pod a has not observed its latest change: status.observedGeneration is 2, metadata.generation is 3"},
		"GenerationSeen":     {"It has.", inPlace, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":3}}`, false, ""},
		"GenerationZero":     {"Zero says nothing.", inPlace, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":0}}`, false, ""},
		"GenerationMissing":  {"Nor does nothing.", inPlace, nil, `{"metadata":{"generation":3},"status":{}}`, false, ""},
		"GenerationStrange":  {"Nor does what is no number.", inPlace, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":"2"}}`, false, ""},
		"GenerationRecreate": {"A child that is made anew has no old generation.", recreate, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":2}}`, false, ""},
		"NoStatus":           {"A condition must exist.", inPlace, []v1alpha1.StatusConditionCheck{{Type: "Ready"}}, `{"metadata":{}}`, false, `child Pod a: it has no condition "Ready"`},
		"ConditionsNoList":   {"A condition must exist in a list.", inPlace, []v1alpha1.StatusConditionCheck{{Type: "Ready"}}, `{"status":{"conditions":{"type":"Ready"}}}`, false, `child Pod a: it has no condition "Ready"`},
		"ConditionStrange":   {"Entries that are no conditions do not hide those that are.", inPlace, []v1alpha1.StatusConditionCheck{ready}, `{"status":{"conditions":[7,{"type":["Ready"]},{"type":"Ready","status":"True"}]}}`, false, ""},
		"TypeOnly":           {"Without a value any will do.", inPlace, []v1alpha1.StatusConditionCheck{{Type: "Ready"}}, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, false, ""},
		"Status":             {"The status must be right.", inPlace, []v1alpha1.StatusConditionCheck{ready}, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`, false, `child Pod a: condition "Ready" has status "Unknown", want "True"`},
		"Reason":             {"The reason must be right.", inPlace, []v1alpha1.StatusConditionCheck{{Type: "Ready", Reason: text("Good")}}, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Bad"}]}}`, false, `child Pod a: condition "Ready" has reason "Bad", want "Good"`},
		"All":                {"Every check must pass.", inPlace, []v1alpha1.StatusConditionCheck{ready, {Type: "Synced"}}, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, false, `child Pod a: it has no condition "Synced"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plannerOf()
			p.config.Rules[pods] = strategy{Method: tc.method, StatusChecks: v1alpha1.ChildUpdateStatusChecks{Conditions: tc.checks}}
			r := &run{planner: p, namespace: "home", returned: map[children.Key]bool{}, in: Input{
				Observed: func(children.Key) (Child, bool) {
					if tc.child == "" {
						return nil, false
					}
					return document(decode(t, tc.child)), true
				},
				Unchanged: func(children.Desired) bool { return !tc.changed },
			}, versions: []map[children.Key]children.Desired{nil}}
			if got := r.notReady(children.Key{Kind: "Pod", Namespace: "home", Name: "a"}); got != tc.want {
				t.Errorf("%s\ngot  %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestAPlannerIsActiveWhenAKindRolls(t *testing.T) {
	for method, want := range map[v1alpha1.ChildUpdateMethod]bool{
		"": false, v1alpha1.ChildUpdateOnDelete: false, v1alpha1.ChildUpdateInPlace: false, v1alpha1.ChildUpdateRecreate: false,
		v1alpha1.ChildUpdateRollingInPlace: true, v1alpha1.ChildUpdateRollingRecreate: true,
	} {
		if Rolls(method) != want {
			t.Errorf("%q rolls: %t", method, !want)
		}
	}
	if plannerOf().Active() != true || New(Config{}).Active() {
		t.Error("a planner is active when a kind rolls, and only then")
	}
}

// field returns the value at a path, false if there is none.
func field(object map[string]any, path []string) (any, bool) {
	value, ok, err := unstructured.NestedFieldNoCopy(object, path...)
	return value, ok && err == nil
}
