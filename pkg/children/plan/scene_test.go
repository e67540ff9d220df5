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
	"reflect"
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
	records plan.Records
	clock   *clocktesting.FakePassiveClock
	version int
	// what the API server does to what it is sent, and trial what it answers to a dry run; nil: as to a write.
	what  server
	trial func(plan.Doubt) plan.Trial
	// tried is the number of dry runs.
	tried int
	// last is the plan made last.
	last plan.Plan
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
	if s.Desired, _, err = children.Validate(children.Scope{Field: "children", Namespace: "ns"}, s.Rules, list); err != nil {
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

// gather completes the input with the facts that it needs.
func (s *scene) gather(t testing.TB) {
	t.Helper()
	s.Now, s.Records, s.Trials = s.clock.Now(), s.records, map[children.Key]plan.Trial{}
	if s.Schemas == nil {
		s.Schemas = map[schema.GroupVersionKind]merge.Schema{}
	}
	for _, kind := range plan.Missing(s.Input).Schemas {
		s.Schemas[kind] = nil
	}
	// After what an update would do it may be asked what a creation would do.
	for range 2 {
		for _, doubt := range plan.Missing(s.Input).Doubts {
			s.Trials[doubt.Key] = s.try(t, doubt)
		}
	}
}

// try returns what came of a dry run.
func (s *scene) try(t testing.TB, doubt plan.Doubt) plan.Trial {
	t.Helper()
	s.tried++
	trial := plan.Trial{}
	if s.trial != nil {
		trial = s.trial(doubt)
	} else {
		body, err := doubt.Body(doubt.Paths)
		if err != nil {
			t.Fatal(err)
		}
		// What cannot be an object is refused.
		trial.Result, _ = object.Parse([]byte(s.what.store(body)), object.ParseOptions{})
	}
	if doubt.Fresh {
		updated := s.Trials[doubt.Key]
		updated.Fresh, updated.FreshRefused, updated.FreshTried = trial.Result, trial.FreshRefused, true
		trial = updated
	}
	trial.Desired = doubt.Desired
	return trial
}

// plan gathers facts and makes a plan, twice: it must be the same one, and change nothing.
func (s *scene) plan(t testing.TB) (plan.Plan, error) {
	t.Helper()
	s.gather(t)
	p, err := plan.Make(s.Input)
	again, errAgain := plan.Make(s.Input)
	if fmt.Sprint(err) != fmt.Sprint(errAgain) || !reflect.DeepEqual(p, again) { //nolint:govet // Both have the errors of the same facts.
		t.Errorf("two plans from one input: %+v, %v and %+v, %v", p, err, again, errAgain)
	}
	s.last = p
	return p, err
}

// record commits what came of the last plan.
func (s *scene) record(outcomes ...plan.Outcome) {
	s.records = s.last.Next(s.Records, outcomes, 0)
}

// wrote commits that the API server returned an object for a step.
func (s *scene) wrote(step plan.Step, written *object.Object) {
	s.record(plan.Outcome{Step: step, Written: written, Done: true})
}

func (s *scene) make(t testing.TB) plan.Plan {
	t.Helper()
	p, err := s.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	s.record()
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

func (s server) store(body []byte) string { return strings.NewReplacer(s...).Replace(string(body)) }

// accept does what is planned for the only child, and lets the server see to the body.
func (s *scene) accept(t testing.TB, what server) plan.Step {
	t.Helper()
	s.what = what
	step := s.step(t)
	switch step.Action {
	case plan.Create, plan.Update:
		written := s.parse(t, what.store(step.Body))
		s.wrote(step, written)
		s.Observed = []*object.Object{written}
	case plan.Recreate:
		s.record(plan.Outcome{Step: step, Done: true})
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
func (s *scene) restart() { s.records = nil }

// turn has the children looked at again, as in an epoch that API servers follow.
func (s *scene) turn() {
	records := s.records
	for _, known := range records {
		records = records.Unsettled(known.Key)
	}
	s.records = records
}

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

// pathsOf returns the places of changes.
func pathsOf(changes []plan.Change) string {
	list := make([]string, len(changes))
	for i := range changes {
		list[i] = changes[i].Path
	}
	return strings.Join(list, " ")
}
