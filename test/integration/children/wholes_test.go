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

package children

import (
	"fmt"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
)

// TestWhatIsLeftOutOfAWholeIsRemoved has the hook return less of what the API server knows as one value: an atomic map, and a list of
// which the schema does not say how it is merged.
func TestWhatIsLeftOutOfAWholeIsRemoved(t *testing.T) {
	in := func(content map[string]any, path ...string) map[string]any {
		for _, field := range path {
			content, _ = content[field].(map[string]any)
		}
		return content
	}
	steps := func(content map[string]any) []any { return in(content, "spec")["steps"].([]any) }
	for name, tc := range map[string]struct {
		file         string
		first, later func(content map[string]any)
		field, want  string
	}{
		"AnEntryOfASelector": {
			"service-dns.yaml",
			func(content map[string]any) { in(content, "spec", "selector")["track"] = "canary" },
			func(content map[string]any) { delete(in(content, "spec", "selector"), "track") },
			"{.spec.selector}", `{"app":"dns"}`,
		},
		"AnElement": {
			"gadget", func(map[string]any) {},
			func(content map[string]any) { in(content, "spec")["steps"] = steps(content)[:1] },
			"{.spec.steps}", `[{"name":"build","run":"make","tries":1}]`,
		},
		"AFieldOfAnElement": {
			"gadget", func(map[string]any) {},
			func(content map[string]any) { delete(steps(content)[1].(map[string]any), "run") },
			"{.spec.steps}", `[{"name":"build","run":"make","tries":1},{"name":"test","tries":1}]`,
		},
		"TheOrder": {
			"gadget", func(map[string]any) {},
			func(content map[string]any) { slices.Reverse(steps(content)) },
			"{.spec.steps[*].name}", "test build",
		},
	} {
		for _, way := range []strategy{merged, applied} {
			for _, restart := range []bool{false, true} {
				if name == "TheOrder" && !way.serverSide {
					continue // Elements that are merged keep their places, as with Metacontroller.
				}
				t.Run(fmt.Sprintf("%s/%s/Restart=%t", name, way.name, restart), func(t *testing.T) {
					t.Parallel()
					s, content := moving(t, tc.file, v1alpha1.ChildUpdateInPlace)
					withoutDuplicates(content)
					tc.first(content)
					s.use(t, way)
					created := s.gets(t, plan.Create, content)
					s.quiet(t, "after the creation", content)
					if restart {
						s.restart()
						s.quiet(t, "after a restart", content)
					}
					tc.later(content)
					s.gets(t, plan.Update, content)
					s.quiet(t, "after the change", content)
					target := client.Target{Resource: created.Resource, Namespace: s.parent.Name(), Name: created.Name}
					if got := s.prints(t, target, tc.field); got != tc.want {
						t.Errorf("it has %s, want %s", got, tc.want)
					}
				})
			}
		}
	}
}
