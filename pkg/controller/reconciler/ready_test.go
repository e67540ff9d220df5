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

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestReadinessOfAChildIsThatOfItsConditions(t *testing.T) {
	for conditions, want := range map[string]struct{ ready, reported bool }{
		``:                                    {true, false},
		`[]`:                                  {true, false},
		`[{"type":"Other","status":"False"}]`: {true, false},
		`[{"type":"Ready","status":"True"}]`:  {true, true},
		`[{"type":"Ready","status":"False"}]`: {false, true},
		`[{"type":"Available","status":"True"},{"type":"Ready","status":"Unknown"}]`: {false, true},
		`[{"type":"Ready","status":"False","reason":"PodCompleted"}]`:                {true, true},
		`[{"type":"Ready","status":"False","reason":"PodFailed"}]`:                   {false, true},
		`"Ready"`: {true, false},
	} {
		text := `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"}}`
		if conditions != "" {
			text = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"status":{"conditions":` + conditions + `}}`
		}
		o, err := object.Parse([]byte(text), object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ready, reported := isReady(o); ready != want.ready || reported != want.reported {
			t.Errorf("%s: ready %t, reported %t, want %+v", conditions, ready, reported, want)
		}
	}
}
