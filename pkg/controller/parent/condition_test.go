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

package parent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestApplyCondition(t *testing.T) {
	updated := Condition{Type: "Updated", Status: metav1.ConditionTrue, Reason: "OnLatestRevision", Message: "latest ControllerRevision: r"}
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
			got := updated.Apply(status, observed, now)
			if diff := cmp.Diff(decode(t, tc.want), got); diff != "" {
				t.Errorf("%s\nstatus (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(decode(t, tc.status), status); diff != "" {
				t.Errorf("the hook's status was modified (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppliedConditionsAreAboutAGeneration(t *testing.T) {
	synced := Condition{Type: "Synced", Status: metav1.ConditionTrue, Reason: "Synced", ObservedGeneration: 3}
	const others = `"type":"Synced","status":"True","reason":"Synced","message":""`
	for name, tc := range map[string]struct{ observed, want string }{
		"the first one":                 {`{}`, `{` + others + `,"lastTransitionTime":"2026-02-03T04:05:06Z","observedGeneration":3}`},
		"a later generation":            {`{"conditions":[{"type":"Synced","status":"True","lastTransitionTime":"x","observedGeneration":2}]}`, `{` + others + `,"lastTransitionTime":"x","observedGeneration":3}`},
		"a kind without the generation": {`{"conditions":[{"type":"Synced","status":"True","lastTransitionTime":"x"}]}`, `{` + others + `,"lastTransitionTime":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := synced.Apply(nil, decode(t, tc.observed), time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
			if diff := cmp.Diff(decode(t, `{"conditions":[`+tc.want+`]}`), got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			read, ok := ConditionOf(got, "Synced")
			if read.ObservedGeneration = 3; !ok || read != synced {
				t.Errorf("it reads as %+v, want %+v", read, synced)
			}
		})
	}
}

func TestAHiddenTransitionIsATimeAlone(t *testing.T) {
	updated := func(since, status string) string {
		return `{"status":{"n":1.50,"conditions":[{"type":"Ready","lastTransitionTime":"a"},{"type":"Updated","status":"` + status + `","lastTransitionTime":"` + since + `"}]},"kind":"Thing"}`
	}
	first := HideTransition(parse(t, updated("a", "True")), "Updated")
	for name, tc := range map[string]struct {
		other string
		same  bool
	}{
		"another time":      {updated("b", "True"), true},
		"another status":    {updated("a", "False"), false},
		"another condition": {strings.Replace(updated("a", "True"), `"Ready","lastTransitionTime":"a"`, `"Ready","lastTransitionTime":"b"`, 1), false},
		"no condition":      {`{"status":{"n":1.50,"conditions":[{"type":"Ready","lastTransitionTime":"a"}]},"kind":"Thing"}`, false},
	} {
		if same := bytes.Equal(first.JSON(), HideTransition(parse(t, tc.other), "Updated").JSON()); same != tc.same {
			t.Errorf("%s: the same is %t, want %t", name, same, tc.same)
		}
	}
	if o := parse(t, `{"status":{"conditions":{"Updated":1}},"kind":"Thing"}`); HideTransition(o, "Updated") != o {
		t.Error("an object without the condition is another one")
	}
}

func TestAHiddenConditionLeavesNoTrace(t *testing.T) {
	const synced = `{"type":"Synced","status":"True"}`
	for name, tc := range map[string]struct{ with, without string }{
		"no status":            {`{"kind":"Thing","spec":{}}`, `{"kind":"Thing","spec":{}}`},
		"alone":                {`{"kind":"Thing","spec":{},"status":{"conditions":[` + synced + `]}}`, `{"kind":"Thing","spec":{}}`},
		"alone, in front":      {`{"status":{"conditions":[` + synced + `]},"kind":"Thing"}`, `{"kind":"Thing"}`},
		"alone, in the middle": {`{"kind":"Thing","status":{"conditions":[` + synced + `]},"spec":{}}`, `{"kind":"Thing","spec":{}}`},
		"among fields":         {`{"kind":"Thing","status":{"conditions":[` + synced + `],"n":1.50}}`, `{"kind":"Thing","status":{"n":1.50}}`},
		"among conditions":     {`{"kind":"Thing","status":{"conditions":[{"type":"Ready"},` + synced + `,1]}}`, `{"kind":"Thing","status":{"conditions":[{"type":"Ready"},1]}}`},
		"in a text alone":      {`{"kind":"Thing","status":{"conditions":[{"type":"Ready","message":"Synced"}]}}`, `{"kind":"Thing","status":{"conditions":[{"type":"Ready","message":"Synced"}]}}`},
		"no list":              {`{"kind":"Thing","status":{"conditions":{"Synced":1}}}`, `{"kind":"Thing","status":{"conditions":{"Synced":1}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.with)
			hidden := HideCondition(o, "Synced")
			if got := string(hidden.JSON()); got != tc.without {
				t.Errorf("got %s, want %s", got, tc.without)
			}
			if (hidden == o) != (tc.with == tc.without) {
				t.Error("an object is the same if and only if nothing is hidden")
			}
			status, there, err := StatusOf(o)
			if err != nil || !there {
				return
			}
			want, _, err := StatusOf(hidden)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(WithoutCondition(status, "Synced"))
			if wanted, _ := json.Marshal(want); !bytes.Equal(got, wanted) && len(want) > 0 {
				t.Errorf("the status without it is %s, want %s", got, wanted)
			}
		})
	}
}
