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
	"bytes"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

func TestGivenResponsesAreCheckedBeforeAnyHookIsCalled(t *testing.T) {
	of := func(p inspection.Parent, hook string) v1alpha1.GivenResponse {
		return v1alpha1.GivenResponse{ParentReference: p.ParentReference, Hook: hook, Body: runtime.RawExtension{Raw: []byte("{}")}}
	}
	known := thing("one", "a")
	elsewhere := thing("one", "a")
	elsewhere.Group = ""
	former := of(known, "sync")
	former.Revision = "former"
	writing := []string{"create secrets one", "update secrets one", "patch secrets one"}
	given := func(responses ...v1alpha1.GivenResponse) v1alpha1.ControllerPlanSpec {
		return v1alpha1.ControllerPlanSpec{Responses: responses}
	}
	for name, tc := range map[string]struct {
		spec    v1alpha1.ControllerPlanSpec
		allowed []string
		refused string
	}{
		"a response":                      {given(of(known, "sync")), writing, ""},
		"responses to several requests":   {given(of(known, "sync"), former, of(known, "finalize"), of(known, "customize")), writing, ""},
		"a second response":               {given(of(known, "sync"), former, of(known, "sync")), writing, `responses[2]: responses[0] is one of the sync hook about things.example.com one/a with the revision ""`},
		"by who may write everywhere":     {given(of(known, "sync")), []string{"create secrets", "update secrets", "patch secrets"}, ""},
		"by who may write somewhere":      {given(of(known, "sync")), []string{"create secrets", "update secrets one", "patch secrets"}, ""},
		"by who may write elsewhere":      {given(of(known, "sync")), []string{"create secrets two", "update secrets two", "patch secrets two"}, `user "jane" may not create secrets in namespace one`},
		"by who may not write":            {given(of(known, "finalize")), nil, `things.example.com "a" is forbidden`},
		"rules by who may not write":      {given(of(known, "customize")), nil, ""},
		"a hook that is none":             {given(of(known, "Sync")), nil, `responses[0].hook: "Sync" is none of`},
		"a parent that is none":           {given(of(known, "sync"), of(thing("one", "b"), "sync")), nil, "responses[1]: things.example.com one/b is none of"},
		"a parent of another group":       {given(of(elsewhere, "sync")), nil, "responses[0]: things one/a is none of"},
		"a parent that is not selected":   {v1alpha1.ControllerPlanSpec{Parents: &v1alpha1.ParentSelection{Name: "c"}, Responses: []v1alpha1.GivenResponse{of(known, "sync")}}, nil, "is none of the parents that are selected"},
		"a parent that is hidden":         {given(of(thing("two", "a"), "sync")), nil, "is none of the parents that are selected"},
		"a dry run without writes":        {v1alpha1.ControllerPlanSpec{DryRun: true}, nil, ""},
		"a dry run of given children":     {v1alpha1.ControllerPlanSpec{DryRun: true, Responses: []v1alpha1.GivenResponse{of(known, "sync")}}, writing, ""},
		"a dry run by who may not update": {v1alpha1.ControllerPlanSpec{DryRun: true, Responses: []v1alpha1.GivenResponse{of(known, "sync")}}, writing[:1], `user "jane" may not update secrets in namespace one`},
		"a resource that no parent has":   {v1alpha1.ControllerPlanSpec{Parents: &v1alpha1.ParentSelection{Resource: "things"}}, nil, `no parents of the resource "things"; it has those of ["things.example.com"]`},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engine{parents: []inspection.Parent{known, thing("two", "a")}}
			s, ctx := scene(t, e, &reviews{allowed: append([]string{"get things one", "get secrets one"}, tc.allowed...)})
			_, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: tc.spec}, nil, nil)
			switch refusal := apierrors.IsBadRequest(err) || apierrors.IsForbidden(err); {
			case tc.refused == "" && err != nil:
				t.Error(err)
			case tc.refused != "" && (!refusal || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("the error is %v, want %q", err, tc.refused)
			}
		})
	}
}

// Nobody checks what the published schema says, and each response may name the same parent.
func TestResponsesAreBounded(t *testing.T) {
	r := &reviews{allowed: []string{"get things", "get secrets"}}
	var all []inspection.Parent
	var given []v1alpha1.GivenResponse
	for _, namespace := range []string{"one", "two"} {
		for _, verb := range writes {
			r.allowed = append(r.allowed, verb+" secrets "+namespace)
		}
		for i := range maxResponses / 2 {
			p := thing(namespace, fmt.Sprint("p", i))
			all = append(all, p)
			given = append(given, v1alpha1.GivenResponse{ParentReference: p.ParentReference, Hook: "sync"})
		}
	}
	s, ctx := scene(t, &engine{parents: all}, r)
	create := func() error {
		_, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Limit: 1, Responses: given}}, nil, nil)
		return err
	}
	if err := create(); err != nil {
		t.Error(err)
	}
	// The parents and the children, and each verb in all namespaces and in both.
	if want := 2 + 3*len(writes); r.asked != want {
		t.Errorf("%d reviews were made, want %d", r.asked, want)
	}
	given = append(given, given[0])
	if err := create(); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "responses: 2001 are given, and at most 2000 may be") {
		t.Errorf("one more than there may be: %v", err)
	}
}

func TestAPartOfAPlanEndsWhereItIsLarge(t *testing.T) {
	var all []inspection.Parent
	for i := range 10 {
		all = append(all, thing("ns", fmt.Sprint("p", i)))
	}
	for name, tc := range map[string]struct {
		object int
		parts  string
		failed bool
	}{
		"small":                       {1 << 10, "10", false},
		"as large as a part together": {partSize / 5, "8 2", false},
		"each as large as a part":     {partSize, "4 4 2", false},
		"each too large":              {planSize + 1, "10", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engine{parents: all, object: bytes.Repeat([]byte(" "), tc.object)}
			s, ctx := scene(t, e, &reviews{allowed: []string{"get things", "get secrets"}})
			var parts []string
			for next := ""; ; {
				o, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Continue: next}}, nil, nil)
				part, ok := o.(*v1alpha1.ControllerPlan)
				if err != nil || !ok {
					t.Fatal(err)
				}
				parts = append(parts, fmt.Sprint(len(part.Status.Parents)))
				for i := range part.Status.Parents {
					if p := &part.Status.Parents[i]; tc.failed != (p.Children == nil && strings.Contains(p.Error, "32 MiB, and at most 32")) {
						t.Errorf("%s: %d children, error %q", p.Name, len(p.Children), p.Error)
					}
				}
				if next = part.Status.Continue; next == "" {
					break
				}
			}
			if got := strings.Join(parts, " "); got != tc.parts {
				t.Errorf("the parts have %s parents, want %s", got, tc.parts)
			}
		})
	}
}
