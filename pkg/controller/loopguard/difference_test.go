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

package loopguard_test

import (
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
)

func TestDifferencesAreToldWithoutTheirValues(t *testing.T) {
	for _, test := range []struct{ before, after, path, kinds, advice string }{
		{`{"a":1,"t":"2026-01-01T00:00:00Z"}`, `{"a":1,"t":"2026-01-01T00:00:01Z"}`, "status.t", "a time, then another time", "Leave times out"},
		{`{"m":"at 2026-01-01 00:00"}`, `{"m":"at 2026-01-01 00:01"}`, "status.m", "a text with a time, then another text with a time", "Leave times out"},
		{`{"n":{"m":1}}`, `{"n":{"m":2}}`, "status.n.m", "a number, then another number", "count neither"},
		{`{"n":1}`, `{"n":"1"}`, "status.n", "a number, then a text", "Return the same"},
		{`{}`, `{"n":true}`, "status.n", "nothing, then a boolean", "Return the same"},
		{`{"l":[1,2]}`, `{"l":[2,1]}`, "status.l", "a list, then the same list in another order", "Sort the list"},
		{`{"l":[1,2]}`, `{"l":[1,3]}`, "status.l[1]", "a number, then another number", "count neither"},
		{`{"l":[1,2]}`, `{"l":[1]}`, "status.l", "a list, then another list", "Return the same"},
		{
			`{"u":"6b0a4c1e-0000-4000-8000-000000000001"}`, `{"u":"6b0a4c1e-0000-4000-8000-000000000002"}`,
			"status.u", "a UUID, then another UUID", "its UID",
		},
		{`{"o":{}}`, `{"o":"x"}`, "status.o", "an object, then a text", "Return the same"},
		{`{"o":1}`, `{"o":1}`, "", "", ""},
	} {
		t.Run(test.before+test.after, func(t *testing.T) {
			d, differs := loopguard.First("status", decode(t, test.before), decode(t, test.after))
			if d.Path != test.path || differs != (test.path != "") {
				t.Fatalf("differs: %t, at %s", differs, d.Path)
			}
			if !differs {
				return
			}
			if got := d.Kinds(); got != test.kinds {
				t.Errorf("kinds %q, want %q", got, test.kinds)
			}
			if got := d.Advice(); !strings.Contains(got, test.advice) {
				t.Errorf("advice %q, want %q in it", got, test.advice)
			}
		})
	}
}

func decode(t *testing.T, text string) (value any) {
	t.Helper()
	if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
