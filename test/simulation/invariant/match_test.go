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
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

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
		"an element of stages": `"f:spec":{"f:stages":{}}`,
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
				case "an element of stages":
					have.at("spec")["stages"] = []any{map[string]any{"name": "own-0"}, map[string]any{"name": "own-1"}}
					want.at("spec")["stages"] = []any{map[string]any{"name": "own-0"}}
				default:
					have.at("spec", "settings")["own-more"] = "foreign"
				}
				before := runtime.DeepCopyJSON(have)
				got := difference(want, withoutTaken("d", want, have), hooks.Edition{})
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
