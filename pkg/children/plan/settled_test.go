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
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// response lets the hook want children, and returns what stands for them.
func (s *scene) response(t testing.TB, texts ...string) plan.Hash {
	t.Helper()
	s.want(t, texts...)
	return plan.FingerprintOf([]byte("["+strings.Join(texts, ",")+"]"), "")
}

// carryOut plans a response and does what is planned; what a name is given for fails. What is observed then is what there is.
func (s *scene) carryOut(t testing.TB, a plan.Hash, failing ...string) plan.Plan {
	t.Helper()
	p, err := s.plan(t)
	if err != nil && len(failing) == 0 {
		t.Fatal(err)
	}
	there := map[string]*object.Object{}
	var outcomes []plan.Outcome
	for _, o := range s.Observed {
		there[o.Name()] = o
	}
	for _, step := range p.Steps {
		if len(failing) > 0 && step.Name == failing[0] {
			continue
		}
		switch step.Action {
		case plan.Create, plan.Update:
			written := s.parse(t, string(step.Body))
			outcomes = append(outcomes, plan.Outcome{Step: step, Written: written, Done: true})
			there[step.Name] = written
		case plan.Recreate:
			outcomes = append(outcomes, plan.Outcome{Step: step, Done: true})
			delete(there, step.Name)
		case plan.Delete:
			delete(there, step.Name)
		case plan.Leave:
		}
	}
	s.records = p.Next(s.Records, outcomes, a)
	s.Observed = nil
	for _, o := range there {
		s.Observed = append(s.Observed, o)
	}
	return p
}

func child(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":%q}}`, name, value)
}

func TestAnResponseIsSettledOnlyWhenAPlanForItWouldDoNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		method v1alpha1.ChildUpdateMethod
		// do brings about a state, and returns the response that is asked about.
		do   func(t *testing.T, s *scene) plan.Hash
		want bool
	}{
		"AfterItsCreation": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"), child("b", "1"))
			s.carryOut(t, a)
			return a
		}, want: true},
		"NotPlannedYet": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.accept(t, nil)
			return a
		}},
		"AfterARestart": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.restart()
			return s.response(t, child("a", "1"))
		}},
		"AfterARestartAndAPlan": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1")))
			s.restart()
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			return a
		}, want: true},
		"AnotherResponse": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1")))
			return s.response(t, child("a", "2"))
		}},
		"TheFormerResponse": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"), child("b", "1"))
			s.carryOut(t, a)
			s.carryOut(t, s.response(t, child("a", "1"), child("b", "2")))
			s.want(t, child("a", "1"), child("b", "1"))
			return a
		}},
		"AnotherSelector": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1")))
			return plan.FingerprintOf([]byte("["+child("a", "1")+"]"), "a=b")
		}},
		"AnotherOrder": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1"), child("b", "1")))
			return s.response(t, child("b", "1"), child("a", "1"))
		}},
		"NoChildren": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t)
			s.carryOut(t, a)
			return a
		}},
		"AChildIsGone": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"), child("b", "1"))
			s.carryOut(t, a)
			s.Observed = s.Observed[:1]
			return a
		}},
		"AllChildrenAreGone": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.Observed = nil
			return a
		}},
		"AChildTooMany": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.Observed = append(s.Observed, s.parse(t, child("b", "1")))
			return a
		}},
		"AnotherChildInPlaceOfOne": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"), child("b", "1"))
			s.carryOut(t, a)
			s.Observed[0] = s.parse(t, child("c", "1"))
			return a
		}},
		"AChildWasChanged": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.others(t, `"k":"1"`, `"k":"2"`)
			return a
		}},
		"AChildWasTouched": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.others(t, `"name":"a"`, `"name":"a","labels":{"their":"own"}`)
			return a
		}},
		"AChildWasTouchedAndPlannedAgain": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.others(t, `"name":"a"`, `"name":"a","labels":{"their":"own"}`)
			s.carryOut(t, a)
			return a
		}, want: true},
		"AChildIsBeingDeleted": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			s.others(t, `"name":"a"`, `"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"`)
			s.carryOut(t, a)
			return a
		}},
		"ACreationFailed": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"), child("b", "1"))
			s.carryOut(t, a, "b")
			return a
		}},
		"AnUpdateFailed": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1"), child("b", "1")))
			a := s.response(t, child("a", "1"), child("b", "2"))
			s.carryOut(t, a, "b")
			return a
		}},
		"ADeletionFailed": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1"), child("b", "1")))
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a, "b")
			return a
		}},
		"AChildIsReplacedByAnotherWhoseCreationFailed": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1"), child("b", "1")))
			a := s.response(t, child("a", "1"), child("c", "1"))
			s.carryOut(t, a, "c")
			s.Observed = append(s.Observed, s.parse(t, child("b", "1")))
			return a
		}},
		"AChildCannotBeMerged": {do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1"), child("b", "1")))
			a := s.response(t, child("a", "1"), strings.Replace(child("b", "1"), `{"k":"1"}`, `"v"`, 1))
			s.carryOut(t, a, "b")
			return a
		}},
		"OnDelete": {method: v1alpha1.ChildUpdateOnDelete, do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1")))
			a := s.response(t, child("a", "2"))
			s.carryOut(t, a)
			return a
		}, want: true},
		"Recreated": {method: v1alpha1.ChildUpdateRecreate, do: func(t *testing.T, s *scene) plan.Hash {
			s.carryOut(t, s.response(t, child("a", "1")))
			a := s.response(t, child("a", "2"))
			s.carryOut(t, a)
			return a
		}},
		"Flapping": {do: func(t *testing.T, s *scene) plan.Hash {
			a := s.response(t, child("a", "1"))
			s.carryOut(t, a)
			for range 12 {
				s.others(t, `"k":"1"`, `"k":"2"`)
				if p := s.carryOut(t, a); p.Steps[0].Reason == plan.Flapping {
					return a
				}
			}
			t.Fatal("the child is not left alone")
			return a
		}},
	} {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = v1alpha1.ChildUpdateInPlace
			}
			s := newScene(method)
			a := tc.do(t, s)
			if got := s.records.Settled(a, s.Observed, s.clock.Now()); got != tc.want {
				t.Errorf("settled: %t, want %t", got, tc.want)
			}
			if !tc.want {
				return
			}
			if p := s.make(t); p.Writes() > 0 {
				t.Errorf("a plan has %d writes: %+v", p.Writes(), p.Steps)
			}
		})
	}
}

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
	compared := plan.Asked{Desired: 1, Version: s.Observed[0].ResourceVersion()}
	s.records = plan.Records(nil).Compared(map[children.Key]plan.Asked{key: compared})
	s.Observed, s.Kept = nil, []children.Key{key}
	for range 2 {
		s.remove(t)
		if known := s.records.Get(key); known == nil || known.More == nil || known.More.Compared != compared {
			t.Fatal("it is forgotten, and the child read again by each sync")
		}
	}
}
