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

package rollout

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// syncWith syncs a parent with three children that never become ready, and returns the revisions with those that the writes leave. A child of
// them moves with each change of the parent.
func syncWith(t *testing.T, paths []string, spec string, stored []*revisionObject) ([]*revisionObject, *Plan) {
	t.Helper()
	p := plannerOf(paths...)
	revisions, err := p.Revisions(decode(t, parentHead+`"spec":`+spec+`}`), stored)
	if err != nil {
		t.Fatal(err)
	}
	responses := make([]Response, len(revisions))
	for n := range responses {
		for _, name := range names(2, 0) {
			responses[n].Desired = append(responses[n].Desired, children.Desired{Key: children.Key{Kind: "Pod", Namespace: "home", Name: name}})
		}
	}
	plan, err := p.Plan(Input{
		Revisions: revisions, Responses: responses,
		Observed:  func(children.Key) (Child, bool) { return &pod{}, true },
		Unchanged: func(children.Desired) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range plan.Writes {
		stored = slices.DeleteFunc(slices.Clone(stored), func(r *revisionObject) bool { return r.Name == w.Revision.Name })
		if w.Operation != Delete {
			stored = append(stored, w.Revision)
		}
	}
	return stored, plan
}

func TestOlderRevisionsShowTheParentAsItWasAfterAnEditOfTheFieldPaths(t *testing.T) {
	few, more, all := []string{"spec.template"}, []string{"spec.template", "spec.extra"}, []string{"spec"}
	type state struct {
		paths []string
		spec  string
	}
	cases := map[string]struct {
		reason string
		states []state
		// want is the oldest revision's.
		want string
	}{
		"AddedBeforeTheParentHasTheField": {
			"The latest revision was the parent without the field.",
			[]state{{few, `{"template":1}`}, {more, `{"template":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1}`,
		},
		"AddedTogetherWithTheField": {
			"Whether the parent had the field before is not known.",
			[]state{{few, `{"template":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
		"TakenOutForAWhile": {
			"The field reached all children meanwhile.",
			[]state{{more, `{"template":1}`}, {few, `{"template":1,"extra":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
		"AddedInTheMiddleOfARollout": {
			"The children of the older revision were made without the field, too.",
			[]state{{few, `{"template":1}`}, {few, `{"template":2}`}, {more, `{"template":2}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1}`,
		},
		"WidenedToTheFieldAbove": {
			"Of the other parts of that field it is not known what they were.",
			[]state{{few, `{"template":1,"extra":1}`}, {all, `{"template":1,"extra":1}`}, {all, `{"template":2,"extra":2}`}},
			`{"template":1,"extra":2}`,
		},
		"WidenedInTheMiddleOfARollout": {
			"The children of the older revision were made with the other parts.",
			[]state{{few, `{"template":1,"extra":1}`}, {few, `{"template":2,"extra":1}`}, {all, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
		"AddedInTheMiddleOfARolloutOfAParentWithTheField": {
			"The children of the older revision have the field.",
			[]state{{few, `{"template":1,"extra":1}`}, {few, `{"template":2,"extra":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var stored []*revisionObject
			for _, s := range tc.states {
				stored, _ = syncWith(t, s.paths, s.spec, stored)
				if _, again := syncWith(t, s.paths, s.spec, stored); len(again.Writes) > 0 {
					t.Errorf("with %s: %d writes while nothing changes", s.spec, len(again.Writes))
				}
			}
			last := tc.states[len(tc.states)-1]
			revisions, err := plannerOf(last.paths...).Revisions(decode(t, parentHead+`"spec":`+last.spec+`}`), stored)
			if err != nil || len(revisions) < 2 {
				t.Fatalf("%d revisions, %v", len(revisions), err)
			}
			first := slices.IndexFunc(revisions, func(r Revision) bool { return cmp.Equal(r.patch["spec"], map[string]any{"template": int64(1)}) })
			if first < 1 {
				t.Fatal("the first revision is gone")
			}
			if diff := cmp.Diff(decode(t, tc.want), revisions[first].Parent["spec"]); diff != "" {
				t.Errorf("%s\nthe first revision's spec (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRevisionsOfMetacontrollerAreNotWrittenForWhatTheyDoNotSay(t *testing.T) {
	stored, _ := syncWith(t, []string{"spec.template"}, `{"template":1}`, nil)
	stored[0].Annotations = nil
	for _, paths := range [][]string{{"spec.template"}, {"spec.template", "spec.extra"}} {
		if _, plan := syncWith(t, paths, `{"template":1}`, stored); len(plan.Writes) > 0 {
			t.Errorf("with the paths %v: %d writes, want none", paths, len(plan.Writes))
		}
	}
	stored[0].OwnerReferences[0].Controller = new(false)
	if _, plan := syncWith(t, []string{"spec.template"}, `{"template":1}`, stored); len(plan.Writes) != 1 || metav1.GetControllerOf(plan.Writes[0].Revision) == nil ||
		plan.Writes[0].Revision.Annotations[AnnotationFieldPaths] != `["spec.template"]` {
		t.Errorf("of the latest revision that is written for another reason: %v, want the annotation", plan.Writes)
	}
}
