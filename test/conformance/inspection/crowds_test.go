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

package inspection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// plansOfManyParents plans parents in every state that a parent may be in, two of each, and compares what the next sync of
// each of them writes with its plan, one by one.
func plansOfManyParents(t *testing.T, e *fixture.Environment) {
	all := crowds()
	parents := 0
	for _, c := range all {
		parents += len(c.states) * c.copies
	}
	if parents < 130 {
		t.Fatalf("there are %d parents", parents)
	}
	refuse(newStage(t, e, fixture.Composite))
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			c.play(newStage(t, e, c.kind))
		})
	}
}

// A crowd are the parents of one controller.
type crowd struct {
	kind fixture.Kind
	// edit changes the definition.
	edit func(*stage)
	// copies is how many parents there are in each state.
	copies int
	states map[string]state
	// alone says that the crowd is tested before those that are tested at the same time: its states do not last.
	alone bool
	// live is called before the controller is paused, with the names of the parents.
	live func(s *stage, names []string)
}

// A state is what happened to a parent and its children while the controller was paused.
type state struct {
	// fresh parents are created then.
	fresh bool
	// spec is that of the parent, beside names, secrets and data.
	spec map[string]any
	// change is what happened, after the parent was synced.
	change func(s *stage, parent string)
	// want are the actions of the plan, with their reasons, in alphabetical order.
	want string
}

// crowds are the parents of all tests.
func crowds() map[string]crowd {
	every := common()
	claimed := with(every, map[string]state{
		// Attachments of a target that is done early are deleted by the sync or by the garbage collector, whoever comes first.
		"ends-early": {spec: map[string]any{"early": "true"}, change: every["ends"].change},
		"adopted":    {change: adopted, want: "Adopt, Leave Same, Leave Same, Update"},
		"released": {
			change: func(s *stage, parent string) {
				s.Patch(fixture.ConfigMaps, parent+"-one", `{"metadata":{"labels":{"controller-uid":null}}}`)
				s.Patch(fixture.Things, parent, `{"spec":{"names":""}}`)
			}, want: "Leave Same, Release",
		},
	})
	careful := map[string]state{
		"same": every["same"], "fresh": every["fresh"], "fewer": every["fewer"],
		"changed": {change: data("y"), want: "Leave OnDelete, Recreate"},
		"drifted": {change: drifted(fixture.ConfigMaps), want: "Leave OnDelete, Leave Same"},
		"gone":    every["gone"],
	}
	return map[string]crowd{
		"merged":                {kind: fixture.Composite, edit: both(inPlace, finalized), copies: 2, states: claimed},
		"applied":               {kind: fixture.Composite, edit: both(inPlace, finalized, serverSide), copies: 2, states: claimed},
		"decorated":             {kind: fixture.Decorator, edit: both(inPlace, finalized), copies: 2, states: every},
		"recreated":             {kind: fixture.Composite, edit: onDeleteAndRecreate, copies: 2, states: careful},
		"applied and recreated": {kind: fixture.Decorator, edit: both(onDeleteAndRecreate, serverSide), copies: 2, states: careful},
		"rolling":               {kind: fixture.Composite, edit: rolling, copies: 2, states: halfway(), live: beginRollouts},
		"flapping":              {kind: fixture.Composite, edit: inPlace, copies: 2, states: flapping(), live: flap, alone: true},
		"applied and flapping":  {kind: fixture.Decorator, edit: both(inPlace, serverSide), copies: 2, states: flapping(), live: flap, alone: true},
	}
}

// common are the states that parents of either kind of controller may be in.
func common() map[string]state {
	return map[string]state{
		"same":           {want: "Leave Same, Leave Same"},
		"fresh":          {fresh: true, want: "Create, Create"},
		"changed":        {change: data("y"), want: "Update, Update"},
		"drifted":        {change: drifted(fixture.ConfigMaps), want: "Leave Same, Update"},
		"drifted-secret": {change: drifted(fixture.Secrets), want: "Leave Same, Update"},
		"gone": {
			change: func(s *stage, parent string) { s.Delete(fixture.ConfigMaps, parent+"-one") }, want: "Create, Leave Same",
		},
		"more": {
			change: func(s *stage, parent string) { s.Patch(fixture.Things, parent, `{"spec":{"names":"one two"}}`) },
			want:   "Create, Leave Same, Leave Same",
		},
		"fewer": {
			change: func(s *stage, parent string) { s.Patch(fixture.Things, parent, `{"spec":{"secrets":""}}`) }, want: "Delete, Leave Same",
		},
		"conflict": {change: func(s *stage, parent string) {
			s.CreateIn(s.Name, fixture.ConfigMaps, parent+"-two", map[string]any{"data": map[string]any{"by": "others"}}, nil)
			s.Patch(fixture.Things, parent, `{"spec":{"names":"one two"}}`)
		}, want: "Leave Same, Leave Same, Refuse Conflict"},
		"refused":       {change: data("refused"), want: "Refuse RefusedByDryRun, Update"},
		"refused-fresh": {fresh: true, spec: map[string]any{"data": "refused"}, want: "Create, Refuse RefusedByDryRun"},
		"child-ends": {change: func(s *stage, parent string) {
			s.Patch(fixture.ConfigMaps, parent+"-one", `{"metadata":{"finalizers":["example.com/kept"]}}`)
			s.Delete(fixture.ConfigMaps, parent+"-one")
			s.Patch(fixture.Things, parent, `{"spec":{"data":"y"}}`)
		}, want: "Leave Deleting, Update"},
		"ends": {change: func(s *stage, parent string) { s.Delete(fixture.Things, parent) }, want: "Delete, Delete"},
		"ended": {change: func(s *stage, parent string) {
			s.Delete(fixture.ConfigMaps, parent+"-one")
			s.Delete(fixture.Secrets, parent+"-secret")
			s.Delete(fixture.Things, parent)
		}},
		"unwanted": {change: func(s *stage, parent string) {
			s.Patch(fixture.Things, parent, `{"spec":{"names":"","secrets":""}}`)
		}, want: "Delete, Delete"},
	}
}

// with adds states to others.
func with(states, more map[string]state) map[string]state {
	all := maps.Clone(states)
	maps.Copy(all, more)
	return all
}

// data changes what all children have.
func data(value string) func(*stage, string) {
	return func(s *stage, parent string) {
		s.Patch(fixture.Things, parent, fmt.Sprintf(`{"spec":{"data":%q}}`, value))
	}
}

// adopted is an object that the selector of the parent matches, with another value.
func adopted(s *stage, parent string) {
	uid := string(s.Get(fixture.Things, parent).GetUID())
	s.CreateIn(s.Name, fixture.ConfigMaps, parent+"-two", map[string]any{"data": map[string]any{"data": "z"}}, map[string]string{"controller-uid": uid})
	s.Patch(fixture.Things, parent, `{"spec":{"names":"one two"}}`)
}

// desired are the children that a parent says: ConfigMaps and Secrets.
func desired(c *fixture.Call) (*fixture.Reply, error) {
	value, name := fixture.Value(c.Parent, "spec", "data"), c.Parent.GetName()
	reply := &fixture.Reply{Status: map[string]any{"data": value}, Children: []*hook.Object{}}
	if c.Finalizing {
		reply.Finalized = fixture.Value(c.Parent, "spec", "early") == "true" || len(c.Children["ConfigMap.v1"])+len(c.Children["Secret.v1"]) == 0
		return reply, nil
	}
	for each := range strings.FieldsSeq(fixture.Value(c.Parent, "spec", "names")) {
		reply.Children = append(reply.Children, fixture.ConfigMap(name+"-"+each, map[string]any{"data": value}))
	}
	for each := range strings.FieldsSeq(fixture.Value(c.Parent, "spec", "secrets")) {
		reply.Children = append(reply.Children, &hook.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name + "-" + each}, "stringData": map[string]any{"data": value},
		}})
	}
	reply.Labels = map[string]*string{"data": &value}
	return reply, nil
}

// both makes several edits.
func both(edits ...func(*stage)) func(*stage) {
	return func(s *stage) {
		for _, edit := range edits {
			edit(s)
		}
	}
}

// methods has ConfigMaps and Secrets be updated in these ways.
func methods(configMaps, secrets v1alpha1.ChildUpdateMethod) func(*stage) {
	return func(s *stage) {
		s.definition.Children = []fixture.Child{
			{Resource: fixture.ConfigMaps, Method: configMaps}, {Resource: fixture.Secrets, Method: secrets},
		}
	}
}

func inPlace(s *stage) { methods(v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateInPlace)(s) }

func onDeleteAndRecreate(s *stage) {
	methods(v1alpha1.ChildUpdateOnDelete, v1alpha1.ChildUpdateRecreate)(s)
}

func finalized(s *stage) { s.definition.Finalize = s.finalize }

// rolling has ConfigMaps roll; a condition that they never have stops each rollout after its first child.
func rolling(s *stage) {
	inPlace(s)
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) {
		spec.ChildResources[0].UpdateStrategy = &v1alpha1.CompositeControllerChildUpdateStrategy{
			Method: v1alpha1.ChildUpdateRollingInPlace,
			StatusChecks: v1alpha1.ChildUpdateStatusChecks{
				Conditions: []v1alpha1.StatusConditionCheck{{Type: "Ready", Status: new("True")}},
			},
		}
	}
}

// halfway are states of parents of which a rollout is under way. Those that are not fresh have the ConfigMaps one, two and three, of which
// the first is on the second revision.
func halfway() map[string]state {
	three := map[string]any{"names": "one two three"}
	return map[string]state{
		"fresh":       {fresh: true, spec: three, want: "Create, Create, Create, Create"},
		"waiting":     {spec: three, want: "Leave Same, Leave Same, Leave Same, Leave Same"},
		"again":       {spec: three, change: data("z"), want: "Leave Same, Leave Same, Update, Update"},
		"back":        {spec: three, change: data("x"), want: "Leave Same, Leave Same, Leave Same, Update"},
		"drifted-old": {spec: three, change: drifted(fixture.ConfigMaps, "three"), want: "Leave Same, Leave Same, Leave Same, Update"},
		"drifted-new": {spec: three, change: drifted(fixture.ConfigMaps, "one"), want: "Leave Same, Leave Same, Leave Same, Update"},
		"fewer": {
			spec:   three,
			change: func(s *stage, parent string) { s.Patch(fixture.Things, parent, `{"spec":{"names":"one two"}}`) },
			want:   "Delete, Leave Same, Leave Same, Leave Same",
		},
	}
}

// beginRollouts changes the parents, and waits until the first child of each has moved.
func beginRollouts(s *stage, names []string) {
	for _, name := range names {
		s.Patch(fixture.Things, name, `{"spec":{"data":"y"}}`)
	}
	for _, name := range names {
		s.Await(fixture.ConfigMaps, name+"-one", "to be on the second revision", has("y"))
	}
	s.Idle(s.controller)
}

// drifted has somebody else change a child: the one of its kind, unless names says which.
func drifted(r schema.GroupVersionResource, names ...string) func(*stage, string) {
	return func(s *stage, parent string) {
		child, text := "one", `{"data":{"data":"drifted"}}`
		if r == fixture.Secrets {
			child, text = "secret", `{"data":{"data":"ZHJpZnRlZA=="}}`
		}
		if len(names) > 0 {
			child = names[0]
		}
		s.Patch(r, parent+"-"+child, text)
	}
}

// flapping are the states of parents after flap.
func flapping() map[string]state {
	return map[string]state{
		"flapping": {want: "Leave Flapping, Leave Same"},
		"changed":  {change: data("y"), want: "Update, Update"},
	}
}

// flap has somebody else change a child of each parent until the controller leaves it alone for a while.
func flap(s *stage, names []string) {
	left := func(p v1alpha1.ParentPlan) bool { return strings.Contains(sorted(&p), "Leave Flapping") }
	alone := func(name string) bool {
		if has("x")(s.Get(fixture.ConfigMaps, name+"-one")) {
			drifted(fixture.ConfigMaps)(s, name)
			return false
		}
		selection := &v1alpha1.ParentSelection{Namespace: s.Name, Name: name}
		if !slices.ContainsFunc(s.planned(v1alpha1.ControllerPlanSpec{Parents: selection}).Parents, left) {
			return false
		}
		s.Idle(s.controller) // The last write may be under way, which the plan counts already.
		return !has("x")(s.Get(fixture.ConfigMaps, name+"-one"))
	}
	// Writes are counted for a minute, so there may be no long pauses between them, and a child is left alone for a minute, so that it has to
	// happen to all of them at the same time.
	rest := slices.Clone(names)
	cluster.EventuallyEvery(s.T, 50*time.Millisecond, limit, "the children to be left alone", func(context.Context) (bool, string) {
		rest = slices.DeleteFunc(rest, alone)
		return len(rest) == 0, fmt.Sprintf("those of %v are written", rest)
	})
}

// sorted are the actions of a plan of children with their reasons.
func sorted(p *v1alpha1.ParentPlan) string {
	list := make([]string, len(p.Children))
	for i, c := range p.Children {
		list[i] = strings.TrimSpace(string(c.Action) + " " + c.Reason)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// refuse has the API server refuse ConfigMaps with a certain value.
func refuse(s *stage) {
	s.T.Helper()
	s.Apply(s.T, policy)
	trial := fixture.ConfigMap("trial", map[string]any{"data": "refused"})
	s.eventually("the policy to be in force", func() bool {
		_, err := s.Resource(fixture.ConfigMaps).Create(s.T.Context(), trial, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "such values are refused")
	})
}

const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: refused-values
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  validations:
  - expression: '!has(object.data) || !("data" in object.data) || object.data["data"] != "refused"'
    message: such values are refused
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: refused-values
spec:
  policyName: refused-values
  validationActions: [Deny]
`
