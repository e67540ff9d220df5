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
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const (
	configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
	applied   = `{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"}}`
	placed    = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"},"data":{"k":"v"}}`
)

func TestActions(t *testing.T) {
	const (
		inPlace  = v1alpha1.ChildUpdateInPlace
		recreate = v1alpha1.ChildUpdateRecreate
		onDelete = v1alpha1.ChildUpdateOnDelete
	)
	same := annotated(t, placed, applied)
	changed := strings.Replace(same, `"k":"v"}`, `"k":"other"}`, 1)
	deleting := strings.Replace(changed, `"name":"a"`, `"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"`, 1)
	for _, test := range []struct {
		name     string
		method   v1alpha1.ChildUpdateMethod
		observed string
		desired  string
		action   plan.Action
		reason   plan.Reason
		changed  string
	}{
		{"a new child", onDelete, "", configMap, plan.Create, "", ""},
		{"a child as desired", inPlace, same, configMap, plan.Leave, plan.Same, ""},
		{"a changed child, InPlace", inPlace, changed, configMap, plan.Update, "", "data.k"},
		{"a changed child, RollingInPlace", v1alpha1.ChildUpdateRollingInPlace, changed, configMap, plan.Update, "", "data.k"},
		{"a changed child, Recreate", recreate, changed, configMap, plan.Recreate, "", "data.k"},
		{"a changed child, RollingRecreate", v1alpha1.ChildUpdateRollingRecreate, changed, configMap, plan.Recreate, "", "data.k"},
		{"a changed child, OnDelete", onDelete, changed, configMap, plan.Leave, plan.OnDelete, "data.k"},
		{"a changed child that is being deleted", inPlace, deleting, configMap, plan.Leave, plan.Deleting, ""},
		{"a child that is not desired", onDelete, same, "", plan.Delete, "", ""},
		{"a child that is not desired and being deleted", onDelete, deleting, "", plan.Leave, plan.Deleting, ""},
		{
			"an adopted child without record, InPlace", inPlace, placed, configMap, plan.Update, "",
			"metadata.annotations[" + merge.Annotation + "]",
		},
		{
			"an adopted child without record, Recreate", recreate, placed, configMap, plan.Update, "",
			"metadata.annotations[" + merge.Annotation + "]",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(test.method)
			if test.observed != "" {
				s.see(t, test.observed)
			}
			if test.desired != "" {
				s.want(t, test.desired)
			}
			step := s.step(t)
			if step.Action != test.action || step.Reason != test.reason {
				t.Errorf("%s %s, want %s %s", step.Action, step.Reason, test.action, test.reason)
			}
			if got := pathsOf(step.Changed); got != test.changed {
				t.Errorf("changed %q, want %q", got, test.changed)
			}
			if (step.Body != nil) != (step.Action == plan.Create || step.Action == plan.Update) {
				t.Errorf("body %s for %s", step.Body, step.Action)
			}
			if waits := s.last.Waits(); waits != (test.observed == deleting && test.desired != "") {
				t.Errorf("waits for the place: %t", waits)
			}
			if again := s.step(t); again.Action != step.Action || again.Reason != step.Reason {
				t.Errorf("the next plan says %s %s", again.Action, again.Reason)
			}
		})
	}
}

func TestAnUnknownMethodIsAnError(t *testing.T) {
	s := newScene("Sideways")
	s.want(t, configMap)
	s.see(t, strings.Replace(annotated(t, placed, applied), `"k":"v"}`, `"k":"other"}`, 1))
	_, err := s.plan(t)
	if err == nil || err.Error() != "ConfigMap ns/a: invalid update strategy for ConfigMap: unknown method Sideways" {
		t.Errorf("error %v", err)
	}
}

func TestStepsAreSorted(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	child := func(apiVersion, kind, name string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `","namespace":"ns"}}`
	}
	s.want(t, child("apps/v1", "Deployment", "z"), child("apps/v1", "DaemonSet", "d"), child("v1", "ConfigMap", "second"),
		child("v1", "ConfigMap", "first"), child("apps/v1", "Deployment", "a"))
	s.see(t, child("apps/v1", "Deployment", "old"), child("v1", "ConfigMap", "y"), child("v1", "ConfigMap", "x"))
	var got []string
	for _, step := range s.make(t).Steps {
		got = append(got, string(step.Action)+" "+step.Kind+" "+step.Name)
	}
	want := "Delete ConfigMap x, Delete ConfigMap y, Create ConfigMap second, Create ConfigMap first, Create DaemonSet d, " +
		"Delete Deployment old, Create Deployment z, Create Deployment a"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

func TestOneChildThatCannotBeMergedDoesNotStopTheOthers(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"data":"text"}`, configMap)
	s.see(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad","namespace":"ns"},"data":{"a":"b"}}`)
	p, err := s.plan(t)
	const want = "ConfigMap ns/bad: can't merge desired changes: desired[data]: expecting an object, got a string"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if len(p.Steps) != 1 || p.Steps[0].Action != plan.Create {
		t.Errorf("steps %+v", p.Steps)
	}
}

func TestBodyOfCreate(t *testing.T) {
	s := newScene("")
	s.want(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"7","uid":"x","creationTimestamp":null,
		"annotations":{"b":"c","`+merge.Annotation+`":"{}"},"ownerReferences":[{"uid":"parent","name":"wrong"},{"uid":"friend"}]},
		"data":{"k":null},"status":{"s":1}}`)
	const record = `{\"apiVersion\":\"v1\",\"data\":{\"k\":null},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{\"b\":\"c\"},` +
		`\"name\":\"a\",\"namespace\":\"ns\",\"ownerReferences\":[{\"uid\":\"friend\"}]}}`
	const want = `{"apiVersion":"v1","data":{"k":null},"kind":"ConfigMap","metadata":{"annotations":{"b":"c",` +
		`"metacontroller.k8s.io/last-applied-configuration":"` + record + `"},"name":"a","namespace":"ns","ownerReferences":[{"uid":"friend"},` +
		`{"apiVersion":"example.com/v1","blockOwnerDeletion":true,"controller":true,"kind":"Parent","name":"p","uid":"parent"}]},"status":{"s":1}}`
	if got := string(s.step(t).Body); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestUpdatesLeaveToTheSystemWhatIsTheSystems(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"wrong","resourceVersion":"0","generation":9,
		"creationTimestamp":"2000-01-01T00:00:00Z"},"data":{"k":"new"},"status":{"mine":true}}`)
	s.see(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"child","generation":1,
		"creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["theirs"]},"data":{"k":"old"},"status":{"theirs":true}}`)
	step := s.step(t)
	body := decode(t, string(step.Body))
	metadata, _ := body["metadata"].(map[string]any)
	if metadata["uid"] != "child" || metadata["resourceVersion"] != "1" || metadata["generation"] != int64(1) ||
		metadata["creationTimestamp"] != "2026-01-01T00:00:00Z" || !strings.Contains(string(step.Body), `"status":{"theirs":true}`) {
		t.Errorf("body %s", step.Body)
	}
	if step.Changed[0].Path != "data.k" || len(step.Changed) != 2 {
		t.Errorf("changed %v", step.Changed)
	}
}

func TestAReturnedObjectSettles(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, nil)
	for range 5 {
		// The hook returns what it was sent.
		s.want(t, string(s.Observed[0].JSON()))
		if step := s.accept(t, nil); step.Action != plan.Leave {
			t.Fatalf("%s because of %v, with\n%s", step.Action, step.Changed, step.Body)
		}
	}
	if text, _ := s.Observed[0].Annotation(merge.Annotation); text != applied {
		t.Errorf("the record is %s", text)
	}
}

func TestOurOwnerReferenceIsNeverRemoved(t *testing.T) {
	const record = `{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"ns",` +
		`"ownerReferences":[{"uid":"parent"}]}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, strings.Replace(configMap, `"v"`, `"new"`, 1))
	s.see(t, annotated(t, strings.Replace(placed, `"name":"a"`, `"name":"a","ownerReferences":[{"uid":"parent"}]`, 1), record))
	if step := s.step(t); !strings.Contains(string(step.Body), `"ownerReferences":[{"uid":"parent"}]`) {
		t.Errorf("body %s", step.Body)
	}
}

func TestRecordsOfMetacontrollerAreUnderstood(t *testing.T) {
	const old = `{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"creationTimestamp":null,"name":"a","namespace":"ns"},"status":{}}`
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.want(t, configMap)
	s.see(t, annotated(t, placed, old))
	if step := s.step(t); step.Action != plan.Leave {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
}

func TestDamagedRecordsAreReplaced(t *testing.T) {
	for _, record := range []string{"", "{", "[]", `"a"`} {
		s := newScene(v1alpha1.ChildUpdateInPlace)
		s.want(t, configMap)
		s.see(t, annotated(t, placed, record))
		s.accept(t, nil)
		if text, _ := s.Observed[0].Annotation(merge.Annotation); text != applied {
			t.Errorf("%q became %s", record, text)
		}
	}
}

func TestSecretsRecordedInClearAreRewrittenInPlace(t *testing.T) {
	const secret = `{"apiVersion":"v1","data":{"k":"djE="},"kind":"Secret","metadata":{"name":"a","namespace":"ns"}}`
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.want(t, secret)
	s.see(t, annotated(t, secret, secret))
	step := s.accept(t, nil)
	if step.Action != plan.Update || strings.Count(string(step.Body), "djE=") != 1 {
		t.Errorf("%s with %s", step.Action, step.Body)
	}
	if step = s.accept(t, nil); step.Action != plan.Leave {
		t.Errorf("then %s because of %v", step.Action, step.Changed)
	}
}

func TestKeysOfSecretsAreRemoved(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a":"MQ=="},"stringData":{"b":"2"}}`)
	s.accept(t, server{`"stringData":{"b":"2"}`, `"type":"Opaque"`, `"a":"MQ=="`, `"a":"MQ==","b":"Mg=="`})
	s.others(t, `"a":"MQ=="`, `"a":"MQ==","theirs":"OQ=="`)
	s.want(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a":"MQ=="}}`)
	step := s.step(t)
	if step.Changed[0].Path != "data.b" || !strings.Contains(string(step.Body), `"data":{"a":"MQ==","theirs":"OQ=="}`) {
		t.Errorf("changed %v, body %s", step.Changed, step.Body)
	}
}

func TestAChildInAnotherVersion(t *testing.T) {
	const (
		desired  = `{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"name":"a"},"spec":{"new":2}}`
		observed = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"ns"},"spec":{"old":1}}`
	)
	live := `{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"name":"a","namespace":"ns"},"spec":{"new":1}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, desired)
	s.see(t, observed)
	t.Run("without a reader is written as observed", func(t *testing.T) {
		if step := s.step(t); step.Resource.Version != "v1" || !strings.Contains(string(step.Body), `"apiVersion":"apps/v1"`) {
			t.Errorf("%v %s", step.Resource, step.Body)
		}
	})
	key := s.Desired[0].Key
	t.Run("is read in the version that the hook returned", func(t *testing.T) {
		versions := plan.Missing(s.Input).Versions
		if len(versions) != 1 || versions[0].Key != key || versions[0].Resource.Version != "v2" || versions[0].Resource.Resource != "deployments" {
			t.Errorf("reads %+v", versions)
		}
	})
	t.Run("is written in the version that the hook returned", func(t *testing.T) {
		s.version-- // All versions of a kind have one resourceVersion.
		s.OtherVersions = map[children.Key]plan.Reading{key: {Object: s.parse(t, live)}}
		step := s.step(t)
		if step.Resource.Version != "v2" || !strings.Contains(string(step.Body), `"apiVersion":"apps/v2"`) ||
			!strings.Contains(string(step.Body), `"spec":{"new":2}`) {
			t.Errorf("%v %s", step.Resource, step.Body)
		}
		s.wrote(step, s.parse(t, string(step.Body)))
	})
	t.Run("is not read while nothing changed", func(t *testing.T) {
		s.see(t, observed)
		s.Observed[0] = s.versioned(t, observed)
		s.OtherVersions = nil
		s.gather(t)
		if step := s.step(t); step.Action != plan.Leave || len(plan.Missing(s.Input).Versions) > 0 {
			t.Errorf("%s after reading %v", step.Action, plan.Missing(s.Input).Versions)
		}
	})
	t.Run("is left alone when it changed since it was claimed", func(t *testing.T) {
		s.see(t, observed)
		s.OtherVersions = map[children.Key]plan.Reading{key: {Object: s.parse(t, live)}}
		if step := s.step(t); step.Action != plan.Leave || step.Reason != plan.Stale {
			t.Errorf("%s %s", step.Action, step.Reason)
		}
	})
	t.Run("is left alone when it is gone", func(t *testing.T) {
		s.see(t, observed)
		s.OtherVersions = map[children.Key]plan.Reading{key: {}}
		if step := s.step(t); step.Action != plan.Leave || step.Reason != plan.Deleting {
			t.Errorf("%s %s", step.Action, step.Reason)
		}
	})
	t.Run("is not what was read for another revision, in a third version", func(t *testing.T) {
		s.see(t, observed)
		s.OtherVersions = map[children.Key]plan.Reading{key: {Object: s.parse(t, strings.Replace(live, "apps/v2", "apps/v3", 1))}}
		if versions := plan.Missing(s.Input).Versions; len(versions) != 1 || versions[0].Resource.Version != "v2" {
			t.Errorf("reads %+v", versions)
		}
		if step := s.step(t); step.Reason == plan.Stale || strings.Contains(string(step.Body), "apps/v3") {
			t.Errorf("%s %s with %s", step.Action, step.Reason, step.Body)
		}
	})
	t.Run("is an error when it cannot be read", func(t *testing.T) {
		s.see(t, observed)
		s.OtherVersions = map[children.Key]plan.Reading{key: {Err: errors.New("no")}}
		if _, err := s.plan(t); err == nil || err.Error() != "Deployment ns/a: reading it in version v2: no" {
			t.Errorf("error %v", err)
		}
	})
}

// versioned returns an object with the version that was given last but one, which is the one of the last write.
func (s *scene) versioned(t *testing.T, text string) *object.Object {
	t.Helper()
	s.version -= 2
	return s.parse(t, text)
}

func TestUnchanged(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRollingRecreate)
	s.want(t, configMap)
	s.see(t, annotated(t, placed, applied))
	s.gather(t)
	if !s.Unchanged(s.Desired[0], s.Observed[0]) {
		t.Error("the same counts as changed")
	}
	s.want(t, strings.Replace(configMap, `"v"`, `"new"`, 1))
	s.gather(t)
	if s.Unchanged(s.Desired[0], s.Observed[0]) {
		t.Error("another value counts as the same")
	}
}

// TestAChildThatDiffersIsTriedOnceInARollingUpdate has it in doubt whether the API server or the latest revision makes a child differ, in syncs that
// leave it on its revision.
func TestAChildThatDiffersIsTriedOnceInARollingUpdate(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRollingInPlace)
	s.want(t, child("a", "1000m"))
	s.accept(t, server{`"k":"1000m"`, `"k":"1"`})
	kind := schema.GroupKind{Kind: "ConfigMap"}
	s.Epochs = map[schema.GroupKind]int64{kind: 2}
	s.step(t) // It is known in this epoch, too.
	for _, step := range []struct {
		what, latest string
		tried        int
		unchanged    bool
	}{
		{"another value", "2000m", 1, false},
		{"another value again", "2000m", 0, false},
		{"another one", "3000m", 1, false},
		{"one of which the API server makes the same", "1000.0m", 1, true},
	} {
		s.Epochs = map[schema.GroupKind]int64{kind: s.Epochs[kind] + 1}
		s.want(t, child("a", step.latest))
		s.what = server{`"k":"1000.0m"`, `"k":"1"`}
		s.Comparing, s.Compared, s.tried = true, map[children.Key]plan.Asked{}, 0
		s.gather(t)
		if unchanged := s.Unchanged(s.Desired[0], s.Observed[0]); unchanged != step.unchanged || s.tried != step.tried {
			t.Errorf("%s: unchanged %t, %d dry runs, want %d", step.what, unchanged, s.tried, step.tried)
		}
		s.records = s.records.Compared(s.Compared)
	}
}

func BenchmarkPlanOfSettledChildren(b *testing.B) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(b, configMap)
	s.see(b, annotated(b, placed, applied))
	s.make(b)
	s.gather(b)
	s.bench(b)
}

func BenchmarkPlanOfUnknownChildren(b *testing.B) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(b, configMap)
	s.see(b, annotated(b, placed, applied))
	s.gather(b)
	s.bench(b)
}

// bench does what a sync does that has nothing to write.
func (s *scene) bench(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if len(plan.Missing(s.Input).Doubts) > 0 {
			b.Fatal("there is a doubt")
		}
		p, err := plan.Make(s.Input)
		if err != nil || p.Writes() > 0 {
			b.Fatal("there is something to write")
		}
		p.Next(s.Records, nil, 1)
	}
}

func numbered(name, value, metadata string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns"%s},"data":{"k":%q}}`, name, metadata, value)
}

func TestAPlanWithoutItsDeletionsKeepsWhatItWouldDelete(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.want(t, numbered("new", "1", ""), numbered("changed", "2", ""))
	s.see(t, numbered("changed", "1", `,"uid":"1"`), numbered("unwanted", "1", `,"uid":"2"`),
		numbered("leaving", "1", `,"uid":"3","deletionTimestamp":"2026-01-01T00:00:00Z"`))
	s.gather(t)
	p, err := plan.Make(s.Input)
	if err != nil {
		t.Fatal(err)
	}
	show := func(p plan.Plan) (actions map[string]plan.Action, kept []string) {
		actions = map[string]plan.Action{}
		for i := range p.Steps {
			actions[p.Steps[i].Name] = p.Steps[i].Action
		}
		for _, key := range p.Kept {
			kept = append(kept, key.Name)
		}
		return actions, kept
	}
	before, _ := show(p)
	if diff := cmp.Diff(map[string]plan.Action{
		"new": plan.Create, "changed": plan.Recreate, "unwanted": plan.Delete, "leaving": plan.Leave,
	}, before); diff != "" || len(p.Deletions()) != 2 {
		t.Fatalf("%d deletions in another plan (-want +got):\n%s", len(p.Deletions()), diff)
	}
	without := p.WithoutDeletions()
	actions, kept := show(without)
	if diff := cmp.Diff(map[string]plan.Action{"new": plan.Create, "leaving": plan.Leave}, actions); diff != "" {
		t.Errorf("the steps differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"unwanted", "changed"}, kept); diff != "" {
		t.Errorf("other children are kept (-want +got):\n%s", diff)
	}
	if len(without.Deletions()) != 0 {
		t.Errorf("%d deletions are left", len(without.Deletions()))
	}
	if after, _ := show(p); cmp.Diff(before, after) != "" {
		t.Error("the plan itself changed")
	}
}

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
