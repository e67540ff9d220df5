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

import "testing"

func TestUnsettled(t *testing.T) {
	for name, test := range map[string]struct {
		reason, metadata, rest string
		want                   bool
	}{
		"Settled":      {"The status shows the present generation.", `"generation":3`, `,"status":{"observedGeneration":3}`, false},
		"Changed":      {"The status shows a generation of before.", `"generation":3`, `,"status":{"observedGeneration":2}`, true},
		"New":          {"There is no status yet.", `"generation":1`, ``, true},
		"Deleted":      {"A deletion is to be dealt with.", `"generation":1,"deletionTimestamp":"2026-01-01T00:00:00Z"`, `,"status":{"observedGeneration":1}`, true},
		"NoGeneration": {"Nothing tells.", `"name":"a"`, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, `{"apiVersion":"v1","kind":"A","metadata":{`+test.metadata+`}`+test.rest+`}`)
			if got := Unsettled(o); got != test.want {
				t.Errorf("%s\ngot %v", test.reason, got)
			}
		})
	}
}
