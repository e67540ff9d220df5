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

package inspect

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// Who may get no parent of a namespace could ask for names and labels one after the other.
func TestCountsTellNothingOfParentsThatTheCallerMayNotGet(t *testing.T) {
	all := []inspection.Parent{thing("one", "a"), thing("one", "b"), thing("two", "a")}
	labeled := &metav1.LabelSelector{MatchLabels: map[string]string{"name": "a"}}
	for name, test := range map[string]struct {
		allowed   []string
		selection *v1alpha1.ParentSelection
		// parents and plans are how many of the parents, and of the plans, are left out and counted.
		parents, plans int64
	}{
		"all":                              {nil, nil, 3, 3},
		"a namespace":                      {nil, &v1alpha1.ParentSelection{Namespace: "one"}, 2, 2},
		"a resource":                       {nil, &v1alpha1.ParentSelection{Resource: "things.example.com"}, 3, 3},
		"a name":                           {nil, &v1alpha1.ParentSelection{Namespace: "one", Name: "a"}, 0, 0},
		"a name that there is not":         {nil, &v1alpha1.ParentSelection{Namespace: "one", Name: "c"}, 0, 0},
		"labels":                           {nil, &v1alpha1.ParentSelection{LabelSelector: labeled}, 0, 0},
		"no labels":                        {nil, &v1alpha1.ParentSelection{LabelSelector: &metav1.LabelSelector{}}, 3, 3},
		"a name of a parent that he gets":  {[]string{"get things one"}, &v1alpha1.ParentSelection{Name: "a"}, 0, 1},
		"labels of parents that he gets":   {[]string{"get things"}, &v1alpha1.ParentSelection{LabelSelector: labeled}, 0, 2},
		"all, with parents that he gets":   {[]string{"get things one"}, nil, 1, 3},
		"a name, and he gets the children": {[]string{"get secrets"}, &v1alpha1.ParentSelection{Name: "a"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := scene(t, &engine{parents: all}, &reviews{allowed: test.allowed})
			o, err := (&ResyncREST{s}).Create(ctx, "c", &v1alpha1.ControllerResync{Spec: v1alpha1.ControllerResyncSpec{Parents: test.selection}}, nil, nil)
			if done, ok := o.(*v1alpha1.ControllerResync); err != nil || !ok || done.Status.Hidden != test.parents {
				t.Errorf("a resync leaves out %+v, error %v; want %d", o, err, test.parents)
			}
			o, err = (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Parents: test.selection}}, nil, nil)
			if plan, ok := o.(*v1alpha1.ControllerPlan); err != nil || !ok || plan.Status.Hidden != test.plans {
				t.Errorf("a plan leaves out %+v, error %v; want %d", o, err, test.plans)
			}
			if test.selection == nil {
				test.selection = &v1alpha1.ParentSelection{}
			}
			o, err = (&SyncsREST{s}).Get(ctx, "c", &v1alpha1.ControllerSyncOptions{Namespace: test.selection.Namespace, Name: test.selection.Name})
			if list, ok := o.(*v1alpha1.ControllerSyncList); test.selection.LabelSelector == nil && test.selection.Resource == "" && (err != nil || !ok || list.Hidden != test.plans) {
				t.Errorf("syncs leave out %+v, error %v; want %d", o, err, test.plans)
			}
		})
	}
}
