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

// Package brakes tests what keeps a controller from acting: spec.paused and spec.deletionGuard.
package brakes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

const limit = cluster.Limit

// TestBrakes has one server for all.
func TestBrakes(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: limit})
	t.Run("DeletionGuard", func(t *testing.T) { deletionGuard(t, e) })
	t.Run("Pause", func(t *testing.T) { pauses(t, e) })
	t.Run("InOrder", func(t *testing.T) { inOrder(t, e) })
	t.Run("Fights", func(t *testing.T) { fights(t, e) })
}

// A stage is one test of a controller of either kind, whose hook wants as many ConfigMaps for each parent as its spec.n says, with the
// data that its spec.data says.
type stage struct {
	*fixture.Test

	kind       fixture.Kind
	script     *fixture.Script
	definition fixture.Definition
	// finalize is the finalize hook, which a test may add to the definition.
	finalize   *v1alpha1.Hook
	controller *controllers.Controller
}

// tests runs a table, some of whose rows are of a CompositeController alone: one reconciler has the brakes of both kinds, and simulated histories pull
// those of both.
func tests(t *testing.T, e *fixture.Environment, table fixture.Table[*stage]) {
	t.Helper()
	table.Stage = func(t *testing.T, kind fixture.Kind, inline bool) *stage {
		s := newStage(t, e, kind)
		if inline {
			s.inline()
		}
		return s
	}
	table.Run(t)
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), kind: kind, script: e.NewScript(kind)}
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{Children: wanted(c.Parent), Status: map[string]any{"n": fixture.Value(c.Parent, "spec", "n")}}
		if c.Finalizing {
			reply.Children = nil
			reply.Finalized = len(c.Children["ConfigMap.v1"]) == 0
		}
		return reply, nil
	})
	s.Handle("/hook", s.script)
	s.definition = fixture.Definition{
		Kind: kind, Sync: s.At("/hook"), Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	}
	s.finalize = s.At("/hook")
	return s
}

// inline has inline hooks do what the script does.
func (s *stage) inline() {
	s.T.Helper()
	s.definition.Sync = fixture.Inline(s.T, s.kind, `
children:
- forEach: [{name: i, in: "lists.range(int(parent.spec.n))"}]
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${parent.metadata.name}-${i}"}, data: {data: "${parent.spec.?data.orValue('')}"}}
status: {"n": "${string(parent.spec.n)}"}
`)
	s.finalize = fixture.Inline(s.T, s.kind, `finalized: children.configmaps.size() == 0`)
}

// wanted are the children of a parent.
func wanted(parent *unstructured.Unstructured) []*hook.Object {
	var n int
	if _, err := fmt.Sscan(fixture.Value(parent, "spec", "n"), &n); err != nil {
		return nil
	}
	var list []*hook.Object
	for i := range n {
		list = append(list, fixture.ConfigMap(fmt.Sprint(parent.GetName(), "-", i), map[string]any{"data": fixture.Value(parent, "spec", "data")}))
	}
	return list
}

// run creates the controller.
func (s *stage) run() {
	s.T.Helper()
	s.controller = s.Run(s.definition)
}

// witness runs a second controller of the same parents, and returns how to wait until it has seen a parent with a value of spec.n: the
// events of the change have been delivered then.
func (s *stage) witness() func(name, n string) {
	s.T.Helper()
	script := s.NewScript(fixture.Decorator)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Annotations: map[string]*string{"seen": new(fixture.Value(c.Parent, "spec", "n"))}}, nil
	})
	s.Handle("/witness", script)
	s.Run(fixture.Definition{Kind: fixture.Decorator, Name: s.Name + "-witness", Sync: s.At("/witness")})
	return func(name, n string) {
		s.T.Helper()
		s.Await(fixture.Things, name, "to be seen", func(o *unstructured.Unstructured) bool { return o != nil && o.GetAnnotations()["seen"] == n })
	}
}

// eventually waits for a condition.
func (s *stage) eventually(what string, holds func() bool) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, what, func(context.Context) (bool, string) { return holds(), "" })
}

// names returns the names of the ConfigMaps of the parents.
func (s *stage) names() []string {
	s.T.Helper()
	list, err := s.Resource(fixture.ConfigMaps).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	names := []string{}
	for i := range list.Items {
		if len(list.Items[i].GetOwnerReferences()) > 0 {
			names = append(names, list.Items[i].GetName())
		}
	}
	slices.Sort(names)
	return names
}

// awaitNames waits until these are the ConfigMaps of the parents.
func (s *stage) awaitNames(want ...string) {
	s.T.Helper()
	for _, name := range want {
		s.Await(fixture.ConfigMaps, name, "to be there", cluster.Exists)
	}
	for _, name := range s.names() {
		if !slices.Contains(want, name) {
			s.Await(fixture.ConfigMaps, name, "to be gone", cluster.Gone)
		}
	}
}

// pause pauses the controller and waits until nothing is under way.
func (s *stage) pause() {
	s.T.Helper()
	s.controller.Patch(`{"spec":{"paused":true}}`)
	s.awaitPaused()
}

func (s *stage) awaitPaused() {
	s.T.Helper()
	object := strings.ToLower(s.controller.Kind) + "/" + s.controller.Name
	s.Kubectl(s.T, "wait", "--for=condition=Paused", object, "--timeout", limit.String())
	s.controller.AwaitCondition(v1alpha1.ConditionReady, "to say so", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPaused && strings.Contains(c.Message, "kubectl patch "+object)
	})
	label := s.controller.Kind + "-" + s.controller.Name
	// A server that was started again may not have begun to run controllers, and the conditions be those of before.
	s.eventually("the metric to have the conditions", func() bool {
		page, err := s.Server.Metrics(s.T.Context())
		if err != nil {
			s.T.Fatal(err)
		}
		is := func(condition, status string) bool {
			value, ok := page.Value("metacontroller_controller_condition", "controller", label, "condition", condition, "status", status)
			return ok && value == 1
		}
		return is(v1alpha1.ConditionPaused, "True") && is(v1alpha1.ConditionReady, "False")
	})
}

func (s *stage) resume() {
	s.T.Helper()
	s.controller.Patch(`{"spec":{"paused":false}}`)
	s.controller.AwaitReady()
}
