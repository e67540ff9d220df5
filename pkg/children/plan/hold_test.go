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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

func numbered(name, value, metadata string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns"%s},"data":{"k":%q}}`, name, metadata, value)
}

func TestAPlanWithoutItsDeletionsKeepsWhatItWouldDelete(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.want(t, numbered("new", "1", ""), numbered("changed", "2", ""))
	s.see(t, numbered("changed", "1", `,"uid":"1"`), numbered("unwanted", "1", `,"uid":"2"`),
		numbered("leaving", "1", `,"uid":"3","deletionTimestamp":"2026-01-01T00:00:00Z"`))
	s.gather(t)
	p, err := plan.Make(s.Input)
	if err != nil {
		t.Fatal(err)
	}
	show := func(p plan.Plan) (actions map[string]plan.Action, kept []string) {
		actions = map[string]plan.Action{}
		for i := range p.Steps {
			actions[p.Steps[i].Name] = p.Steps[i].Action
		}
		for _, key := range p.Kept {
			kept = append(kept, key.Name)
		}
		return actions, kept
	}
	before, _ := show(p)
	if diff := cmp.Diff(map[string]plan.Action{
		"new": plan.Create, "changed": plan.Recreate, "unwanted": plan.Delete, "leaving": plan.Leave,
	}, before); diff != "" || len(p.Deletions()) != 2 {
		t.Fatalf("%d deletions in another plan (-want +got):\n%s", len(p.Deletions()), diff)
	}
	without := p.WithoutDeletions()
	actions, kept := show(without)
	if diff := cmp.Diff(map[string]plan.Action{"new": plan.Create, "leaving": plan.Leave}, actions); diff != "" {
		t.Errorf("the steps differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"unwanted", "changed"}, kept); diff != "" {
		t.Errorf("other children are kept (-want +got):\n%s", diff)
	}
	if len(without.Deletions()) != 0 {
		t.Errorf("%d deletions are left", len(without.Deletions()))
	}
	if after, _ := show(p); cmp.Diff(before, after) != "" {
		t.Error("the plan itself changed")
	}
}
