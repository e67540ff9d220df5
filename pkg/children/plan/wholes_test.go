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
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
				if got := plan.Paths(step.Changed); got != tc.want || (step.Action == plan.Update) != (tc.want != "") {
					t.Errorf("%s %s because of %q, want %q", step.Action, step.Reason, got, tc.want)
				}
			})
		}
	}
}
