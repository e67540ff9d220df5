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
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// refusing has dry runs of updates refuse every change, and those of creations return an object, nil for one that is refused.
func (s *scene) refusing(created *object.Object) {
	s.trial = func(d plan.Doubt) plan.Trial {
		switch {
		case !d.Fresh:
			return plan.Trial{Refused: d.Paths}
		case created == nil:
			return plan.Trial{FreshRefused: true}
		}
		return plan.Trial{Result: created}
	}
}

// TestWhatAnUpdateCannotChangeIsNotTakenForTheAPIServersDoing has the hook change a value that cannot be changed, when it is not known, or
// not known any more, what the API server makes of what it is sent.
func TestWhatAnUpdateCannotChangeIsNotTakenForTheAPIServersDoing(t *testing.T) {
	recreate, inPlace := v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateInPlace
	restarted := func(t *testing.T, s *scene) {
		s.serverSide(true)
		s.applied(t, "1")
		s.restart()
		s.want(t, child("a", "2"))
	}
	aged := func(t *testing.T, s *scene) {
		s.want(t, child("a", "1000m"))
		s.accept(t, server{`"k":"1000m"`, `"k":"1"`})
		s.later(plan.MaxAge)
		s.want(t, child("a", "2000m"))
	}
	for name, tc := range map[string]struct {
		method v1alpha1.ChildUpdateMethod
		begin  func(*testing.T, *scene)
		// created is the value in a new child, empty if it is refused.
		created string
		want    plan.Action
		reason  plan.Reason
	}{
		"recreated after a restart":                            {recreate, restarted, "2", plan.Recreate, ""},
		"in place after a restart":                             {inPlace, restarted, "2", plan.Update, ""},
		"recreated with an old record":                         {recreate, aged, "2", plan.Recreate, ""},
		"in place with an old record":                          {inPlace, aged, "2", plan.Update, ""},
		"recreated, and a new child would be the same":         {recreate, restarted, "1", plan.Leave, plan.Same},
		"in place, and a new child would be the same":          {inPlace, restarted, "1", plan.Leave, plan.Same},
		"recreated, and no new child would be taken":           {recreate, restarted, "", plan.Leave, plan.Untried},
		"in place, and no new child would be taken":            {inPlace, restarted, "", plan.Leave, plan.Same},
		"recreated with an old record, and the same as before": {recreate, aged, "1", plan.Update, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(tc.method)
			tc.begin(t, s)
			var created *object.Object
			if tc.created != "" {
				created = s.parse(t, child("a", tc.created))
			}
			s.refusing(created)
			s.gather(t)
			unchanged := s.Unchanged(s.Desired[0], s.Observed[0])
			step := s.step(t)
			if step.Action != tc.want || step.Reason != tc.reason {
				t.Errorf("%s %s because of %v, want %s %s", step.Action, step.Reason, step.Changed, tc.want, tc.reason)
			}
			left := tc.method == inPlace && tc.created == ""
			if told := slices.Equal(step.Refused, []string{"data.k"}); told != left {
				t.Errorf("refused are %q", step.Refused)
			}
			if same := tc.created == "1" || left; unchanged != same || step.Action == plan.Update && step.RecordOnly != same {
				t.Errorf("unchanged %t, %s of the record only %t", unchanged, step.Action, step.RecordOnly)
			}
			// An update says what it changes, so that the API server says why it cannot be.
			if step.Action == plan.Update && !step.RecordOnly && !strings.Contains(string(step.Body), `"k":"2`) {
				t.Errorf("the update is %s", step.Body)
			}
		})
	}
}

func two(k, l string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":%q,"l":%q}}`, k, l)
}

// ownedTwo returns a child a of which our manager owns two values.
func ownedTwo(t testing.TB, k, l string) *object.Object {
	t.Helper()
	text := strings.Replace(string(owned(t, k).JSON()), fmt.Sprintf(`"k":%q`, k), fmt.Sprintf(`"k":%q,"l":%q`, k, l), 1)
	return managed(t, strings.Replace(text, `{"f:k":{}}`, `{"f:k":{},"f:l":{}}`, 1))
}

// Where no creation tells, either, what can be changed is.
func TestTheRestIsWrittenWhereNothingTellsWhoMadeAValueDiffer(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.serverSide(true)
	s.applied(t, "1")
	s.restart()
	s.want(t, two("2", "new"))
	s.trial = func(d plan.Doubt) plan.Trial {
		if d.Fresh {
			return plan.Trial{}
		}
		return plan.Trial{Refused: []string{"data.k"}, Result: ownedTwo(t, "1", "new")}
	}
	step := s.step(t)
	if step.Action != plan.Update || pathsOf(step.Changed) != "data.l" || !strings.Contains(string(step.Body), `"k":"1"`) ||
		!slices.Equal(step.Refused, []string{"data.k"}) {
		t.Errorf("%s %s because of %v, refused %q: %s", step.Action, step.Reason, step.Changed, step.Refused, step.Body)
	}
}

// TestARefusedChangeOfTheHookIsSentBesideWhatTheAPIServerReturned has one value that the API server is known to return otherwise and another
// one that the hook changes, both in doubt when the record is old.
func TestARefusedChangeOfTheHookIsSentBesideWhatTheAPIServerReturned(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.serverSide(true)
	s.want(t, two("1000m", "1"))
	s.wrote(s.step(t), ownedTwo(t, "1", "1"))
	s.Observed = []*object.Object{ownedTwo(t, "1", "1")}
	s.later(plan.MaxAge)
	s.want(t, two("1000m", "2"))
	s.trial = func(plan.Doubt) plan.Trial {
		return plan.Trial{Refused: []string{"data.l"}, Result: ownedTwo(t, "1", "1")}
	}
	step := s.step(t)
	if step.Action != plan.Update || pathsOf(step.Changed) != "data.l" || !strings.Contains(string(step.Body), `"l":"2"`) {
		t.Errorf("%s %s because of %v: %s", step.Action, step.Reason, step.Changed, step.Body)
	}
}

func TestANewChildIsTriedUnderANameThatIsNotLonger(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a-", "abc": "a-", "abcdefg": "a-", "a-long-name": "a-lon-", "a-very-long-name": "a-very-lon-", "a.b.c.1234567": "a.b.c.1-", "a.b.c.-123456": "a.b.c-",
	} {
		s := newScene(v1alpha1.ChildUpdateRecreate)
		s.want(t, child(name, "1000m"))
		s.accept(t, server{`"k":"1000m"`, `"k":"1"`})
		s.restart()
		var tried string
		s.trial = func(d plan.Doubt) plan.Trial {
			if d.Fresh {
				body, err := d.Body(nil)
				if err != nil {
					t.Fatal(err)
				}
				metadata, _ := decode(t, string(body))["metadata"].(map[string]any)
				tried, _ = metadata["generateName"].(string)
			}
			return plan.Trial{}
		}
		s.step(t)
		if tried != want {
			t.Errorf("%s is tried as %s, want %s", name, tried, want)
		}
	}
}
