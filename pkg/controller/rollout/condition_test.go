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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

func TestApplyCondition(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 7, time.FixedZone("", 3600))
	const (
		fresh = `{"type":"Updated","status":"True","reason":"OnLatestRevision","message":"latest ControllerRevision: r","lastTransitionTime":"2026-02-03T03:05:06Z"}`
		since = `{"type":"Updated","status":"True","reason":"OnLatestRevision","message":"latest ControllerRevision: r","lastTransitionTime":"2025-01-01T00:00:00Z"}`
		plain = `{"type":"Updated","status":"True","reason":"OnLatestRevision","message":"latest ControllerRevision: r"}`
	)
	cases := map[string]struct {
		reason           string
		status, observed string
		want             string
	}{
		"NoStatus":       {"A hook without a status gets one.", `null`, `null`, `{"conditions":[` + fresh + `]}`},
		"NullConditions": {"Null is no list, and no obstacle.", `{"conditions":null}`, `{}`, `{"conditions":[` + fresh + `]}`},
		"Others":         {"The hook's own conditions and fields stay.", `{"a":1,"conditions":[{"type":"Ready"}]}`, `{}`, `{"a":1,"conditions":[{"type":"Ready"},` + fresh + `]}`},
		"Overwritten":    {"The condition is ours even if the hook sets it.", `{"conditions":[{"type":"Updated","status":"Mine"},{"type":"Ready"},{"type":"Updated"}]}`, `{}`, `{"conditions":[` + fresh + `,{"type":"Ready"}]}`},
		"SameSince":      {"The time is that of the last change of the status.", `{}`, `{"conditions":[{"type":"Updated","status":"True","lastTransitionTime":"2025-01-01T00:00:00Z"}]}`, `{"conditions":[` + since + `]}`},
		"Changed":        {"A change of the status happens now.", `{}`, `{"conditions":[{"type":"Updated","status":"False","lastTransitionTime":"2025-01-01T00:00:00Z"}]}`, `{"conditions":[` + fresh + `]}`},
		"PrunedTime":     {"Where the schema drops the time, adding it would write for ever.", `{}`, `{"conditions":[{"type":"Updated","status":"True"}]}`, `{"conditions":[` + plain + `]}`},
		"NoList":         {"Conditions that are no list belong to the hook.", `{"conditions":{"Ready":true}}`, `{}`, `{"conditions":{"Ready":true}}`},
		"StrangeEntries": {"Entries that are no conditions stay.", `{"conditions":[1,"Updated",null]}`, `{"conditions":[1,null]}`, `{"conditions":[1,"Updated",null,` + fresh + `]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, observed := decode(t, tc.status), decode(t, tc.observed)
			got := onLatest("r").Apply(status, observed, now)
			if diff := cmp.Diff(decode(t, tc.want), got); diff != "" {
				t.Errorf("%s\nstatus (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(decode(t, tc.status), status); diff != "" {
				t.Errorf("the hook's status was modified (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesNameAFewChildren(t *testing.T) {
	var moved []children.Key
	for _, name := range names(7, 1) {
		moved = append(moved, children.Key{Kind: "Pod", Namespace: "n", Name: name})
	}
	want := "updating Pod n/web-7, Pod n/web-6, Pod n/web-5, Pod n/web-4, Pod n/web-3 and 2 more"
	if got := progressing("", moved).Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := waiting([]string{"missing child Pod a", "x", "y"}).Message, "missing child Pod a and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// document is an observed child by its content.
type document map[string]any

func (d document) Generation() int64 {
	value, _ := field(d, []string{"metadata", "generation"})
	generation, _ := value.(int64)
	return generation
}

func (d document) Deleting() bool {
	_, ok := field(d, []string{"metadata", "deletionTimestamp"})
	return ok
}

func (d document) Value(path ...string) any {
	value, _ := field(d, path)
	return value
}

func TestReadiness(t *testing.T) {
	text := func(s string) *string { return &s }
	ready := v1alpha1.StatusConditionCheck{Type: "Ready", Status: text("True")}
	cases := map[string]struct {
		reason  string
		inPlace bool
		checks  []v1alpha1.StatusConditionCheck
		child   string
		changed bool
		want    string
	}{
		"NoChecks":           {"Without checks an updated child is enough.", true, nil, `{"metadata":{}}`, false, ""},
		"Missing":            {"A child must be there.", true, nil, ``, false, "missing child Pod a"},
		"Deleting":           {"A child that goes away is not there to stay.", true, nil, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, false, "child Pod a is being deleted"},
		"NotUpdated":         {"A child must have the latest version.", true, nil, `{"metadata":{}}`, true, "child Pod a has not been updated to the latest revision"},
		"GenerationOld":      {"The child's own controller must have seen the change.", true, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":2}}`, false, "child Pod a has not observed its latest change: status.observedGeneration is 2, metadata.generation is 3"},
		"GenerationSeen":     {"It has.", true, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":3}}`, false, ""},
		"GenerationZero":     {"Zero says nothing.", true, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":0}}`, false, ""},
		"GenerationMissing":  {"Nor does nothing.", true, nil, `{"metadata":{"generation":3},"status":{}}`, false, ""},
		"GenerationStrange":  {"Nor does what is no number.", true, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":"2"}}`, false, ""},
		"GenerationRecreate": {"A child that is made anew has no old generation.", false, nil, `{"metadata":{"generation":3},"status":{"observedGeneration":2}}`, false, ""},
		"NoStatus":           {"A condition must exist.", true, []v1alpha1.StatusConditionCheck{{Type: "Ready"}}, `{"metadata":{}}`, false, `child Pod a: it has no condition "Ready"`},
		"ConditionsNoList":   {"A condition must exist in a list.", true, []v1alpha1.StatusConditionCheck{{Type: "Ready"}}, `{"status":{"conditions":{"type":"Ready"}}}`, false, `child Pod a: it has no condition "Ready"`},
		"ConditionStrange":   {"Entries that are no conditions do not hide those that are.", true, []v1alpha1.StatusConditionCheck{ready}, `{"status":{"conditions":[7,{"type":["Ready"]},{"type":"Ready","status":"True"}]}}`, false, ""},
		"TypeOnly":           {"Without a value any will do.", true, []v1alpha1.StatusConditionCheck{{Type: "Ready"}}, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, false, ""},
		"Status":             {"The status must be right.", true, []v1alpha1.StatusConditionCheck{ready}, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`, false, `child Pod a: condition "Ready" has status "Unknown", want "True"`},
		"Reason":             {"The reason must be right.", true, []v1alpha1.StatusConditionCheck{{Type: "Ready", Reason: text("Good")}}, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Bad"}]}}`, false, `child Pod a: condition "Ready" has reason "Bad", want "Good"`},
		"All":                {"Every check must pass.", true, []v1alpha1.StatusConditionCheck{ready, {Type: "Synced"}}, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, false, `child Pod a: it has no condition "Synced"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plannerOf()
			p.config.Rules[pods] = Rule{InPlace: tc.inPlace, Conditions: tc.checks}
			r := &run{planner: p, namespace: "home", returned: map[children.Key]bool{}, in: Input{
				Observed: func(children.Key) (Child, bool) {
					if tc.child == "" {
						return nil, false
					}
					return document(decode(t, tc.child)), true
				},
				Unchanged: func(children.Desired) bool { return !tc.changed },
			}, versions: []map[children.Key]children.Desired{nil}}
			if got := r.notReady(children.Key{Kind: "Pod", Namespace: "home", Name: "a"}); got != tc.want {
				t.Errorf("%s\ngot  %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestRuleOf(t *testing.T) {
	cases := map[string]struct {
		strategy *v1alpha1.CompositeControllerChildUpdateStrategy
		inPlace  bool
		rolls    bool
	}{
		"None":            {nil, false, false},
		"Empty":           {&v1alpha1.CompositeControllerChildUpdateStrategy{}, false, false},
		"InPlace":         {&v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace}, false, false},
		"Recreate":        {&v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateRecreate}, false, false},
		"RollingInPlace":  {&v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateRollingInPlace}, true, true},
		"RollingRecreate": {&v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateRollingRecreate}, false, true},
	}
	for name, tc := range cases {
		if rule, rolls := RuleOf(tc.strategy); rolls != tc.rolls || rule.InPlace != tc.inPlace {
			t.Errorf("%s: rolls %t in place %t, want %t and %t", name, rolls, rule.InPlace, tc.rolls, tc.inPlace)
		}
	}
	if plannerOf().Active() != true || New(Config{}).Active() {
		t.Error("a planner is active when a kind rolls, and only then")
	}
}

// field returns the value at a path, false if there is none.
func field(object map[string]any, path []string) (any, bool) {
	value, ok, err := unstructured.NestedFieldNoCopy(object, path...)
	return value, ok && err == nil
}
