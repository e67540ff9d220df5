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

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// newSimulationOfTwo has two pods and four ConfigMaps, which all roll one by one. The change to v2 has reached the pods and m0.
func newSimulationOfTwo(t *testing.T, namespace string) *simulation {
	t.Helper()
	s := newSimulation(t, namespace, Rule{InPlace: true}, 2)
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
