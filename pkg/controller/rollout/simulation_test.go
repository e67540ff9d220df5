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
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

type strategy = v1alpha1.CompositeControllerChildUpdateStrategy

const (
	inPlace  = v1alpha1.ChildUpdateRollingInPlace
	recreate = v1alpha1.ChildUpdateRollingRecreate
)

var (
	pods       = schema.GroupKind{Kind: "Pod"}
	configMaps = schema.GroupKind{Kind: "ConfigMap"}
)

// pod is an observed child of the simulation. Its version is what the hook derived from spec.template.
type pod struct {
	version    string
	generation int64
	observed   int64
	ready      bool
	deleting   bool
}

func (p *pod) Generation() int64 { return p.generation }
func (p *pod) Deleting() bool    { return p.deleting }

func (p *pod) Value(path ...string) any {
	status := "False"
	if p.ready {
		status = "True"
	}
	switch strings.Join(path, ".") {
	case "status.observedGeneration":
		return p.observed
	case "status.conditions":
		return []any{map[string]any{"type": "Other", "status": "True"}, map[string]any{"type": "Ready", "status": status}}
	default:
		return nil
	}
}

// simulation is a cluster with one parent. Every sync plans from what is observed alone, as after a restart.
type simulation struct {
	t         testing.TB
	planner   *Planner
	rule      strategy
	parent    map[string]any
	revisions map[string]*v1alpha1.ControllerRevision
	pods      map[children.Key]*pod
	// stuck are the pods that never become ready.
	stuck map[string]bool
	// dropped are the pods that the hook leaves out, or leaves out for one version: "web-0", "web-0@v1".
	dropped map[string]bool
	// lingering makes deleted pods stay for one settling, as with a grace period.
	lingering bool
	// crash makes the next sync end before children are touched.
	crash bool
	// frozen has all revisions created in the same second, and loses says which writes of revisions are lost after they were done, as those are
	// that come after the snapshot which is restored.
	frozen bool
	loses  func(Write) bool
	// more are children of another kind, which the hook returns after the pods. They are not observed and not touched while away is set.
	more []children.Key
	away bool
	now  time.Time
}

func newSimulation(t testing.TB, namespace string, rule strategy, replicas int64) *simulation {
	t.Helper()
	ready := "True"
	rule.StatusChecks.Conditions = []v1alpha1.StatusConditionCheck{{Type: "Ready", Status: &ready}}
	metadata := map[string]any{"name": "web", "uid": "uid-1"}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	s := &simulation{
		t:    t,
		rule: rule,
		planner: New(Config{
			Resource:   schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"},
			FieldPaths: []string{"spec.template"}, Namespace: "server", Rules: map[schema.GroupKind]strategy{pods: rule},
		}),
		parent: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Set", "metadata": metadata,
			"spec": map[string]any{"replicas": replicas, "template": map[string]any{"version": "v1"}},
		},
		revisions: map[string]*v1alpha1.ControllerRevision{},
		pods:      map[children.Key]*pod{},
		stuck:     map[string]bool{},
		dropped:   map[string]bool{},
		now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	s.sync()
	s.settle()
	return s
}

func (s *simulation) set(path, value any) {
	s.parent = set(s.parent, strings.Split(fmt.Sprint(path), "."), value)
}

// key is a pod's: in the parent's namespace, or in the namespace "apps" of a cluster-scoped parent.
func (s *simulation) key(name string) children.Key {
	namespace := "apps"
	if own, ok := field(s.parent, []string{"metadata", "namespace"}); ok {
		namespace = fmt.Sprint(own)
	}
	return children.Key{Kind: "Pod", Namespace: namespace, Name: name}
}

// hook wants as many pods as spec.replicas says, in an order that is neither that of their names nor random.
// The version of the template is that of the pods.
func (s *simulation) hook(parent map[string]any) Response {
	replicas, _ := field(parent, []string{"spec", "replicas"})
	version, _ := field(parent, []string{"spec", "template", "version"})
	var a Response
	want := func(key children.Key) {
		a.Desired = append(a.Desired, children.Desired{Key: key, APIVersion: fmt.Sprint(version)})
	}
	for n := range replicas.(int64) {
		if name := fmt.Sprint("web-", replicas.(int64)-1-n); !s.dropped[name] && !s.dropped[fmt.Sprint(name, "@", version)] {
			want(s.key(name))
		}
	}
	if !s.away {
		for _, key := range s.more {
			want(key)
		}
	}
	return a
}

func (s *simulation) observe(key children.Key) (Child, bool) {
	p, ok := s.pods[key]
	if !ok || s.away && slices.Contains(s.more, key) {
		return nil, false
	}
	return p, true
}

// sync does what the controller does in one sync.
func (s *simulation) sync() *Plan {
	s.t.Helper()
	revisions, err := s.planner.Revisions(s.parent, s.candidates())
	if err != nil {
		s.t.Fatal(err)
	}
	live := Live(revisions)
	responses := make([]Response, len(live))
	for n, r := range live {
		responses[n] = s.hook(r.Parent)
	}
	plan, err := s.planner.Plan(Input{
		Revisions: revisions, Responses: responses, Observed: s.observe,
		Unchanged: func(d children.Desired) bool { return s.pods[d.Key].version == d.APIVersion },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range plan.Writes {
		s.write(w)
	}
	if s.crash {
		s.crash = false
		return plan
	}
	s.apply(plan)
	return plan
}

func (s *simulation) candidates() []*v1alpha1.ControllerRevision {
	return slices.Collect(maps.Values(s.revisions))
}

func (s *simulation) write(w Write) {
	if !s.frozen {
		s.now = s.now.Add(time.Second)
	}
	if s.loses != nil && s.loses(w) {
		return
	}
	name := w.Revision.Name
	if _, exists := s.revisions[name]; exists == (w.Operation == Create) {
		s.t.Errorf("%s of revision %s, which exists: %t", w.Operation, name, exists)
	}
	if w.Operation == Delete {
		delete(s.revisions, name)
		return
	}
	if w.Operation == Create {
		w.Revision.CreationTimestamp = metav1.NewTime(s.now)
		w.Revision.UID = types.UID(name)
	}
	s.revisions[name] = w.Revision
}

func (s *simulation) apply(plan *Plan) {
	wanted := map[children.Key]bool{}
	for _, key := range plan.Kept {
		wanted[key] = true
	}
	for _, d := range plan.Desired {
		wanted[d.Key] = true
		p, exists := s.pods[d.Key]
		switch {
		case exists && (p.deleting || p.version == d.APIVersion):
		case !exists:
			s.pods[d.Key] = &pod{version: d.APIVersion, generation: 1}
		case s.rule.Method == inPlace:
			p.version, p.generation, p.ready = d.APIVersion, p.generation+1, false
		default:
			s.remove(d.Key)
		}
	}
	for key := range s.pods {
		if !wanted[key] && (!s.away || !slices.Contains(s.more, key)) {
			s.remove(key)
		}
	}
}

func (s *simulation) remove(key children.Key) {
	if s.lingering {
		s.pods[key].deleting = true
	} else {
		delete(s.pods, key)
	}
}

// settle lets all pods that can become ready, and completes deletions.
func (s *simulation) settle() {
	for key, p := range s.pods {
		if p.deleting {
			delete(s.pods, key)
			continue
		}
		p.observed = p.generation
		p.ready = !s.stuck[key.Name]
	}
}

// run syncs and settles until the parent is updated or nothing moves for a while, and returns the pods in the order in
// which they moved.
func (s *simulation) run() (moved []string, last *Plan) {
	s.t.Helper()
	for idle := 0; idle < 5; idle++ {
		last = s.sync()
		for _, key := range last.Moved {
			moved = append(moved, key.Name)
			idle = -1
		}
		if last.Updated.Status == metav1.ConditionTrue && idle > 1 {
			break
		}
		s.settle()
	}
	return moved, last
}

// versions tells how many pods have each version.
func (s *simulation) versions() map[string]int {
	out := map[string]int{}
	for _, p := range s.pods {
		out[p.version]++
	}
	return out
}

// claimed tells which pods each revision claims, by the version that it records.
func (s *simulation) claimed() map[string][]string {
	out := map[string][]string{}
	for _, r := range s.revisions {
		patch, err := decodePatch(r)
		if err != nil {
			s.t.Fatal(err)
		}
		version, _ := field(patch, []string{"spec", "template", "version"})
		out[fmt.Sprint(version)] = []string{}
		for _, c := range r.Children {
			out[fmt.Sprint(version)] = append(out[fmt.Sprint(version)], c.Names...)
		}
	}
	return out
}

func names(from, to int) []string {
	var out []string
	for n := from; n >= to; n-- {
		out = append(out, fmt.Sprint("web-", n))
	}
	return out
}

func limitOf(value intstr.IntOrString) strategy {
	return strategy{Method: inPlace, MaxUnavailable: &value}
}

// newSimulationOfTwo has two pods and four ConfigMaps, which all roll one by one. The change to v2 has reached the pods and m0.
func newSimulationOfTwo(t *testing.T, namespace string) *simulation {
	t.Helper()
	s := newSimulation(t, namespace, strategy{Method: inPlace}, 2)
	s.serve(true)
	for n := range 4 {
		s.more = append(s.more, children.Key{Kind: configMaps.Kind, Namespace: s.key("").Namespace, Name: fmt.Sprint("m", n)})
	}
	s.sync()
	s.settle()
	s.set("spec.template.version", "v2")
	for s.pods[s.more[0]].version != "v2" {
		s.sync()
		s.settle()
	}
	return s
}

// serve has the controller built anew for a cluster that serves ConfigMaps, or does not.
func (s *simulation) serve(configMapsToo bool) {
	config := s.planner.config
	config.Rules, config.Unserved = maps.Clone(config.Rules), nil
	s.away = !configMapsToo
	if configMapsToo {
		config.Rules[configMaps] = s.rule
	} else {
		delete(config.Rules, configMaps)
		config.Unserved = func(kind schema.GroupKind) bool { return kind == configMaps }
	}
	s.planner = New(config)
}

// TestChildrenOfAKindThatIsUnservedForAMomentMoveOneByOne withdraws the kind of four children of which one has moved.
func TestChildrenOfAKindThatIsUnservedForAMomentMoveOneByOne(t *testing.T) {
	cases := map[string]struct {
		reason string
		// change happens meanwhile.
		change func(s *simulation)
		claims map[string][]string
		moved  []string
	}{
		"NothingElse": {
			reason: "The claims stay.", change: func(*simulation) {},
			claims: map[string][]string{"v1": {"m1", "m2", "m3"}, "v2": {"m0", "web-0", "web-1"}}, moved: []string{"m1", "m2", "m3"},
		},
		"TheParentChanges": {
			reason: "Children of the kind that is served move on.", change: func(s *simulation) { s.set("spec.template.version", "v3") },
			claims: map[string][]string{"v1": {"m1", "m2", "m3"}, "v2": {"m0"}, "v3": {"web-0", "web-1"}}, moved: []string{"m0", "m1", "m2", "m3"},
		},
		"TheParentChangesBack": {
			reason: "Those that had not moved need not move.", change: func(s *simulation) { s.set("spec.template.version", "v1") },
			claims: map[string][]string{"v1": {"m1", "m2", "m3", "web-0", "web-1"}, "v2": {"m0"}}, moved: []string{"m0"},
		},
	}
	for name, tc := range cases {
		for _, namespace := range []string{"home", ""} {
			t.Run(name+namespace, func(t *testing.T) {
				s := newSimulationOfTwo(t, namespace)
				s.serve(false)
				tc.change(s)
				_, last := s.run()
				if diff := cmp.Diff(tc.claims, s.bareClaims()); diff != "" {
					t.Errorf("%s\nclaims without the kind (-want +got):\n%s", tc.reason, diff)
				}
				if last.Updated.Status != metav1.ConditionFalse || !strings.Contains(last.Updated.Message, "does not serve") || last.Outdated != len(tc.moved) {
					t.Errorf("without the kind: %v, %d children left; want to wait for %d of it", last.Updated, last.Outdated, len(tc.moved))
				}
				if len(last.Writes) > 0 {
					t.Errorf("%d writes while nothing changes", len(last.Writes))
				}
				s.serve(true)
				for _, want := range tc.moved {
					var moved []string
					for _, key := range s.sync().Moved {
						moved = append(moved, key.Name)
					}
					if !slices.Equal(moved, []string{want}) {
						t.Fatalf("%s\nwith the kind %v moved, want %s alone", tc.reason, moved, want)
					}
					s.settle()
				}
				if moved, last := s.run(); len(moved) > 0 || last.Updated.Status != metav1.ConditionTrue || len(s.revisions) != 1 {
					t.Errorf("at the end: %v moved, %v, %d revisions; want none, True and one", moved, last.Updated, len(s.revisions))
				}
			})
		}
	}
}

// bareClaims is claimed with the names of the children alone, sorted.
func (s *simulation) bareClaims() map[string][]string {
	claimed := s.claimed()
	for _, list := range claimed {
		for n, name := range list {
			list[n] = name[strings.LastIndex(name, "/")+1:]
		}
		slices.Sort(list)
	}
	return claimed
}

func TestClaimsOfAKindWithoutARuleAreDropped(t *testing.T) {
	s := newSimulationOfTwo(t, "home")
	s.serve(false)
	config := s.planner.config
	config.Unserved = func(kind schema.GroupKind) bool { return kind == schema.GroupKind{Group: "example.com", Kind: "Other"} }
	s.planner = New(config)
	if _, last := s.run(); last.Updated.Status != metav1.ConditionTrue || len(s.revisions) != 1 || last.Outdated != 0 {
		t.Errorf("%v, %d revisions, %d children left; want True, one and none: ConfigMaps do not roll any more", last.Updated, len(s.revisions), last.Outdated)
	}
}
