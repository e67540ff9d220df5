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

package plan

import (
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

func TestAnObjectShowsTheFieldsThatItHas(t *testing.T) {
	const object = `{"spec":{"a":{"b":1},"ports":[{"port":80,"protocol":"TCP","name":"web"}],"set":["x",2]}}`
	for set, want := range map[string]bool{
		`{"f:spec":{"f:a":{"f:b":{}}}}`:         true,
		`{"f:spec":{"f:a":{"f:c":{}}}}`:         false,
		`{"f:spec":{"f:a":{"f:b":{"f:c":{}}}}}`: false,
		`{"f:other":{}}`:                        false,
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:name":{}}}}}`:  true,
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:other":{}}}}}`: false,
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"UDP\"}":{}}}}`:             false,
		`{"f:spec":{"f:set":{"v:\"x\"":{}}}}`:                                            true,
		`{"f:spec":{"f:set":{"v:2":{}}}}`:                                                true,
		`{"f:spec":{"f:set":{"v:\"y\"":{}}}}`:                                            false,
	} {
		var content map[string]any
		if err := utiljson.Unmarshal([]byte(object), &content); err != nil {
			t.Fatal(err)
		}
		var paths fieldpath.Set
		if err := paths.FromJSON(strings.NewReader(set)); err != nil {
			t.Fatal(err)
		}
		paths.Leaves().Iterate(func(path fieldpath.Path) {
			if got := shows(content, path); got != want {
				t.Errorf("%s is shown: %t, want %t", path, got, want)
			}
		})
	}
}
