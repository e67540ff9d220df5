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

package inline_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

var mutations = flag.Int("mutations", 300, "how many mutated definitions are compiled and called")

// mutator changes definitions at random, and repeats itself for the same seed.
type mutator struct {
	*rand.Rand
	// pieces are the strings of all definitions: expressions, texts, names.
	pieces []string
}

// mutate changes the strings of a decoded definition.
func (m *mutator) mutate(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = m.mutate(v[name])
		}
	case []any:
		for i := range v {
			v[i] = m.mutate(v[i])
		}
		if len(v) > 0 && m.IntN(20) == 0 {
			return append(v, v[m.IntN(len(v))])
		}
	case string:
		m.pieces = append(m.pieces, v)
		if m.IntN(4) == 0 {
			return m.text(v)
		}
	}
	return value
}

var operators = []string{
	" + ", " == ", ".", ".?", "[0]", "['a']", "[?'a']", "(", ")", "${", "}", "$${", "'", "\"", " ? 1 : 2", " && ", "!", "-", "\n", "dyn(", "optional.of(",
	".size()", ".map(x, x)", ".filter(x, true)", ".all(x, x == x)", ".orValue('')", ".format([1])", ".join(',')", "lists.range(9)", "{'a': 1}",
	"[1, 'a']", "null", "1e999", "9223372036854775807", "\x00", "é", "parent", "children.pods", "variables.a", "b'\\xff'", ".replace('', 'a')",
	".split('')", ".distinct()", ".flatten()", ".merge({})", "quantity('1e99')", "duration('1h')",
}

func (m *mutator) text(s string) string {
	at := m.IntN(len(s) + 1)
	end := min(len(s), at+m.IntN(12))
	switch m.IntN(5) {
	case 0:
		return s[:at] + operators[m.IntN(len(operators))] + s[at:]
	case 1:
		return s[:at] + s[end:]
	case 2:
		return s[:at] + m.pieces[m.IntN(len(m.pieces))] + s[end:]
	case 3:
		return s[:end] + strings.Repeat(s[at:end], m.IntN(40)) + s[end:]
	default:
		return m.pieces[m.IntN(len(m.pieces))]
	}
}

func TestMutatedDefinitionsNeverPanic(t *testing.T) {
	m := &mutator{Rand: rand.New(rand.NewPCG(1, 2))}
	var sources []string
	for _, file := range []string{"testdata/right.yaml", "testdata/failing.yaml", "testdata/wrong.yaml"} {
		for _, e := range examples(t, file) {
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, string(data))
		}
	}
	compiled, answered := 0, 0
	for range *mutations {
		var tree map[string]any
		if err := json.Unmarshal([]byte(sources[m.IntN(len(sources))]), &tree); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(m.mutate(tree))
		if err != nil {
			t.Fatal(err)
		}
		var e example
		if json.Unmarshal(data, &e) != nil {
			continue
		}
		programs, _, errs := inline.Compile(e.definition(), schemas())
		_ = errs.ToAggregate()
		for _, name := range []hook.Name{hook.Customize, hook.Sync, hook.Finalize} {
			if programs[name] == nil {
				continue
			}
			compiled++
			body, err := programs[name].Call(t.Context(), request(name == hook.Finalize))
			if again, errAgain := programs[name].Call(t.Context(), request(name == hook.Finalize)); !bytes.Equal(again, body) || (err == nil) != (errAgain == nil) {
				t.Errorf("%s: the same request gave %s, %v and %s, %v", data, body, err, again, errAgain)
			}
			if err == nil && !json.Valid(body) {
				t.Errorf("%s: not JSON: %s", data, body)
			} else if err == nil {
				answered++
			}
		}
	}
	t.Logf("%d definitions, %d programs, %d responses", *mutations, compiled, answered)
	if compiled == 0 || answered == 0 {
		t.Error("no mutated definition is right: the test shows nothing")
	}
}
