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

package migration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// planOf is the plan of a parent with what is done with its children.
func planOf(name string, actions ...v1alpha1.ChildAction) v1alpha1.ParentPlan {
	p := v1alpha1.ParentPlan{ParentReference: v1alpha1.ParentReference{Resource: "things", Namespace: "n", Name: name}}
	for _, action := range actions {
		p.Children = append(p.Children, v1alpha1.ChildPlan{Action: action})
	}
	return p
}

// partOf is a part of a plan.
func partOf(plans ...v1alpha1.ParentPlan) *v1alpha1.ControllerPlanStatus {
	status := &v1alpha1.ControllerPlanStatus{Parents: plans, Summary: v1alpha1.PlanSummary{Parents: int64(len(plans))}}
	for i := range plans {
		if plans[i].Error != "" {
			status.Summary.Failing++
		}
	}
	return status
}

func TestOnlyChangesOfChildrenAreExpected(t *testing.T) {
	status := v1alpha1.FieldChange{Path: "status.phase"}
	for name, test := range map[string]struct {
		plan v1alpha1.ParentPlan
		want string
	}{
		"nothing":                 {planOf("a"), ""},
		"children are left":       {planOf("a", v1alpha1.ChildLeave, v1alpha1.ChildLeave), ""},
		"a child that cannot be":  {planOf("a", v1alpha1.ChildRefuse), ""},
		"a status and a revision": {v1alpha1.ParentPlan{Changes: []v1alpha1.FieldChange{status}, Revisions: []v1alpha1.RevisionPlan{{}}}, ""},
		"several":                 {planOf("a", v1alpha1.ChildDelete, v1alpha1.ChildUpdate, v1alpha1.ChildLeave, v1alpha1.ChildDelete), "children: 1 updated, 2 deleted"},
		"a recreation":            {planOf("a", v1alpha1.ChildRecreate), "children: 1 recreated"},
		"another owner":           {planOf("a", v1alpha1.ChildAdopt, v1alpha1.ChildRelease, v1alpha1.ChildRetain), "children: 1 adopted, 1 released, 1 retained"},
		"the parent":              {v1alpha1.ParentPlan{Delete: true}, "it is deleted"},
		"the parent and a child":  {v1alpha1.ParentPlan{Delete: true, Children: planOf("a", v1alpha1.ChildCreate).Children}, "children: 1 created; it is deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changeOf(&test.plan); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAPlanIsSaidInSentences(t *testing.T) {
	failing := planOf("b")
	failing.Error = "the hook is down"
	var many []v1alpha1.ParentPlan
	for i := range 5 {
		many = append(many, planOf(fmt.Sprint(i), v1alpha1.ChildCreate))
	}
	left := partOf(planOf("a"))
	left.Remaining, left.Hidden = 7, 2
	for name, test := range map[string]struct {
		forecast forecast
		parts    []*v1alpha1.ControllerPlanStatus
		want     []string
	}{
		"no change":  {parts: []*v1alpha1.ControllerPlanStatus{partOf(planOf("a", v1alpha1.ChildLeave)), partOf()}},
		"no parents": {parts: []*v1alpha1.ControllerPlanStatus{partOf()}},
		"one of two": {
			parts: []*v1alpha1.ControllerPlanStatus{partOf(planOf("a", v1alpha1.ChildUpdate)), partOf(planOf("b"))},
			want:  []string{"1 of 2 parents would change: things n/a (children: 1 updated)."},
		},
		"many": {
			parts: []*v1alpha1.ControllerPlanStatus{partOf(many...)},
			want: []string{
				"5 of 5 parents would change: things n/0 (children: 1 created), things n/1 (children: 1 created), things n/2 (children: 1 created) and 2 more.",
			},
		},
		"a hook that is down": {
			parts: []*v1alpha1.ControllerPlanStatus{partOf(planOf("a"), failing)},
			want:  []string{"1 of 2 parents could not be planned, the first because of: the hook is down"},
		},
		"no plan":             {forecast: forecast{cause: "it is refused"}, want: []string{"it could not be planned: it is refused"}},
		"no time":             {forecast: forecast{ended: true}, want: []string{"it was not looked at."}},
		"what is not planned": {parts: []*v1alpha1.ControllerPlanStatus{left}, want: []string{"7 parents were not looked at.", "2 parents were left out, because"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.forecast
			for _, part := range test.parts {
				f.add(part)
			}
			got := f.sentences()
			if len(got) != len(test.want) || !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOnlyChangesThatLastAreExpected(t *testing.T) {
	of := func(complete bool, plans ...v1alpha1.ParentPlan) *forecast {
		f := &forecast{complete: complete}
		f.add(partOf(plans...))
		return f
	}
	changing := func(name string) v1alpha1.ParentPlan { return planOf(name, v1alpha1.ChildUpdate) }
	for name, test := range map[string]struct {
		again *forecast
		want  []string
	}{
		"both":               {of(true, changing("a"), changing("b")), []string{"a", "b"}},
		"it was done":        {of(true, planOf("a"), changing("b")), []string{"b"}},
		"another one begins": {of(true, planOf("a"), planOf("b"), changing("c")), nil},
		"it is gone":         {of(true), nil},
		"no second look":     {of(false, planOf("a")), []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := of(true, changing("a"), changing("b"), planOf("c"))
			f.confirm(test.again)
			var got []string
			for _, c := range f.changing {
				got = append(got, c.parent.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
