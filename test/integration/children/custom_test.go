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
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// gadgets define a kind whose schema says how some lists are merged, sets defaults, and prunes.
const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: gadgets.children.example.com
spec:
  group: children.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              ratio: {type: number}
              count: {type: integer}
              size: {type: integer, default: 3}
              note: {type: string, nullable: true}
              mode: {type: string, default: Fast}
              share: {x-kubernetes-int-or-string: true}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              rules:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [port, protocol]
                items:
                  type: object
                  required: [port]
                  properties:
                    port: {type: integer}
                    protocol: {type: string, default: TCP}
                    weight: {type: integer, default: 1}
              tags:
                type: array
                x-kubernetes-list-type: set
                items: {type: string}
              steps:
                type: array
                items: {type: object, properties: {name: {type: string}, run: {type: string}, tries: {type: integer, default: 1}}}
              limits:
                type: object
                additionalProperties: {x-kubernetes-int-or-string: true}
`

const gadget = `
apiVersion: children.example.com/v1
kind: Gadget
metadata: {name: a}
spec:
  ratio: 1.0
  count: 2.0
  size: null
  note: null
  mode:
  share: 50%
  free: {whole: 1.0, half: 0.5, empty: "", none: null, list: [], object: {}}
  rules:
  - {port: 53}
  - {port: 53, protocol: UDP, weight: 2}
  tags: [a, b]
  steps:
  - {name: build, run: make}
  - {name: test, run: make test}
  limits: {cpu: 1, memory: 1024Mi}
`

// withGadgets knows the kind Gadget too, which is defined once: the API server makes its schemas anew after each definition.
var (
	withGadgets     *discovery.Discovery
	withGadgetsOnce sync.Once
)

func gadgetScene(t *testing.T, method v1alpha1.ChildUpdateMethod) (*scene, map[string]any) {
	t.Helper()
	s := newScene(t)
	withGadgetsOnce.Do(func() { withGadgets = s.defineGadgets(t) })
	if withGadgets == nil {
		t.Fatal("the kind Gadget could not be defined, as the first test that needs it says")
	}
	s.discovery = withGadgets
	content := s.decode(t, gadget)
	s.declare(t, content, method)
	return s, content
}

// defineGadgets returns what discovery finds as soon as the kind is there with its schema.
func (s *scene) defineGadgets(t *testing.T) *discovery.Discovery {
	t.Helper()
	cluster.Shared(t).DefineManifests(t, gadgets)
	cluster.Eventually(t, cluster.Limit, "the kind Gadget", func(ctx context.Context) (bool, string) {
		s.rediscover(t)
		kind, err := s.discovery.Kind(ctx, "children.example.com/v1", "Gadget")
		if err != nil {
			return false, err.Error()
		}
		schema := s.schema(ctx, kind.GroupVersionKind())
		return schema != nil && schema.Field("spec") != nil, "no schema"
	})
	return s.discovery
}

func TestCustomResourcesSettle(t *testing.T) {
	t.Parallel()
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			s, content := gadgetScene(t, method)
			s.gets(t, plan.Create, content)
			s.quiet(t, "after the create", content)
			s.restart()
			s.quiet(t, "after the create and a restart", content)
			s.noSchema = true
			s.restart()
			s.quiet(t, "after a restart without schema", content)
		})
	}
}

func TestListsOfCustomResourcesAreMergedAsTheirSchemaSays(t *testing.T) {
	t.Parallel()
	s, content := gadgetScene(t, v1alpha1.ChildUpdateInPlace)
	s.gets(t, plan.Create, content)
	s.patchFirst(t, types.JSONPatchType, `[
		{"op":"add","path":"/spec/rules/0","value":{"port":80}},
		{"op":"add","path":"/spec/tags/0","value":"theirs"},
		{"op":"add","path":"/spec/steps/0","value":{"name":"theirs"}},
		{"op":"replace","path":"/spec/steps/1/run","value":"changed"},
		{"op":"add","path":"/spec/free/theirs","value":1}]`)
	spec := content["spec"].(map[string]any)
	spec["rules"] = spec["rules"].([]any)[1:]
	spec["tags"] = []any{"b", "c"}
	spec["steps"] = spec["steps"].([]any)[:1]
	outcome := s.gets(t, plan.Update, content)
	for _, want := range []string{
		`"rules":[{"port":80,"protocol":"TCP","weight":1},{"port":53,"protocol":"UDP","weight":2}]`,
		`"tags":["theirs","b","c"]`,
		`"steps":[{"name":"theirs","tries":1},{"name":"build","run":"make","tries":1}]`,
		`"theirs":1`,
	} {
		if !strings.Contains(string(outcome.Written.JSON()), want) {
			t.Errorf("no %s in %s", want, outcome.Written.JSON())
		}
	}
	s.quiet(t, "after the update", content)
	s.restart()
	s.quiet(t, "after the update and a restart", content)
}

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
