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
	"fmt"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
