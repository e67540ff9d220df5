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
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

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
