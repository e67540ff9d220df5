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
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const ourManager = "metacontroller/x"

// serverSide has ConfigMaps applied by server-side apply.
func (s *scene) serverSide(force bool) {
	rule, _ := s.Rules.For(children.Key{Kind: "ConfigMap"}.GroupKind())
	rule.ServerSide, rule.Force = true, force
	s.Rules = children.NewRules([]children.Rule{rule})
	s.Manager = ourManager
}

// managed parses an object with its managedFields.
func managed(t testing.TB, text string) *object.Object {
	t.Helper()
	o, err := object.Parse([]byte(text), object.ParseOptions{Managers: []string{plan.LegacyManager}, KeepManagedFields: true})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const ownerReferences = `"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Parent","name":"p","uid":"parent","controller":true,` +
	`"blockOwnerDeletion":true}]`

// owned returns a child a of which our manager owns the value.
func owned(t testing.TB, value string) *object.Object {
	t.Helper()
	return managed(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5",`+
		ownerReferences+`,"managedFields":[{"manager":%q,"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":`+
		`{"f:data":{"f:k":{}},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}]},"data":{"k":%q}}`, ourManager, value))
}

// applied has the child applied with a value, and stored so.
func (s *scene) applied(t testing.TB, value string) {
	t.Helper()
	s.want(t, child("a", value))
	s.wrote(s.step(t), owned(t, value))
	s.Observed = []*object.Object{owned(t, value)}
}

// merged returns a child with two values that the merge strategy applied, and with more entries of managedFields.
func merged(t testing.TB, entries string) *object.Object {
	t.Helper()
	return managed(t, mergedText(entries))
}

func mergedText(entries string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5",` +
		ownerReferences + `,"annotations":{"metacontroller.k8s.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"k\":\"1\",\"dropped\":\"1\"},` +
		`\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\"}}"},"managedFields":[{"manager":"metacontroller",` +
		`"operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:k":{},"f:dropped":{}},"f:metadata":` +
		`{"f:annotations":{".":{},"f:metacontroller.k8s.io/last-applied-configuration":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"parent\"}":{}}}}}` +
		entries + `]},"data":{"k":"1","dropped":"1"}}`
}

// later lets time pass.
func (s *scene) later(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func TestAChildThatCannotBeTriedIsNotDeleted(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"AnotherEpoch": func(s *scene) { s.Epochs = map[schema.GroupKind]int64{{Kind: "ConfigMap"}: 2}; s.turn() },
		"MaxAge":       func(s *scene) { s.later(plan.MaxAge) },
		"ARestart":     func(s *scene) { s.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateRecreate)
			s.want(t, child("a", "1000m"))
			s.accept(t, server{`"k":"1000m"`, `"k":"1"`})
			s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{} }
			change(s)
			step := s.step(t)
			if step.Reason != plan.Untried || !step.Report || pathsOf(step.Changed) != "data.k" || s.tried != 2 {
				t.Errorf("%s %s because of %v, %d dry runs", step.Action, step.Reason, step.Changed, s.tried)
			}
			if again := s.last.Again(); again <= 0 {
				t.Errorf("looked at again after %v", again)
			}
			// It is not tried in every sync.
			if step := s.step(t); step.Reason != plan.Untried || !step.Report || s.tried != 2 {
				t.Errorf("%s %s in the next sync, %d dry runs", step.Action, step.Reason, s.tried)
			}
			s.later(s.last.Again())
			if step := s.step(t); step.Reason != plan.Untried || s.tried != 4 {
				t.Errorf("%s %s a while later, %d dry runs", step.Action, step.Reason, s.tried)
			}
			s.Epochs = map[schema.GroupKind]int64{{Kind: "ConfigMap"}: 3}
			if step := s.step(t); step.Reason != plan.Untried || s.tried != 6 {
				t.Errorf("%s %s in another epoch, %d dry runs", step.Action, step.Reason, s.tried)
			}
			// What the hook changes is no doubt.
			s.want(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1000m","l":"1"}}`)
			if step := s.step(t); step.Action != plan.Recreate {
				t.Errorf("a change of the hook leads to %s %s", step.Action, step.Reason)
			}
		})
	}
}

func TestAChangeOfTheHookNeedsNoTrial(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{
		v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateRollingInPlace, v1alpha1.ChildUpdateRollingRecreate,
	} {
		for name, begin := range map[string]func(*scene){
			"Merge":      func(s *scene) { s.want(t, child("a", "1")); s.accept(t, nil); s.step(t) },
			"ServerSide": func(s *scene) { s.serverSide(true); s.applied(t, "1"); s.step(t) },
		} {
			t.Run(fmt.Sprint(method, name), func(t *testing.T) {
				s := newScene(method)
				begin(s)
				s.later(7 * time.Hour)
				s.Epochs = map[schema.GroupKind]int64{{Kind: "ConfigMap"}: 2}
				s.want(t, child("a", "2"))
				if step := s.step(t); step.Action == plan.Leave || s.tried > 0 {
					t.Errorf("%s %s after %d dry runs", step.Action, step.Reason, s.tried)
				}
			})
		}
	}
}

func TestOnlyWhatTheAPIServerReturnedIsInDoubtAfterAChangeOfTheHook(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	two := func(k, l string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":%q,"l":%q}}`, k, l)
	}
	s.want(t, two("1000m", "1"))
	s.accept(t, server{`"k":"1000m"`, `"k":"1"`})
	s.later(plan.MaxAge)
	var tried []string
	s.trial = func(d plan.Doubt) plan.Trial {
		tried = d.Paths
		return plan.Trial{Refused: d.Paths}
	}
	s.want(t, two("1000m", "2"))
	step := s.step(t)
	if step.Action != plan.Update || step.Changed[0].Path != "data.l" || !slices.Equal(tried, []string{"data.k", "data.l"}) {
		t.Errorf("%s because of %v, tried %v", step.Action, step.Changed, tried)
	}
}

// The API server refuses a change of an immutable field; the hook's developer has to see that.
func TestAnImmutableFieldThatTheHookChangesIsSentHoweverOldTheRecordIs(t *testing.T) {
	for _, age := range []time.Duration{0, 7 * time.Hour} {
		s := newScene(v1alpha1.ChildUpdateInPlace)
		s.serverSide(true)
		s.applied(t, "1")
		s.step(t)
		s.trial = func(d plan.Doubt) plan.Trial { return plan.Trial{Refused: d.Paths} }
		s.later(age)
		s.want(t, child("a", "2"))
		s.gather(t)
		unchanged := s.Unchanged(s.Desired[0], s.Observed[0])
		if step := s.step(t); step.Action != plan.Update || unchanged || s.tried > 0 {
			t.Errorf("after %v: %s %s, unchanged %t, %d dry runs", age, step.Action, step.Reason, unchanged, s.tried)
		}
	}
}

func TestAFieldThatTheHookDroppedIsRemovedOnTheWayToServerSideApply(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.serverSide(true)
	s.want(t, child("a", "1"))
	s.Observed = []*object.Object{merged(t, "")}
	s.trial = func(plan.Doubt) plan.Trial {
		// What our manager does not own yet stays.
		result := merged(t, `,{"manager":"metacontroller/x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":`+
			`{"f:data":{"f:k":{}},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}`)
		return plan.Trial{Result: result, Whole: result}
	}
	step := s.step(t)
	if !strings.Contains(string(step.Migration), `f:dropped`) || len(step.Body) == 0 {
		t.Errorf("%s because of %v: migration %s, body %s", step.Action, step.Changed, step.Migration, step.Body)
	}
}

// TestAMigrationThatLosesARaceIsAConflict has nothing in the patch that fails where somebody else has removed it: API servers apply a patch before
// they compare versions.
func TestAMigrationThatLosesARaceIsAConflict(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.serverSide(true)
	s.want(t, child("a", "1"))
	s.Observed = []*object.Object{merged(t, "")}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: merged(t, ""), Whole: merged(t, "")} }
	var operations []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(s.step(t).Migration, &operations); err != nil {
		t.Fatal(err)
	}
	version, annotations := false, false
	for _, o := range operations {
		version = version || o.Path == "/metadata/resourceVersion"
		if o.Path == "/metadata/annotations" {
			before := merged(t, "").Annotations()
			delete(before, merge.Annotation)
			after, _ := o.Value.(map[string]any)
			if annotations = len(after) == len(before); !annotations {
				t.Errorf("the annotations become %v, want %v", after, before)
			}
		}
		if o.Op == "remove" || o.Op == "test" {
			t.Errorf("%s %s fails where it is gone", o.Op, o.Path)
		}
	}
	if !version || !annotations {
		t.Errorf("the operations are %+v", operations)
	}
}

// A child that was applied, then merged, and is applied again by an edit that comes with another desired state: a dry run that our manager
// makes shows its fields without what is dropped, which nobody would own after that.
func TestAFieldThatTheHookDroppedIsRemovedOnTheWayBackToServerSideApply(t *testing.T) {
	const applied = `,{"manager":"metacontroller/x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` +
		`{"f:data":{%s"f:k":{}},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.serverSide(true)
	s.want(t, child("a", "2"))
	// The plain write owns nothing but its record.
	recorded := func(applied string) *object.Object {
		return managed(t, strings.Replace(mergedText(applied), `"f:data":{".":{},"f:k":{},"f:dropped":{}},`, "", 1))
	}
	s.Observed = []*object.Object{recorded(fmt.Sprintf(applied, `"f:dropped":{},`))}
	s.trial = func(plan.Doubt) plan.Trial {
		result := recorded(fmt.Sprintf(applied, ""))
		return plan.Trial{Result: result, Whole: result}
	}
	step := s.step(t)
	if !strings.Contains(string(step.Migration), `f:dropped`) || len(step.Body) == 0 {
		t.Errorf("%s because of %v: migration %s, body %s", step.Action, step.Changed, step.Migration, step.Body)
	}
}

// A definition that names its parents in another version and its children by another strategy in one edit.
func TestAReferenceInAnotherVersionIsAppliedOnTheWayToServerSideApply(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		s := newScene(method)
		s.serverSide(true)
		s.want(t, child("a", "1"))
		now := managed(t, strings.Replace(string(merged(t, "").JSON()), `,\"dropped\":\"1\"`, "", 1))
		s.Observed = []*object.Object{managed(t, strings.Replace(string(now.JSON()), `"apiVersion":"example.com/v1"`, `"apiVersion":"example.com/v0"`, 1))}
		s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: now, Whole: now} }
		step := s.step(t)
		if step.Action != plan.Update || len(step.Migration) == 0 || !strings.Contains(string(step.Body), `"apiVersion":"example.com/v1"`) {
			t.Errorf("%s: %s because of %v: migration %s, body %s", method, step.Action, step.Changed, step.Migration, step.Body)
		}
	}
}

// What differs before the fields are ours is not what the API server returned.
func TestAChildIsRecreatedAfterItsFieldsWereMoved(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.serverSide(false)
	s.want(t, child("a", "2"))
	s.Observed = []*object.Object{merged(t, "")}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Whole: s.Observed[0]} }
	step := s.step(t)
	if step.Action != plan.Update || len(step.Migration) == 0 || len(step.Body) > 0 {
		t.Fatalf("%s because of %v, body %s", step.Action, step.Changed, step.Body)
	}
	s.wrote(step, owned(t, "1"))
	s.Observed = []*object.Object{owned(t, "1")}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: owned(t, "2")} }
	if step := s.step(t); step.Action != plan.Recreate {
		t.Errorf("%s %s because of %v", step.Action, step.Reason, step.Changed)
	}
}

// The schema does not declare the field that the hook drops when the child is observed and tried, and does again before it is written.
func TestAFieldThatIsNotShownIsRemovedOnTheWayToServerSideApply(t *testing.T) {
	for name, dry := range map[string]string{"in the trial neither": `"data":{"k":"1"}`, "in the trial it is": `"data":{"k":"1","dropped":"1"}`} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			s.serverSide(true)
			s.want(t, child("a", "1"))
			shown := func(data string) *object.Object {
				return managed(t, strings.Replace(mergedText(""), `"data":{"k":"1","dropped":"1"}`, data, 1))
			}
			s.Observed = []*object.Object{shown(`"data":{"k":"1"}`)}
			s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: shown(dry), Whole: shown(dry)} }
			if step := s.step(t); !strings.Contains(string(step.Migration), `f:dropped`) || len(step.Body) == 0 {
				t.Errorf("%s because of %v, migration %s, body %s", step.Action, step.Changed, step.Migration, step.Body)
			}
		})
	}
}

// The API server has a default for a field that the hook leaves to it by a null.
func TestAFieldThatWasNullIsNotRemovedOnTheWayToServerSideApply(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.serverSide(true)
	s.want(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","dropped":null}}`)
	s.Observed = []*object.Object{managed(t, strings.Replace(string(merged(t, "").JSON()), `\"dropped\":\"1\"`, `\"dropped\":null`, 1))}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: s.Observed[0], Whole: s.Observed[0]} }
	if step := s.step(t); step.Action != plan.Update || !step.RecordOnly || len(step.Body) > 0 {
		t.Errorf("%s because of %v, body %s", step.Action, step.Changed, step.Body)
	}
}

func TestAMigrationHasTheTimeOfThePlan(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.serverSide(true)
	s.want(t, child("a", "2"))
	s.Observed = []*object.Object{merged(t, "")}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Whole: s.Observed[0]} }
	if step := s.step(t); !strings.Contains(string(step.Migration), start.Format(time.RFC3339)) {
		t.Errorf("migration %s", step.Migration)
	}
}

// A webhook that changed a value stops doing so without a change of its configuration.
func TestWhatIsNotTestedByAWriteAges(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	two := func(v string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"` + v + `","webhook":"x"}}`
	}
	s.want(t, two("0"))
	s.accept(t, server{`"webhook":"x"`, `"webhook":"y"`})
	for i := range 4 {
		s.later(5 * time.Hour)
		s.want(t, two(strings.Repeat("z", i+1)))
		s.accept(t, nil)
	}
	if content := string(s.Observed[0].JSON()); !strings.Contains(strings.ReplaceAll(content, `\"`, ""), `"webhook":"x"`) {
		t.Errorf("after 20 hours it is %s, after %d dry runs", content, s.tried)
	}
}

// The latest revision waits while the children are on an older one.
func TestAChildOnAnOlderRevisionIsNotTriedAtEverySync(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRollingRecreate)
	s.serverSide(false)
	s.applied(t, "1")
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: owned(t, "2")} }
	for range 3 {
		s.Comparing = true
		s.want(t, child("a", "2"))
		s.gather(t)
		if s.Unchanged(s.Desired[0], s.Observed[0]) {
			t.Error("a change of the hook changes nothing")
		}
		s.Comparing = false
		s.want(t, child("a", "1"))
		if step := s.step(t); step.Reason != plan.Same {
			t.Errorf("%s because of %v", step.Action, step.Changed)
		}
	}
	if s.tried > 0 {
		t.Errorf("%d dry runs", s.tried)
	}
	s.want(t, child("a", "2"))
	if step := s.step(t); step.Action == plan.Create || s.tried != 1 {
		t.Errorf("%s after %d dry runs", step.Action, s.tried)
	}
}

// An API server that takes neither an update nor a creation cannot say whether the latest revision would change the child.
func TestAChildOnAnOlderRevisionThatCannotBeTriedIsNotTriedAtEverySync(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRollingRecreate)
	s.want(t, child("a", "1000m"))
	s.accept(t, server{`"k":"1000m"`, `"k":"1"`})
	kind := schema.GroupKind{Kind: "ConfigMap"}
	s.Epochs = map[schema.GroupKind]int64{kind: 2}
	s.step(t) // It is known in this epoch, too.
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{} }
	for _, step := range []struct {
		what, latest string
		change       func()
		tried        int
	}{
		{"the first sync", "2000m", func() {}, 2},
		{"the next sync", "2000m", func() {}, 0},
		{"another revision", "3000m", func() {}, 2},
		{"another epoch", "3000m", func() { s.Epochs = map[schema.GroupKind]int64{kind: 3} }, 2},
		{"the sync after that", "3000m", func() {}, 0},
		{"much later", "3000m", func() { s.later(10 * time.Minute) }, 2},
	} {
		step.change()
		s.want(t, child("a", step.latest))
		s.Comparing, s.Compared, s.tried = true, map[children.Key]plan.Asked{}, 0
		s.gather(t)
		if unchanged := s.Unchanged(s.Desired[0], s.Observed[0]); unchanged || s.tried != step.tried {
			t.Errorf("%s: unchanged %t, %d dry runs, want %d", step.what, unchanged, s.tried, step.tried)
		}
		s.records = s.records.Compared(s.Compared)
	}
}

// A kind that is observed in an older version has children read in the version that the hook returns, before they are tried.
func TestAChildInAnotherVersionThatCannotBeTriedIsNotReadAtEverySync(t *testing.T) {
	const observed = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"ns"},"spec":{"replicas":1}}`
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.want(t, strings.Replace(observed, `"replicas":1`, `"replicas":1000`, 1))
	s.accept(t, server{`"replicas":1000`, `"replicas":1`})
	s.Desired[0].APIVersion, s.Desired[0].Content["apiVersion"] = "apps/v2", "apps/v2"
	stored := s.Observed[0]
	inV2, err := object.Parse([]byte(strings.ReplaceAll(string(stored.JSON()), "apps/v1", "apps/v2")), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{} }
	kind := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	s.Epochs = map[schema.GroupKind]int64{kind: 2}
	s.turn()
	for _, step := range []struct {
		what   string
		change func()
		read   bool
	}{
		{"the first sync", func() {}, true},
		{"the next sync", func() {}, false},
		{"one soon after", func() { s.later(time.Minute) }, false},
		{"another epoch", func() { s.Epochs = map[schema.GroupKind]int64{kind: 3} }, true},
		{"the sync after that", func() {}, false},
		{"much later", func() { s.later(10 * time.Minute) }, true},
		{"another desired state", func() { s.Desired[0].Content["spec"] = map[string]any{"replicas": int64(1000), "paused": nil} }, true},
	} {
		step.change()
		s.OtherVersions, s.tried = nil, 0
		s.gather(t) // The schema.
		s.Records = s.records
		versions := plan.Missing(s.Input).Versions
		if read := len(versions) > 0; read != step.read {
			t.Errorf("%s: it is read: %t", step.what, read)
		}
		if len(versions) > 0 {
			s.OtherVersions = map[children.Key]plan.Reading{s.Desired[0].Key: {Object: inV2}}
		}
		got := s.step(t)
		if got.Reason != plan.Untried || got.PausedUntil.IsZero() || got.Report != step.read {
			t.Errorf("%s: %s %s until %v, reported: %t", step.what, got.Action, got.Reason, got.PausedUntil, got.Report)
		}
	}
	s.OtherVersions, s.Observed[0] = nil, s.parse(t, string(stored.JSON()))
	s.gather(t)
	if len(plan.Missing(s.Input).Versions) == 0 {
		t.Error("a child that changed is not read")
	}
}

func TestAChildThatIsKeptIsNotForgotten(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRollingRecreate)
	s.want(t, child("a", "1"))
	s.accept(t, nil)
	s.step(t)
	before := s.records
	s.Kept = []children.Key{children.KeyOf(s.Observed[0])}
	s.Desired, s.Observed = nil, nil
	s.make(t)
	if after := s.records; len(before) != 1 || !slices.Equal(before, after) {
		t.Errorf("records %v, then %v", before, after)
	}
	s.Kept = nil
	s.make(t)
	if after := s.records; len(after) > 0 {
		t.Errorf("records %v of a child that is gone", after)
	}
}

// oneAtomicList is the schema of a kind with an atomic list.
type oneAtomicList struct{ name string }

func (oneAtomicList) Field(name string) merge.Schema { return oneAtomicList{name} }
func (oneAtomicList) Item() merge.Schema             { return nil }
func (oneAtomicList) Default() (any, bool)           { return nil, false }
func (oneAtomicList) Shared() bool                   { return false }
func (oneAtomicList) Atomic() bool                   { return false }
func (a oneAtomicList) ListType() (string, []string) {
	if a.name == "list" {
		return "atomic", nil
	}
	return "", nil
}

// schemaFails has the schema be known, or not.
func (s *scene) schemaFails(fails bool) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	s.Schemas, s.SchemaErrors = map[schema.GroupVersionKind]merge.Schema{kind: oneAtomicList{}}, nil
	if fails {
		s.Schemas[kind] = nil
		s.SchemaErrors = map[schema.GroupVersionKind]error{kind: errors.New("no answer")}
	}
}

const withList = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"list":[{"name":"a","q":"1000m"}]}`

func TestDriftThatIsNotSeenWithoutASchemaIsSeenWithIt(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.schemaFails(false)
	s.want(t, withList)
	s.accept(t, nil)
	s.others(t, `"list":[`, `"list":[{"name":"theirs"},`)
	s.schemaFails(true)
	s.step(t)
	s.schemaFails(false)
	if step := s.step(t); step.Action != plan.Update || pathsOf(step.Changed) != "list" {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
}

func TestASchemaThatIsKnownLaterIsNoReasonToDeleteAChild(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.schemaFails(true)
	s.want(t, withList)
	s.accept(t, server{`"q":"1000m"`, `"q":"1"`})
	for _, fails := range []bool{true, false} {
		s.schemaFails(fails)
		s.others(t, `"kind":"ConfigMap"`, `"status":{"x":1},"kind":"ConfigMap"`)
		if step := s.step(t); step.Reason != plan.Same {
			t.Errorf("%s because of %v", step.Action, step.Changed)
		}
	}
	if s.tried != 1 {
		t.Errorf("%d dry runs", s.tried)
	}
}

func BenchmarkPlans(b *testing.B) {
	for name, serverSide := range map[string]bool{"Merge": false, "ServerSide": true} {
		for _, value := range []string{"1", "2"} {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			if serverSide {
				s.serverSide(true)
			}
			s.applied(b, "1")
			s.want(b, child("a", value))
			s.gather(b)
			b.Run(fmt.Sprint(name, value, "/Missing"), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					plan.Missing(s.Input)
				}
			})
			b.Run(fmt.Sprint(name, value, "/Make"), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = plan.Make(s.Input)
				}
			})
		}
	}
}

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
