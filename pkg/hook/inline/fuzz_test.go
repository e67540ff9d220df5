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
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// FuzzCompileAndCall has no definition panic, and none yield a response that is not JSON or that changes from call to call.
func FuzzCompileAndCall(f *testing.F) {
	for _, file := range []string{"testdata/right.yaml", "testdata/wrong.yaml", "testdata/failing.yaml"} {
		for _, e := range examples(f, file) {
			data, err := json.Marshal(e)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(data))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		var e example
		if len(text) > 10_000 || yaml.Unmarshal([]byte(text), &e) != nil {
			return
		}
		programs, _, errs := inline.Compile(e.definition(), schemas())
		_ = errs.ToAggregate()
		for _, name := range []hook.Name{hook.Customize, hook.Sync, hook.Finalize} {
			program := programs[name]
			if program == nil {
				continue
			}
			body, err := program.Call(t.Context(), request(name == hook.Finalize))
			if err == nil && !json.Valid(body) {
				t.Errorf("not JSON: %s", body)
			}
			again, errAgain := program.Call(t.Context(), request(name == hook.Finalize))
			if (err == nil) != (errAgain == nil) || !bytes.Equal(again, body) {
				t.Errorf("the same request gave %s, %v and %s, %v", body, err, again, errAgain)
			}
		}
	})
}

// FuzzExpression mutates one expression, for which more is found in the same time.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		"parent.spec.image", "children.pods.map(p, p.metadata.name)", "lists.range(3).map(i, 'a' + string(i))", "{'a': 1}.map(k, k)",
		"parent.spec.?mode.orValue('x')", "parent.spec.labels.transformMap(k, v, v + k)", "'%s'.format([[1, {'a': b'x'}]])", "[1, 2] == [1, 2]",
		"parent.spec.image.replace('n', 'm').matches('^m.*')", "[[1], [2]].flatten().distinct()", "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
		"children.pods[?'web-0'].?status.?phase", "parent.spec.zones.sortBy(z, z)", "parent.spec.`dash-ed`", "sets.contains([1], [1])",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		quoted, err := json.Marshal(source)
		if err != nil {
			return
		}
		var e example
		text := `{"sync": {"variables": [{"name": "a", "expression": ` + string(quoted) + `}], "children": [{"template": {"apiVersion": "example.com/v1",
			"kind": "Widget", "metadata": {"name": "x"}, "value": "${variables.a}", "text": "${dyn(variables.a)}-"}}]}}`
		if yaml.Unmarshal([]byte(text), &e) != nil {
			return
		}
		programs, _, _ := inline.Compile(e.definition(), schemas())
		if program := programs[hook.Sync]; program != nil {
			if body, err := program.Call(t.Context(), request(false)); err == nil && !json.Valid(body) {
				t.Errorf("not JSON: %s", body)
			}
		}
	})
}
