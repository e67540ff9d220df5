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
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
		"a name that is none":            {[]*revisionObject{latest, old}, "x", nil, ErrUnknown},
		"no former one":                  {[]*revisionObject{latest}, "", nil, ErrNoFormer},
		"a latest that is not there yet": {[]*revisionObject{old}, latest.Name, nil, ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			revisions, err := plannerOf().Revisions(parent, tc.given)
			if err != nil {
				t.Fatal(err)
			}
			former, err := Former(revisions, tc.name)
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
