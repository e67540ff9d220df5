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
	"math/rand/v2"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
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

// A child that surely fits is not looked at: nothing would be tried for one that has to move.
func TestNoJSONIsLongerThanTheLongest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"", "a", `"`, `\`, "<", "&", "\n", "\x01", "\x7f", "\xff", "é", "\u2028", "😀", "x-y/z"}
	text := func() string {
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := random.IntN(8); {
		case n < 2 && depth > 0:
			fields := map[string]any{}
			for range random.IntN(5) {
				fields[text()] = value(depth - 1)
			}
			return fields
		case n < 3 && depth > 0:
			list := make([]any, random.IntN(5))
			for i := range list {
				list[i] = value(depth - 1)
			}
			return list
		case n == 4:
			return random.Int64() - random.Int64()
		case n == 5:
			return random.NormFloat64() * 1e300
		case n == 6:
			return []any{nil, true, false}[random.IntN(3)]
		}
		return text()
	}
	for range 20000 {
		for _, kind := range []string{"ConfigMap", "Secret"} {
			content := map[string]any{"apiVersion": "v1", "kind": kind, "data": value(3), "stringData": value(1), "spec": value(4)}
			encoded, err := merge.Encode(content)
			if err != nil {
				t.Fatal(err)
			}
			if longest := longestJSON(content); longest < len(encoded) {
				t.Fatalf("%d, and %s has %d", longest, encoded, len(encoded))
			}
		}
	}
}
