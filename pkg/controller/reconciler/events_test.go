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

package reconciler_test

import (
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
)

// syncs are the names of the parents that were synced, in order.
type syncs struct {
	mu    sync.Mutex
	names []string
}

func (s *syncs) observe(sync *reconciler.Sync) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, sync.Key.Name)
	return nil
}

// take returns the names, sorted, once there are that many, and starts over.
func (s *syncs) take(scene *scene, count int) []string {
	scene.t.Helper()
	var taken []string
	scene.eventually("syncs", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.names) < count {
			return false
		}
		taken, s.names = s.names, nil
		return true
	})
	return taken
}

// oneWorker makes syncs come one after the other.
func oneWorker(c *reconciler.Config) {
	one := int32(1)
	c.Definition.Workers = &one
}

func TestParentsWithUnreconciledChangesComeFirstAfterAStart(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		reports bool
		first   []string
	}{
		"ReportsGeneration": {"The engine writes the generation into the status of such parents.", true, []string{"changed", "deleting"}},
		"DoesNotReport":     {"The status of a decorator's target belongs to others.", false, []string{"deleting"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, seen := newScene(t), &syncs{}
			var list []*object.Object
			for _, settled := range []string{"a", "b", "c", "d"} {
				list = append(list, thing(t, settled, 1, `,"generation":1`, `,"status":{"observedGeneration":1}`))
			}
			s.exist(append(list,
				thing(t, "changed", 1, `,"generation":2`, `,"status":{"observedGeneration":1}`),
				thing(t, "deleting", 1, `,"generation":1,"deletionTimestamp":"2026-01-02T03:04:05Z"`, `,"status":{"observedGeneration":1}`))...)
			hold := make(chan struct{})
			s.start(&kind{observe: func(sync *reconciler.Sync) error {
				<-hold
				return seen.observe(sync)
			}}, func(c *reconciler.Config) {
				oneWorker(c)
				c.Sources[0].ReportsGeneration = tc.reports
			})
			close(hold)
			// The worker may have taken any one before all were enqueued.
			order := seen.take(s, 6)[1:]
			for _, want := range tc.first {
				if at := slices.Index(order, want); at >= len(tc.first) {
					t.Errorf("%s: %s came at place %d of %v", tc.reason, want, at, order)
				}
			}
		})
	}
}

func TestEventsEnqueueTheParentsThatTheyConcern(t *testing.T) {
	onlyMarked := func(o *object.Object) bool { _, ok := o.Annotation("mark"); return ok }
	for name, tc := range map[string]struct {
		reason   string
		owns     func(*object.Object) bool
		old, new func(*testing.T) *object.Object
		want     []string
	}{
		"ChildAppears":   {"Its owner has a new child.", nil, nil, func(t *testing.T) *object.Object { return widget(t, "w", 5, "a", "") }, []string{"a"}},
		"ChildIsOrphan":  {"All parents may adopt it.", nil, nil, func(t *testing.T) *object.Object { return widget(t, "w", 5, "", "") }, []string{"a", "b"}},
		"OwnerIsUnknown": {"It belongs to another parent.", nil, nil, func(t *testing.T) *object.Object { return widget(t, "w", 5, "x", "") }, nil},
		"OwnerChanges": {
			"The former owner lost a child.", nil, func(t *testing.T) *object.Object { return widget(t, "w", 4, "a", "") },
			func(t *testing.T) *object.Object { return widget(t, "w", 5, "b", "") },
			[]string{"a", "b"},
		},
		"MarkIsRemoved": {
			"The owner lost an attachment, though it still controls the object.", onlyMarked,
			func(t *testing.T) *object.Object { return widget(t, "w", 4, "a", `,"annotations":{"mark":"x"}`) },
			func(t *testing.T) *object.Object { return widget(t, "w", 5, "a", "") },
			[]string{"a"},
		},
		"NotMarked": {
			"A child of another controller of the same parent.", onlyMarked, nil,
			func(t *testing.T) *object.Object { return widget(t, "w", 5, "a", "") }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, seen := newScene(t), &syncs{}
			selector := `,"spec":{"selector":{"matchExpressions":[{"key":"other","operator":"DoesNotExist"}]}}`
			s.exist(thing(t, "a", 1, "", selector), thing(t, "b", 1, "", selector), thing(t, "last", 1, "", ""))
			s.start(&kind{observe: seen.observe, owns: tc.owns}, func(c *reconciler.Config) {
				oneWorker(c)
				c.Selectors = related.NewSelectors("")
			})
			seen.take(s, 3)
			if tc.old != nil {
				s.update(s.widgets, tc.old(t))
				seen.take(s, 1)
			}
			s.update(s.widgets, tc.new(t))
			// The worker takes keys in their order, so nothing else was enqueued before this one.
			s.update(s.things, thing(t, "last", 9, "", ""))
			got := seen.take(s, len(tc.want)+1)
			slices.Sort(got)
			if want := append(slices.Clone(tc.want), "last"); !slices.Equal(got, want) {
				t.Errorf("%s: synced %v, want %v", tc.reason, got, want)
			}
		})
	}
}

func TestAParentThatIsDeselectedIsForgotten(t *testing.T) {
	s, seen := newScene(t), &syncs{}
	s.exist(thing(t, "a", 1, "", ""), thing(t, "last", 1, "", ""))
	k := &kind{observe: seen.observe}
	c := s.start(k, oneWorker)
	seen.take(s, 2)
	if got := c.Counters().Parents; got != 2 {
		t.Errorf("%d parents, want 2", got)
	}
	s.update(s.things, thing(t, "a", 2, `,"labels":{"out":""}`, ""))
	s.update(s.things, thing(t, "last", 3, "", ""))
	if got := seen.take(s, 1); !slices.Equal(got, []string{"last"}) {
		t.Errorf("synced %v after the parent was deselected", got)
	}
	if got := c.Counters().Parents; got != 1 {
		t.Errorf("%d parents, want 1", got)
	}
	s.update(s.things, thing(t, "a", 4, "", ""))
	if got := seen.take(s, 1); !slices.Equal(got, []string{"a"}) {
		t.Errorf("synced %v after the parent was selected again", got)
	}
}

func TestAStatusThatAFailedWriteMayHaveMadeIsNotIgnored(t *testing.T) {
	// The API server of the scene is not there, so that a write that is necessary fails.
	lost, unnecessary := parent.Changes{Labels: map[string]*string{"a": new("b")}}, parent.Changes{}
	for name, tc := range map[string]struct {
		reason string
		// writes are what one sync after the other writes.
		writes []parent.Changes
		want   []string
	}{
		"NoWriteFailed": {"Changes of the status are ignored.", []parent.Changes{unnecessary}, []string{"last"}},
		"WriteFailed": {
			"The sync after it did not see what the write made, and left it as it is.", []parent.Changes{lost, unnecessary}, []string{"a", "last"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, seen := newScene(t), &syncs{}
			s.exist(thing(t, "a", 1, "", ""), thing(t, "last", 1, "", ""))
			writes := tc.writes
			s.start(&kind{observe: seen.observe, write: func(sync *reconciler.Sync) error {
				if sync.Key.Name != "a" || len(writes) == 0 {
					return nil
				}
				changes := writes[0]
				writes = writes[1:]
				return sync.WriteParent(t.Context(), changes)
			}}, func(c *reconciler.Config) {
				oneWorker(c)
				c.Sources[0].IgnoreStatus = true
			})
			seen.take(s, 1+len(tc.writes))
			s.update(s.things, thing(t, "a", 2, "", `,"status":{"observed":1}`))
			// What comes while its parent is synced comes after what follows, and nothing else is enqueued before this one.
			s.update(s.things, thing(t, "last", 3, `,"generation":2`, ""))
			got := seen.take(s, len(tc.want))
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("synced %v, want %v: %s", got, tc.want, tc.reason)
			}
			s.update(s.things, thing(t, "a", 4, "", `,"status":{"observed":2}`))
			s.update(s.things, thing(t, "last", 5, `,"generation":3`, ""))
			if got := seen.take(s, 1); !slices.Equal(got, []string{"last"}) {
				t.Errorf("synced %v after the change of a status that no write of the controller made", got)
			}
		})
	}
}

func TestUnselectedParentsAreWatchedWhileTheyMayCarryTheFinalizer(t *testing.T) {
	s := newScene(t)
	s.exist()
	selector := labels.SelectorFromSet(labels.Set{"a": "b"})
	c := s.start(&kind{}, func(c *reconciler.Config) {
		c.Sources[0].Labels = selector
		c.Definition.Finalize = c.Definition.Sync
		c.Missing = []v1alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "gadgets"}}
	})
	if err := c.Problem(); err != nil {
		t.Errorf("the informer of all parents is not the one that is watched: %v", err)
	}
	if got := c.Missing(); !slices.Equal(got, []string{"gadgets in example.com/v1"}) {
		t.Errorf("missing kinds are %v", got)
	}
}
