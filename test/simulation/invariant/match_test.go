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
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// TestWhatOthersTookOverIsNotLeftOver is about docs/reference/strategies.md#who-merges.
func TestWhatOthersTookOverIsNotLeftOver(t *testing.T) {
	t.Parallel()
	const label = `"f:metadata":{"f:labels":{"f:own-color":{}}}`
	entry := func(manager, operation, fields string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":%q,"fieldsV1":{%s}}`, manager, operation, fields)
	}
	const controller = "metacontroller/DecoratorController/d"
	for name, tc := range map[string]struct {
		owners   string
		leftOver bool
	}{
		"TheUserAlone":                   {entry(controller, "Apply", "") + "," + entry("user", "Update", label), false},
		"TheControllerAlone":             {entry(controller, "Apply", label) + "," + entry("user", "Update", ""), true},
		"Both":                           {entry(controller, "Apply", label) + "," + entry("user", "Update", label), true},
		"AControllerThatDoesNotApply":    {entry("metacontroller", "Update", "") + "," + entry("user", "Update", label), true},
		"AControllerThatAppliesToOthers": {entry("metacontroller/DecoratorController/e", "Apply", "") + "," + entry("user", "Update", label), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := decode([]byte(`{"metadata":{"labels":{"own-color":"foreign"},"managedFields":[` + tc.owners + `]}}`))
			want := decode([]byte(`{"metadata":{}}`))
			got := difference(want, withoutTaken("d", want, have), hooks.Edition{})
			if (got != "") != tc.leftOver {
				t.Errorf("the difference is %q, but a label is left over: %v", got, tc.leftOver)
			}
			if have.at("metadata", "labels")["own-color"] == nil {
				t.Error("the object was changed")
			}
		})
	}
}
