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

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

func TestProgramsKnowWhetherTheyReadTheStatusOfTheParent(t *testing.T) {
	for expression, reads := range map[string]bool{
		`parent.spec.image`:                                false,
		`parent.?spec.?image.orValue('')`:                  false,
		`parent.metadata.name + parent.metadata.namespace`: false,
		`parent.metadata.?labels[?'app'].orValue('')`:      false,
		`has(parent.metadata.labels) ? 'a' : 'b'`:          false,
		`parent.kind + controller.metadata.name`:           false,
		`string(children.pods.size())`:                     false,
		`children.pods[?'a'].?status.?phase.orValue('')`:   false,
		`[1].map(status, status).size() > 0 ? 'a' : 'b'`:   false,
		`parent.?status.?message.orValue('')`:              true,
		`has(parent.status) ? 'a' : 'b'`:                   true,
		`dyn(parent)[?'status'].hasValue() ? 'a' : 'b'`:    true,
		`string(dyn(parent).size())`:                       true,
		`[parent].exists(p, p.kind == '') ? 'a' : 'b'`:     true,
		`[parent].map(p, p.metadata.name).join(' ')`:       true,
		`string(parent.metadata.?generation.orValue(0))`:   true,
		`parent.metadata.?resourceVersion.orValue('')`:     true,
		`has(parent.metadata.managedFields) ? 'a' : 'b'`:   true,
		`has(parent.metadata) ? 'a' : 'b'`:                 true,
		`dyn(parent.metadata).size() > 0 ? 'a' : 'b'`:      true,
	} {
		t.Run(expression, func(t *testing.T) {
			raw, err := json.Marshal(map[string]string{"message": "${" + expression + "}"})
			if err != nil {
				t.Fatal(err)
			}
			e := example{Sync: &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: raw}}}
			programs, _, errs := inline.Compile(e.definition(), schemas())
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if programs[hook.Sync].ReadsStatus() != reads {
				t.Errorf("it reads the status: %t", !reads)
			}
		})
	}
}

// What a program does not read decides nothing of what it returns.
func TestResponsesOfProgramsThatDoNotReadTheStatusAreTheSameWithAnother(t *testing.T) {
	unread := 0
	for _, e := range examples(t, "testdata/right.yaml") {
		programs, _, errs := inline.Compile(e.definition(), schemas())
		if len(errs) > 0 {
			t.Fatalf("%s: %v", e.Name, errs)
		}
		for name, program := range programs {
			r := request(name == hook.Finalize)
			body, err := program.Call(t.Context(), r)
			if err != nil {
				t.Fatalf("%s: %v", e.Name, err)
			}
			var parent map[string]any
			if err := yaml.Unmarshal([]byte(thing), &parent); err != nil {
				t.Fatal(err)
			}
			parent["status"] = map[string]any{"message": "another", "observedGeneration": 4}
			metadata, _ := parent["metadata"].(map[string]any)
			metadata["resourceVersion"], metadata["generation"], metadata["managedFields"] = "99", 9, []any{map[string]any{"manager": "other"}}
			text, err := yaml.Marshal(parent)
			if err != nil {
				t.Fatal(err)
			}
			r.Parent = observed(string(text))
			after, err := program.Call(t.Context(), r)
			if !program.ReadsStatus() {
				unread++
				if err != nil || !bytes.Equal(body, after) {
					t.Errorf("%s: the %s hook returns %s, %v with another status, and %s before", e.Name, name, after, err, body)
				}
			}
		}
	}
	if unread == 0 {
		t.Error("every example reads the status")
	}
}
