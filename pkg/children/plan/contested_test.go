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

package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

// remove plans and deletes what is not wanted, and returns how many children were deleted, and how many are left and reported.
func (s *scene) remove(t *testing.T) (deleted, held, reported int) {
	t.Helper()
	p, err := s.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []plan.Outcome
	for _, step := range p.Steps {
		switch {
		case step.Action == plan.Delete:
			outcomes = append(outcomes, plan.Outcome{Step: step, Done: true})
			deleted++
		case step.HoldsDeletion():
			held++
			if step.Report {
				reported++
			}
			if step.Reason != plan.Flapping || !step.PausedUntil.After(s.clock.Now()) {
				t.Errorf("%s is left: %s until %s", step.Key, step.Reason, step.PausedUntil)
			}
		}
	}
	s.record(outcomes...)
	return deleted, held, reported
}

func named(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns","uid":%q}}`, name, name)
}

// TestWhatSomebodyMakesAgainIsLeft has somebody make a child again each time that it was deleted, under the same name or another one.
func TestWhatSomebodyMakesAgainIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		name  func(round int) string
		limit int
	}{
		"under the same name": {func(int) string { return "a" }, 10},
		"under another name":  {func(round int) string { return fmt.Sprint("a-", round) }, 63},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			deletions, reports := 0, 0
			for round := range 500 {
				s.see(t, named(tc.name(round)))
				deleted, _, reported := s.remove(t)
				deletions, reports = deletions+deleted, reports+reported
				s.clock.SetTime(s.clock.Now().Add(100 * time.Millisecond))
			}
			if deletions != tc.limit+1 || reports != 1 {
				t.Errorf("%d deletions in 50 seconds, and %d reports; want %d and 1", deletions, reports, tc.limit+1)
			}
			s.clock.SetTime(s.clock.Now().Add(time.Minute))
			if deleted, _, _ := s.remove(t); deleted != 1 {
				t.Error("nothing is deleted after the pause")
			}
		})
	}
}

func TestChildrenThatNobodyMakesAgainAreDeleted(t *testing.T) {
	for _, many := range []int{1, 60, 150, 1000} {
		for name, atOnce := range map[string]bool{"at once": true, "one by one": false} {
			t.Run(fmt.Sprintf("%d %s", many, name), func(t *testing.T) {
				s := newScene(v1alpha1.ChildUpdateInPlace)
				var texts []string
				for i := range many {
					texts = append(texts, named(fmt.Sprintf("a-%04d", i)))
				}
				step := 1
				if atOnce {
					step = many
				}
				s.see(t, texts...)
				all := s.Observed
				for left := many; left > 0; left -= step {
					s.Kept = nil
					for _, o := range all[:left-step] {
						s.Kept = append(s.Kept, children.KeyOf(o)) // As if the hook wanted them still.
					}
					s.Observed = all[left-step : left]
					if deleted, held, _ := s.remove(t); deleted != step || held != 0 {
						t.Fatalf("%d deleted and %d held with %d left", deleted, held, left)
					}
					s.clock.SetTime(s.clock.Now().Add(20 * time.Millisecond))
				}
			})
		}
	}
}

func TestAChildThatIsWantedAgainIsWritten(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	for range 20 {
		s.see(t, named("a"))
		s.remove(t)
	}
	s.want(t, configMap)
	if step := s.accept(t, nil); step.Action != plan.Update {
		t.Errorf("%s %s", step.Action, step.Reason)
	}
	s.Observed = nil
	if step := s.accept(t, nil); step.Action != plan.Create {
		t.Errorf("%s %s", step.Action, step.Reason)
	}
}

func TestWhatIsCountedOfDeletionsIsForgotten(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	for i := range 100 {
		s.see(t, named(fmt.Sprint("a-", i)))
		s.remove(t)
		s.clock.SetTime(s.clock.Now().Add(time.Second))
	}
	s.clock.SetTime(s.clock.Now().Add(10 * time.Minute))
	s.Observed = nil
	s.remove(t)
	if len(s.records) != 0 {
		t.Errorf("%d records are left", len(s.records))
	}
}

// TestWhatAKeptChildWasComparedWithStays is about a rolling update after a start, when nothing else is known of its children.
func TestWhatAKeptChildWasComparedWithStays(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.see(t, named("a"))
	key := children.KeyOf(s.Observed[0])
	compared := plan.Compared{Desired: 1, Version: s.Observed[0].ResourceVersion()}
	s.records = plan.Records(nil).Compared(map[children.Key]plan.Compared{key: compared})
	s.Observed, s.Kept = nil, []children.Key{key}
	for range 2 {
		s.remove(t)
		if known := s.records.Get(key); known == nil || known.More == nil || known.More.Compared != compared {
			t.Fatal("it is forgotten, and the child read again by each sync")
		}
	}
}
