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

package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// scene is a parent with the UID "parent" whose children are kept in memory.
type scene struct {
	plan.Input
	clock   *clocktesting.FakePassiveClock
	version int
}

func newScene(method v1alpha1.ChildUpdateMethod) *scene {
	rule := func(group, version, kind, resource string) children.Rule {
		return children.Rule{
			Kind:       schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
			Resource:   schema.GroupVersionResource{Group: group, Version: version, Resource: resource},
			Namespaced: true, Method: method,
		}
	}
	s := &scene{clock: clocktesting.NewFakePassiveClock(start)}
	s.Input = plan.Input{
		Parent: "parent",
		Owner: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Parent", "name": "p", "uid": "parent", "controller": true, "blockOwnerDeletion": true,
		},
		Rules: children.NewRules([]children.Rule{
			rule("", "v1", "ConfigMap", "configmaps"), rule("", "v1", "Secret", "secrets"),
			rule("apps", "v1", "Deployment", "deployments"), rule("apps", "v1", "DaemonSet", "daemonsets"),
		}),
		Memory: plan.NewMemory(s.clock),
	}
	return s
}

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("decoding %s: %v", text, err)
	}
	return content
}

// want sets the desired children.
func (s *scene) want(t testing.TB, texts ...string) {
	t.Helper()
	list := make([]map[string]any, len(texts))
	for i, text := range texts {
		list[i] = decode(t, text)
	}
	var err error
	if s.Desired, err = children.Judge(children.Scope{Field: "children", Namespace: "ns"}, s.Rules, list); err != nil {
		t.Fatal(err)
	}
}

// parse returns an object as an API server would send it.
func (s *scene) parse(t testing.TB, text string) *object.Object {
	t.Helper()
	content := decode(t, text)
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		t.Fatalf("no metadata in %s", text)
	}
	s.version++
	metadata["resourceVersion"] = fmt.Sprint(s.version)
	if metadata["uid"] == nil {
		metadata["uid"] = "child"
	}
	encoded, err := utiljson.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	o, err := object.Parse(encoded, object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// see sets the observed children.
func (s *scene) see(t testing.TB, texts ...string) {
	t.Helper()
	s.Observed = nil
	for _, text := range texts {
		s.Observed = append(s.Observed, s.parse(t, text))
	}
}

func (s *scene) make(t testing.TB) plan.Plan {
	t.Helper()
	p, err := plan.Make(s.Input)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// step makes a plan that must have one step.
func (s *scene) step(t testing.TB) plan.Step {
	t.Helper()
	p := s.make(t)
	if len(p.Steps) != 1 {
		t.Fatalf("%d steps", len(p.Steps))
	}
	return p.Steps[0]
}

// server is what an API server does to a body: pairs of what is replaced and by what.
type server []string

// accept does what is planned for the only child, and lets the server see to the body.
func (s *scene) accept(t testing.TB, what server) plan.Step {
	t.Helper()
	step := s.step(t)
	switch step.Action {
	case plan.Create, plan.Update:
		written := s.parse(t, strings.NewReplacer(what...).Replace(string(step.Body)))
		s.Memory.Wrote(s.Input, step, written)
		s.Observed = []*object.Object{written}
	case plan.Recreate:
		s.Memory.Replaced(s.Input, step)
		s.Observed = nil
	case plan.Delete:
		s.Observed = nil
	case plan.Leave:
	}
	return step
}

// others has somebody else change the only child.
func (s *scene) others(t testing.TB, from, to string) {
	t.Helper()
	before := string(s.Observed[0].JSON())
	after := strings.Replace(before, from, to, 1)
	if before == after {
		t.Fatalf("no %s in %s", from, before)
	}
	s.see(t, after)
}

// restart drops what the process remembers.
func (s *scene) restart() { s.Memory = plan.NewMemory(s.clock) }

// annotated returns an object with the annotation for what was applied.
func annotated(t testing.TB, text, applied string) string {
	t.Helper()
	content := decode(t, text)
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		t.Fatal("no metadata")
	}
	metadata["annotations"] = map[string]any{merge.Annotation: applied}
	encoded, err := utiljson.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}
