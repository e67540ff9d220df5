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

package discovery

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhereKindsComeFrom(t *testing.T) {
	example := schema.GroupVersion{Group: "example.com", Version: "v1"}
	for name, tc := range map[string]struct {
		reason  string
		label   string
		version schema.GroupVersion
		want    Origin
	}{
		"Custom":     {"kube-apiserver makes the APIService with the definition.", "true", example, Custom},
		"BuiltIn":    {"Kubernetes' own groups may have a dot.", "onstart", example, BuiltIn},
		"Aggregated": {"Somebody else has made the APIService.", "", example, Aggregated},
		"Absent":     {"It may be in no list yet.", "true", schema.GroupVersion{Group: "other.example.com", Version: "v1"}, Unknown},
		"Core":       {"No definition can have such a group.", "", schema.GroupVersion{Version: "v1"}, BuiltIn},
		"Apps":       {"No definition can have such a group.", "", schema.GroupVersion{Group: "apps", Version: "v1"}, BuiltIn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: tc.label}
				if got := q.run(t).Origin(tc.version); got != tc.want {
					t.Errorf("%s got %d, want %d", tc.reason, got, tc.want)
				}
			})
		})
	}
	if got := (&Discovery{}).Origin(example); got != Unknown {
		t.Errorf("without a watch of APIServices the origin is %d, want unknown", got)
	}
}
