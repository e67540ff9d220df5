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
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// TestWhatAFormerManagerAppliedIsOurs is about a child that another field manager of this server applied, before its controller was created
// again with another name, or before a flag named the manager: what the hook drops goes all the same.
func TestWhatAFormerManagerAppliedIsOurs(t *testing.T) {
	const of = "metacontroller/compositecontroller/former"
	for name, tc := range map[string]struct {
		managers   []string
		serverSide bool
		// want is what is removed, empty for nothing.
		want string
	}{
		"AppliedByAnotherName":                   {[]string{of}, true, "data.dropped"},
		"AppliedByAnotherNameAndThenByOurs":      {[]string{of, ourManager}, true, "data.dropped"},
		"AppliedByTwoNames":                      {[]string{of, of + "-2"}, true, "data.dropped"},
		"AppliedByAnotherNameAndMergedNow":       {[]string{of}, false, "data.dropped"},
		"AppliedByTwoNamesAndMergedNow":          {[]string{of, of + "-2"}, false, "data.dropped"},
		"AppliedBySomebodyWhoseNameBeginsAsOurs": {[]string{"metacontroller-of-others"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			if s.Manager = ourManager; tc.serverSide {
				s.serverSide(false)
			}
			entries := make([]string, len(tc.managers))
			for i, manager := range tc.managers {
				fields := `"f:data":{"f:k":{},"f:dropped":{}}`
				if manager == ourManager {
					fields = `"f:data":{"f:k":{}}`
				}
				entries[i] = fmt.Sprintf(`{"manager":%q,"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{%s,`+
					`"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}`, manager, fields)
			}
			s.Observed = []*object.Object{managed(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"u",`+
				`"resourceVersion":"5",`+ownerReferences+`,"managedFields":[`+strings.Join(entries, ",")+`]},"data":{"k":"1","dropped":"1"}}`)}
			if tc.serverSide {
				// What our manager does not own yet stays.
				s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: s.Observed[0], Whole: s.Observed[0]} }
			}
			s.want(t, child("a", "1"))
			step := s.step(t)
			removed := strings.Contains(pathsOf(step.Changed), "data.dropped")
			if removed != (tc.want != "") || len(step.Body) == 0 {
				t.Errorf("%s because of %v, want %q removed; body %s", step.Action, step.Changed, tc.want, step.Body)
			}
			if tc.serverSide && tc.want != "" && (!strings.Contains(string(step.Migration), "f:dropped") || strings.Contains(string(step.Migration), of)) {
				t.Errorf("the fields do not become our manager's: %s", step.Migration)
			}
		})
	}
}

func TestManagersOfAPlace(t *testing.T) {
	const managed = `[
		{"manager":"early","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{},"f:args":{}}}},
		{"manager":"late","time":"2026-01-02T00:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{}},"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{}}}}},
		{"manager":"ports","fieldsV1":{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{}}}}}}]`
	for _, test := range []struct {
		why, place string
		want       []string
	}{
		{"of two the one that wrote last comes first", "spec.replicas", []string{"late", "early"}},
		{"a name may have dots", "metadata.labels.app.kubernetes.io/name", []string{"late"}},
		{"a name may begin with another one", "spec.replicasWanted", nil},
		{"what is owned as a whole is owned inside", "spec.args[2]", []string{"early"}},
		{"an item of a list", "spec.ports[53,UDP].name", []string{"ports"}},
		{"a field of an item that nobody owns", "spec.ports[53,UDP].port", nil},
		{"an item as a whole", "spec.ports[53,UDP]", []string{"ports"}},
		{"what is around owned places", "spec", []string{"late", "early", "ports"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			got, err := plan.Managers([]byte(managed), test.place)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("managers of %s are %q, error %v, want %q", test.place, got, err, test.want)
			}
		})
	}
	if _, err := plan.Managers([]byte(`{}`), "spec"); err == nil {
		t.Error("managedFields that are no list are no error")
	}
}

// wholes is the schema of a kind with an atomic map named selector, and with lists of which it does not say how they are merged.
type wholes struct{ at string }

func (wholes) Field(name string) merge.Schema         { return wholes{name} }
func (wholes) Item() merge.Schema                     { return wholes{} }
func (wholes) ListType() (kind string, keys []string) { return "", nil }
func (wholes) Default() (any, bool)                   { return nil, false }
func (wholes) Shared() bool                           { return false }
func (w wholes) Atomic() bool                         { return w.at == "selector" }
func (wholes) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

// whole returns a child of which our manager owns a field as a whole.
func whole(t testing.TB, field, value string) *object.Object {
	t.Helper()
	return managed(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5",`+
		ownerReferences+`,"managedFields":[{"manager":%q,"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":`+
		`{"f:%s":{},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}]},%q:%s}`, ourManager, field, field, value))
}

// TestWhatIsAppliedAsAWholeIsComparedAsAWhole is about fields that one manager owns with all that is in them: what the hook leaves out of one
// is to go, and its managedFields do not say what was in it.
func TestWhatIsAppliedAsAWholeIsComparedAsAWhole(t *testing.T) {
	const selector, list = "selector", "list"
	for name, tc := range map[string]struct {
		field, before, desired string
		// stored is what the API server makes of what is desired, empty for the same.
		stored string
		// unknown says that the schema could not be read.
		unknown bool
		want    string
	}{
		"AnEntryOfAMap":             {selector, `{"app":"web","track":"canary"}`, `{"app":"web"}`, "", false, "selector.track"},
		"AnElementOfAList":          {list, `[{"name":"a"},{"name":"b"}]`, `[{"name":"a"}]`, "", false, "list"},
		"AFieldOfAnElement":         {list, `[{"name":"a","x":"1"}]`, `[{"name":"a"}]`, "", false, "list"},
		"TheOrderOfAList":           {list, `[{"name":"a"},{"name":"b"}]`, `[{"name":"b"},{"name":"a"}]`, "", false, "list"},
		"NothingOfAMap":             {selector, `{"app":"web"}`, `{"app":"web"}`, "", false, ""},
		"NothingOfAList":            {list, `[{"name":"a"},{"name":"b"}]`, `[{"name":"a"},{"name":"b"}]`, "", false, ""},
		"ADefaultInAMap":            {selector, `{"app":"web","divisor":"0"}`, `{"app":"web"}`, `{"app":"web","divisor":"0"}`, false, ""},
		"ADefaultInAList":           {list, `[{"name":"a","protocol":"TCP"}]`, `[{"name":"a"}]`, `[{"name":"a","protocol":"TCP"}]`, false, ""},
		"WithoutASchemaNothingIs":   {list, `[{"name":"a","protocol":"TCP"}]`, `[{"name":"a"}]`, "", true, ""},
		"AMapThatIsNoWholeIsOthers": {"shared", `{"theirs":"1"}`, `{}`, "", false, ""},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/Restarted=%t", name, restarted), func(t *testing.T) {
				s := newScene(v1alpha1.ChildUpdateInPlace)
				s.serverSide(true)
				s.Schemas = map[schema.GroupVersionKind]merge.Schema{wholes{}.kind(): wholes{}}
				if tc.unknown {
					s.Schemas[wholes{}.kind()] = nil
					s.SchemaErrors = map[schema.GroupVersionKind]error{wholes{}.kind(): errors.New("no answer")}
				}
				text := func(value string) string {
					return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},%q:%s}`, tc.field, value)
				}
				sent := tc.before
				if tc.stored != "" {
					sent = tc.desired
				}
				s.want(t, text(sent))
				s.wrote(s.step(t), whole(t, tc.field, tc.before))
				s.Observed = []*object.Object{whole(t, tc.field, tc.before)}
				if restarted {
					s.restart()
				}
				s.trial = func(d plan.Doubt) plan.Trial {
					body, err := d.Body(d.Paths)
					if err != nil {
						t.Fatal(err)
					}
					var content map[string]any
					if err := utiljson.Unmarshal(body, &content); err != nil {
						t.Fatal(err)
					}
					value, err := utiljson.Marshal(content[tc.field])
					if err != nil {
						t.Fatal(err)
					}
					if string(value) == tc.desired && tc.stored != "" {
						value = []byte(tc.stored)
					}
					return plan.Trial{Result: whole(t, tc.field, string(value))}
				}
				s.want(t, text(tc.desired))
				step := s.step(t)
				if got := pathsOf(step.Changed); got != tc.want || (step.Action == plan.Update) != (tc.want != "") {
					t.Errorf("%s %s because of %q, want %q", step.Action, step.Reason, got, tc.want)
				}
			})
		}
	}
}

// elements is the schema of a kind whose lists are keyed by name and have atomic elements.
type elements struct{ at string }

func (elements) Field(string) merge.Schema              { return elements{"list"} }
func (elements) Item() merge.Schema                     { return elements{"element"} }
func (elements) ListType() (kind string, keys []string) { return "map", []string{"name"} }
func (elements) Default() (any, bool)                   { return nil, false }
func (elements) Shared() bool                           { return false }
func (e elements) Atomic() bool                         { return e.at == "element" }

// TestAnElementThatIsAppliedAsAWholeGoesWithTheHook is about lists such as imagePullSecrets, of whose elements managedFields say the key alone.
func TestAnElementThatIsAppliedAsAWholeGoesWithTheHook(t *testing.T) {
	const both = `"f:pull":{"k:{\"name\":\"a\"}":{},"k:{\"name\":\"b\"}":{}},`
	child := func(t *testing.T, fields, value string) *object.Object {
		t.Helper()
		return managed(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5",`+
			ownerReferences+`,"managedFields":[{"manager":%q,"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":`+
			`{%s"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}]},"pull":%s}`, ourManager, fields, value))
	}
	for name, tc := range map[string]struct {
		// after is what the API server makes of the update.
		before, desired, after, want string
	}{
		"one of them": {`[{"name":"a"},{"name":"b"}]`, `,"pull":[{"name":"a"}]`, `[{"name":"a"}]`, "pull[b]"},
		"all of them": {`[{"name":"a"},{"name":"b"}]`, ``, `null`, "pull"},
		"nothing":     {`[{"name":"a"},{"name":"b"}]`, `,"pull":[{"name":"a"},{"name":"b"}]`, `[{"name":"a"},{"name":"b"}]`, ""},
		"not that of another": {
			`[{"name":"a"},{"name":"b"},{"name":"theirs"}]`, `,"pull":[{"name":"a"},{"name":"b"}]`, `[{"name":"a"},{"name":"b"},{"name":"theirs"}]`, "",
		},
		"one beside another's": {`[{"name":"a"},{"name":"b"},{"name":"theirs"}]`, `,"pull":[{"name":"b"}]`, `[{"name":"b"},{"name":"theirs"}]`, "pull[a]"},
		"all beside another's": {`[{"name":"a"},{"name":"b"},{"name":"theirs"}]`, ``, `[{"name":"theirs"}]`, "pull[a] pull[b]"},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/Restarted=%t", name, restarted), func(t *testing.T) {
				s := newScene(v1alpha1.ChildUpdateInPlace)
				s.serverSide(true)
				s.Schemas = map[schema.GroupVersionKind]merge.Schema{wholes{}.kind(): elements{}}
				text := func(pull string) string {
					return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}` + pull + `}`
				}
				s.want(t, text(`,"pull":[{"name":"a"},{"name":"b"}]`))
				s.wrote(s.step(t), child(t, both, tc.before))
				s.Observed = []*object.Object{child(t, both, tc.before)}
				if restarted {
					s.restart()
				}
				s.trial = func(plan.Doubt) plan.Trial { return plan.Trial{Result: child(t, both, tc.after)} }
				s.want(t, text(tc.desired))
				step := s.step(t)
				if got := pathsOf(step.Changed); got != tc.want || (step.Action == plan.Update) != (tc.want != "") {
					t.Errorf("%s %s because of %q, want %q", step.Action, step.Reason, got, tc.want)
				}
			})
		}
	}
}
