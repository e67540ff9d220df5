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
	"fmt"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestChildrenThatADecisionLeavesOutAreKept(t *testing.T) {
	observed := map[string]*object.Object{}
	for _, name := range []string{"a", "b", "c"} {
		o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q}}`, name), object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		observed[name] = o
	}
	for name, tc := range map[string]struct{ observed, decided, kept []string }{
		"no children":   {nil, nil, nil},
		"all decided":   {[]string{"a", "b"}, []string{"b", "a"}, nil},
		"one left out":  {[]string{"a", "b", "c"}, []string{"a", "c"}, []string{"b"}},
		"none decided":  {[]string{"a", "b"}, nil, []string{"a", "b"}},
		"only one left": {[]string{"c"}, nil, []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Sync{}
			for _, name := range tc.observed {
				s.Observed = append(s.Observed, observed[name])
			}
			for _, name := range tc.decided {
				s.Decision.Observed = append(s.Decision.Observed, observed[name])
			}
			var want []children.Key
			for _, name := range tc.kept {
				want = append(want, children.Key{Kind: "Pod", Name: name})
			}
			if got := s.kept(); !slices.Equal(got, want) {
				t.Errorf("kept %v, want %v", got, want)
			}
		})
	}
}
