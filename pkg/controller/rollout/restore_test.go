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
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

func TestFormerRevisions(t *testing.T) {
	parent := decode(t, parentHead+`"spec":{"a":2}}`)
	latest, old := revision("latest", `{"spec":{"a":2}}`), revision("old", `{"spec":{"a":1}}`)
	for name, tc := range map[string]struct {
		given []*revisionObject
		name  string
		want  any
		err   error
	}{
		"previous":                       {[]*revisionObject{latest, old}, v1alpha1.RevisionPrevious, int64(1), nil},
		"none named":                     {[]*revisionObject{latest, old}, "", int64(1), nil},
		"a name":                         {[]*revisionObject{latest, old}, old.Name, int64(1), nil},
		"the latest":                     {[]*revisionObject{latest, old}, latest.Name, int64(2), nil},
		"a name that is none":            {[]*revisionObject{latest, old}, "x", nil, inspection.ErrNoRevision},
		"no former one":                  {[]*revisionObject{latest}, "", nil, errNoFormer},
		"a latest that is not there yet": {[]*revisionObject{old}, latest.Name, nil, inspection.ErrNoRevision},
	} {
		t.Run(name, func(t *testing.T) {
			revisions, err := plannerOf().Revisions(parent, tc.given)
			if err != nil {
				t.Fatal(err)
			}
			former, err := plannerOf().Former(revisions, tc.name)
			if !errors.Is(err, tc.err) {
				t.Fatalf("the error is %v, want %v", err, tc.err)
			}
			if err != nil {
				return
			}
			if got, _ := field(former.Parent, []string{"spec", "a"}); got != tc.want {
				t.Errorf("spec.a is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFormerRevisionsAreKeptUpToTheLimit rolls a parent through versions, one after the other to the end.
func TestFormerRevisionsAreKeptUpToTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		limit    int
		versions []string
		// kept are the versions of the revisions that are left, the latest first, and previous is what the parent is rolled back to.
		kept     []string
		previous string
	}{
		"none":                               {0, []string{"v2", "v3"}, []string{"v3"}, ""},
		"all":                                {10, []string{"v2", "v3"}, []string{"v3", "v2", "v1"}, "v2"},
		"the newest":                         {2, []string{"v2", "v3", "v4", "v5"}, []string{"v5", "v4", "v3"}, "v4"},
		"one that is the latest again":       {2, []string{"v2", "v3", "v2"}, []string{"v2", "v3", "v1"}, "v3"},
		"one that was the latest again":      {2, []string{"v2", "v3", "v1", "v4"}, []string{"v4", "v1", "v3"}, "v1"},
		"back and forth between two of them": {2, []string{"v2", "v1", "v2", "v1"}, []string{"v1", "v2"}, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, "home", Rule{InPlace: true}, 3)
			s.planner.config.HistoryLimit = tc.limit
			for _, version := range append([]string{"v1"}, tc.versions...) {
				s.set("spec.template.version", version)
				for range 10 {
					s.sync()
					s.settle()
				}
			}
			if plan := s.sync(); len(plan.Writes) > 0 || plan.Outdated > 0 {
				t.Fatalf("at rest there are %d writes", len(plan.Writes))
			}
			revisions, err := s.planner.Revisions(s.parent, s.candidates())
			if err != nil || len(Live(revisions)) != 1 {
				t.Fatalf("the hook is called for %d revisions, error %v", len(Live(revisions)), err)
			}
			var kept []string
			for _, r := range revisions {
				patch, err := decodePatch(r.Object)
				if err != nil {
					t.Fatal(err)
				}
				version, _ := field(patch, []string{"spec", "template", "version"})
				kept = append(kept, fmt.Sprint(version))
			}
			if !slices.Equal(kept, tc.kept) {
				t.Errorf("revisions %q are kept, want %q", kept, tc.kept)
			}
			former, err := s.planner.Former(revisions, "")
			if tc.previous == "" {
				if !errors.Is(err, errNoFormer) {
					t.Errorf("rolling back: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := field(former.Parent, []string{"spec", "template", "version"}); got != tc.previous {
				t.Errorf("it is rolled back to %v, want %s", got, tc.previous)
			}
		})
	}
}

// TestARevisionThatNoChildIsOnHoldsNothingUp has one that was changed since it was written: the hook is shown nothing of it, and nobody is rolled
// back to it.
func TestARevisionThatNoChildIsOnHoldsNothingUp(t *testing.T) {
	latest, broken := revision("latest", `{"spec":{"a":2}}`), revision("old", `{"spec":{"a":1}}`)
	broken.Children, broken.ParentPatch.Raw = nil, []byte(`{"spec":{"a":3}}`)
	revisions, err := plannerOf().Revisions(decode(t, parentHead+`"spec":{"a":2}}`), []*revisionObject{broken, latest})
	if err != nil || len(revisions) != 2 || len(Live(revisions)) != 1 {
		t.Fatalf("%d revisions, error %v", len(revisions), err)
	}
	if _, err := plannerOf().Former(revisions, broken.Name); !errors.As(err, new(*UnreadableError)) {
		t.Errorf("rolling back to it: %v", err)
	}
}
