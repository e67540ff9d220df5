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

package reconciler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestDifferencesOfAnObject(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		want          []v1alpha1.FieldChange
	}{
		"the same": {`{"kind":"Thing","apiVersion":"v1","spec":{"a":1}}`, `{"kind":"Thing","apiVersion":"v1","spec":{"a":1}}`, []v1alpha1.FieldChange{}},
		"changed, new and gone": {
			`{"kind":"Thing","apiVersion":"v1","spec":{"a":1},"old":true}`, `{"kind":"Thing","apiVersion":"v1","spec":{"a":2},"new":[1]}`,
			[]v1alpha1.FieldChange{{Path: "new", Desired: new("[1]")}, {Path: "spec.a", Observed: new("1"), Desired: new("2")}, {Path: "old", Observed: new("true")}},
		},
		"values of a Secret": {
			`{"kind":"Secret","apiVersion":"v1","data":{"a":"eA=="}}`, `{"kind":"Secret","apiVersion":"v1","data":{"a":"eQ==","b":"eg=="}}`,
			[]v1alpha1.FieldChange{{Path: "data.a", Observed: new(`"(hidden)"`), Desired: new(`"(hidden)"`)}, {Path: "data.b", Desired: new(`"(hidden)"`)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := object.Parse([]byte(tc.before), object.ParseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var after map[string]any
			if err := utiljson.Unmarshal([]byte(tc.after), &after); err != nil {
				t.Fatal(err)
			}
			got, err := changesOf(o, after)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}
