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
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestAPlanHasADifferenceForEachPath(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.see(t, strings.Replace(annotated(t, placed, applied), `"k":"v"}`, `"k":"other"}`, 1), strings.Replace(placed, `"a"`, `"b"`, 1))
	p := s.make(t)
	if len(p.Steps) != 2 || p.Steps[0].Action != plan.Delete || p.Steps[0].Name != "b" || p.Steps[1].Action != plan.Update || p.Steps[1].Name != "a" {
		t.Fatalf("the steps are %+v", p.Steps)
	}
	changed, want := p.Steps[1].ShownChanges(), []plan.Change{{Path: "data.k", Observed: "other", Present: true, Desired: "v", Applied: true}}
	if !slices.Equal(changed, want) {
		t.Errorf("the changes are %v, want %v", changed, want)
	}
}

func TestValuesOfSecretsAreNotShown(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":"hunter2"}}`)
	s.see(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"ns"},"data":{"k":"b2xk"}}`)
	changed := s.step(t).ShownChanges()
	if len(changed) == 0 || changed[0] != (plan.Change{Path: "data.k", Observed: plan.Hidden, Desired: plan.Hidden}) {
		t.Errorf("the changes are %v", changed)
	}
}

func TestAPlanThatIsThrownAwayHasNoEffect(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, normalizing)
	s.others(t, `"k":"V"`, `"k":"theirs"`)
	before := s.records
	first, err := s.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, err := s.plan(t); err != nil || !reflect.DeepEqual(again, first) { //nolint:govet // Both have the errors of the same facts.
			t.Fatalf("got %+v, error %v, want %+v", again, err, first)
		}
	}
	if after := s.records; len(after) != 1 || after[0] != before[0] {
		t.Error("the records changed")
	}
}

// applied by our manager, but for the field data.contested, which another one took.
const contested = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"child","resourceVersion":"7",
"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Parent","name":"p","uid":"parent","controller":true,"blockOwnerDeletion":true}],
"managedFields":[{"manager":"metacontroller/x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1",
"fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}]},"data":{"contested":"theirs"}}`

func TestServerSideApplyNamesTheWholePathOfAField(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	rule, _ := s.Rules.For(children.Key{Kind: "ConfigMap"}.GroupKind())
	rule.ServerSide, rule.Force = true, true
	s.Rules, s.Manager = children.NewRules([]children.Rule{rule}), "metacontroller/x"
	s.want(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"contested":"ours"}}`)
	o, err := object.Parse([]byte(contested), object.ParseOptions{Managers: []string{plan.LegacyManager}})
	if err != nil {
		t.Fatal(err)
	}
	s.Observed = []*object.Object{o}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{} }
	step := s.step(t)
	if step.Action != plan.Update || pathsOf(step.Changed) != "data.contested" {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
}

func TestOurOwnRecordIsNoReasonToDeleteOrToRoll(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateRollingRecreate, v1alpha1.ChildUpdateRollingInPlace} {
		s := newScene(method)
		s.want(t, configMap)
		s.see(t, placed)
		if step := s.step(t); step.Action != plan.Update || !step.RecordOnly {
			t.Errorf("%s: %s because of %v", method, step.Action, step.Changed)
		}
		if !s.Unchanged(s.Desired[0], s.Observed[0]) {
			t.Errorf("%s: it counts as changed", method)
		}
	}
}
