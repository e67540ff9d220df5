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

package invariant

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// TestWhatOthersTookOverIsNotLeftOver is about docs/reference/strategies.md#who-merges.
func TestWhatOthersTookOverIsNotLeftOver(t *testing.T) {
	t.Parallel()
	const controller = "metacontroller/DecoratorController/d"
	entry := func(manager, operation, fields string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":%q,"fieldsV1":{%s}}`, manager, operation, fields)
	}
	for place, fields := range map[string]string{
		"a label":              `"f:metadata":{"f:labels":{"f:own-color":{}}}`,
		"a list of its spec":   `"f:spec":{"f:parts":{}}`,
		"an entry of settings": `"f:spec":{"f:settings":{"f:own-more":{}}}`,
	} {
		for name, tc := range map[string]struct {
			owners   string
			leftOver bool
		}{
			"TheUserAlone":                   {entry(controller, "Apply", "") + "," + entry("user", "Update", fields), false},
			"TheControllerAlone":             {entry(controller, "Apply", fields) + "," + entry("user", "Update", ""), true},
			"Both":                           {entry(controller, "Apply", fields) + "," + entry("user", "Update", fields), true},
			"AControllerThatDoesNotApply":    {entry("metacontroller", "Update", "") + "," + entry("user", "Update", fields), true},
			"AControllerThatAppliesToOthers": {entry("metacontroller/DecoratorController/e", "Apply", "") + "," + entry("user", "Update", fields), true},
		} {
			t.Run(place+"/"+name, func(t *testing.T) {
				t.Parallel()
				have := decode([]byte(`{"metadata":{"managedFields":[` + tc.owners + `]},"spec":{"settings":{}}}`))
				want := decode([]byte(`{"metadata":{},"spec":{"settings":{}}}`))
				switch place {
				case "a label":
					have.at("metadata")["labels"] = map[string]any{"own-color": "foreign"}
				case "a list of its spec":
					have.at("spec")["parts"] = []any{map[string]any{"id": int64(7)}}
				default:
					have.at("spec", "settings")["own-more"] = "foreign"
				}
				before := runtime.DeepCopyJSON(have)
				got := difference(want, withoutTaken("d", want, have, nil), hooks.Edition{})
				if (got != "") != tc.leftOver {
					t.Errorf("the difference is %q, but something is left over: %v", got, tc.leftOver)
				}
				if !reflect.DeepEqual(map[string]any(have), before) {
					t.Error("the object was changed")
				}
			})
		}
	}
}

// TestStagesThatOthersTookOverAreNotLeftOver is about a list that is applied as a whole, and a controller that moves to merging.
func TestStagesThatOthersTookOverAreNotLeftOver(t *testing.T) {
	t.Parallel()
	const whole = `"f:spec":{"f:stages":{}}`
	type write struct{ who, applied, annotation, stages string }
	applies := write{"engine", whole, "", "own-0 own-1"}
	edits := write{"user", "", "", "own-0 own-1 f-1"}
	merges := write{"engine", "", "own-0", "own-0 own-1 f-1"}
	for name, tc := range map[string]struct {
		writes   []write
		leftOver bool
	}{
		"AUserTakesOver":                     {[]write{applies, edits}, false},
		"TheControllerMergesAfterThat":       {[]write{applies, edits, merges}, false},
		"TheControllerMergesAlone":           {[]write{applies, merges}, true},
		"TheControllerAppliesAgain":          {[]write{applies, edits, applies}, true},
		"TheControllerAppliesAgainAndMerges": {[]write{applies, edits, applies, merges}, true},
		"TheUserKeepsNoSuchStage":            {[]write{applies, {"user", "", "", "own-0"}, {"user", "", "", "own-0 own-1"}}, true},
		"AHookSetTheStageAgain":              {[]write{applies, edits, {"engine", "", "own-0 own-1", "own-0 own-1 f-1"}, merges}, true},
		"AChildThatIsCreatedAnew":            {[]write{applies, edits, {}, applies, merges}, true},
		"TheUserAndTheController":            {[]write{applies, {"user", whole, "", "own-0 own-1"}}, true},
		"AControllerThatNeverOwnedThem":      {[]write{{"engine", "", "", "own-0 own-1"}, edits}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t)
			stages := func(names string) string {
				var all []string
				for name := range strings.FieldsSeq(names) {
					all = append(all, fmt.Sprintf(`{"name":%q}`, name))
				}
				return `{"spec":{"stages":[` + strings.Join(all, ",") + `]}}`
			}
			for _, w := range tc.writes {
				if w.who == "" {
					s.write("user", "delete", "gadgets", "g", "", 0)
					continue
				}
				o := s.decode(fmt.Sprintf(gadget, ""))
				o["spec"] = s.decode(stages(w.stages))["spec"]
				meta := object(o).at("metadata")
				meta["managedFields"] = s.decode(`{"":[{"manager":"metacontroller/DecoratorController/d","operation":"Apply","fieldsV1":{` + w.applied + `}}]}`)[""]
				if w.annotation != "" {
					meta["annotations"] = map[string]any{lastApplied: stages(w.annotation)}
				}
				s.write(w.who, "update", "gadgets", "g", string(value.Encode(o)), 0)
			}
			want, have := object(s.decode(stages("own-0"))), s.objects["g"]
			before := runtime.DeepCopyJSON(have)
			got := difference(want, withoutTaken("d", want, have, s.stagesTaken(have)), hooks.Edition{})
			if (got != "") != tc.leftOver {
				t.Errorf("the difference is %q, but something is left over: %v", got, tc.leftOver)
			}
			if got := difference(want, withoutTaken("e", want, have, s.stagesTaken(have)), hooks.Edition{}); got == "" {
				t.Error("nothing is left over for a controller that does not apply, or that applies to others")
			}
			if !reflect.DeepEqual(map[string]any(have), before) {
				t.Error("the object was changed")
			}
		})
	}
}

func TestWhatOthersAddToWholes(t *testing.T) {
	for spec, want := range map[string]bool{
		`{"matching":{"own-color":"red"},"stages":[{"name":"own-0"}]}`: false,
		`{"matching":{"own-color":"red","f-own-color":"x"}}`:           true,
		`{"stages":[{"name":"own-0"},{"name":"f-7"}]}`:                 true,
		`{"settings":{"f-own-color":"x"}}`:                             false,
	} {
		if got := addedToWholes(decode([]byte(`{"spec":` + spec + `}`))); got != want {
			t.Errorf("%s: %t, want %t", spec, got, want)
		}
	}
}
