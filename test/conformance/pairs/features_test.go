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

package pairs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// parts are children whose readiness the tests decide.
var parts = schema.GroupVersionResource{Group: fixture.Group, Version: "v1", Resource: "parts"}

// features are those of which each pair has a row.
var features = []string{"Paused", "PlanWarnings", "Retained", "Synced"}

// TestFeatures has one server for all.
func TestFeatures(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Resources: []cluster.CustomResource{{Resource: parts, Kind: "Part"}}})
	for _, c := range []struct {
		name string
		kind fixture.Kind
		run  func(*stage)
	}{
		{"Restart", fixture.Composite, restart}, // It has the server to itself.
		{"RollingUpdate", fixture.Composite, rollingUpdate},
		{"DeletionGuard", fixture.Composite, deletionGuard},
		{"Deselection", fixture.Composite, deselection},
		{"DeselectionOfATarget", fixture.Decorator, deselection},
		{"SecondController", fixture.Composite, secondController},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "Restart" {
				t.Parallel()
			}
			s := newStage(t, e, c.kind)
			c.run(s)
			slices.Sort(s.rows)
			if !slices.Equal(s.rows, features) {
				t.Errorf("there are the rows %v, want %v", s.rows, features)
			}
		})
	}
}

// A stage is a controller that keeps the condition Synced in its parents, and whose children stay without them. Its hook wants a child with the data
// spec.data for each of spec.names. The hook at /fewer leaves out the last of them, as many as spec.fewer says.
type stage struct {
	*fixture.Test

	script, fewer *fixture.Script
	definition    fixture.Definition
	controller    *controllers.Controller
	// rows are those that were run.
	rows []string
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(kind), fewer: e.NewScript(kind)}
	s.script.Respond(wanted(false))
	s.fewer.Respond(wanted(true))
	s.Handle("/hook", s.script)
	s.Handle("/fewer", s.fewer)
	keep := []v1alpha1.ParentCondition{v1alpha1.ParentConditionSynced}
	s.definition = fixture.Definition{
		Kind: kind, Sync: s.At("/hook"),
		Children: []fixture.Child{{
			Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace, OnParentDeletion: v1alpha1.ParentDeletionRetain,
		}},
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) { spec.ParentResource.Conditions = keep },
		EditDecorator: func(spec *v1alpha1.DecoratorControllerSpec) { spec.Resources[0].Conditions = keep },
	}
	return s
}

// wanted are the children that a parent says: Parts if spec.of says so, else ConfigMaps. It is finalized when none is left, or at once with all of them
// if spec.keeps is true. The data "broken" fails.
func wanted(fewer bool) func(*fixture.Call) (*fixture.Reply, error) {
	return func(c *fixture.Call) (*fixture.Reply, error) {
		data, names := fixture.Value(c.Parent, "spec", "data"), strings.Fields(fixture.Value(c.Parent, "spec", "names"))
		if data == "broken" {
			return nil, fmt.Errorf("the hook cannot make %s of it", data)
		}
		var left int
		_, _ = fmt.Sscan(fixture.Value(c.Parent, "spec", "fewer"), &left) // Most parents do not say it.
		if fewer {
			names = names[:len(names)-left]
		}
		reply := &fixture.Reply{Status: map[string]any{"data": data}}
		if c.Finalizing {
			keeps := fixture.Value(c.Parent, "spec", "keeps") == "true"
			reply.Finalized = keeps || len(c.Children["ConfigMap.v1"]) == 0
			if !keeps {
				names = nil
			}
		}
		for _, name := range names {
			child := fixture.ConfigMap(c.Parent.GetName()+"-"+name, map[string]any{"data": data})
			if fixture.Value(c.Parent, "spec", "of") == "parts" {
				child.Object["apiVersion"], child.Object["kind"] = fixture.Group+"/v1", "Part"
			}
			reply.Children = append(reply.Children, child)
		}
		return reply, nil
	}
}

// row runs the row of a feature, which needs what the rows before it have left.
func (s *stage) row(feature string, run func()) {
	s.rows = append(s.rows, feature)
	whole, objects := s.T, s.Objects
	defer func() { s.T, s.Objects = whole, objects }()
	if !whole.Run(feature, func(t *testing.T) {
		s.T, s.Objects = t, s.Environment.Objects(t, s.Namespace, s.Limit)
		run()
	}) {
		whole.FailNow()
	}
}

// parent creates a parent, and waits for its children and for its condition.
func (s *stage) parent(name string, spec map[string]any) *unstructured.Unstructured {
	s.T.Helper()
	p := s.Parent(name, spec)
	of := fixture.ConfigMaps
	if spec["of"] == "parts" {
		of = parts
	}
	for child := range strings.FieldsSeq(fmt.Sprint(spec["names"])) {
		s.Await(of, name+"-"+child, "to be created", cluster.Exists)
	}
	s.awaitSynced(name, "True Synced ")
	return p
}

// awaitSynced waits until the condition Synced of a parent, about its present generation, begins so.
func (s *stage) awaitSynced(name, begins string) {
	s.T.Helper()
	s.Await(fixture.Things, name, "to say "+begins, func(o *unstructured.Unstructured) bool {
		text, current := fixture.Condition(o, "Synced")
		return current && strings.HasPrefix(text, begins)
	})
}

func (s *stage) pause(name string) {
	s.T.Helper()
	s.Patch(fixture.Things, name, `{"metadata":{"annotations":{"metacontroller.k8s.io/paused":"true"}}}`)
	s.awaitSynced(name, "Unknown Paused ")
}

func (s *stage) resume(name string) {
	s.T.Helper()
	s.Patch(fixture.Things, name, `{"metadata":{"annotations":{"metacontroller.k8s.io/paused":null}}}`)
}

// deselect takes the label off a parent by which it is selected.
func (s *stage) deselect(name string) {
	s.T.Helper()
	s.Patch(fixture.Things, name, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, fixture.Label))
}

// calls returns how often hooks were called about a parent.
func (s *stage) calls(name string) int { return s.script.Calls(name) + s.fewer.Calls(name) }

// data returns what is in children of a parent, by their names, and which of them are not there.
func (s *stage) data(r schema.GroupVersionResource, parent string, names ...string) string {
	s.T.Helper()
	var list []string
	for _, name := range names {
		child := s.Get(r, parent+"-"+name)
		if child == nil {
			list = append(list, name+" is gone")
			continue
		}
		list = append(list, name+"="+fixture.Value(child, "data", "data"))
	}
	return strings.Join(list, " ")
}

// stay checks that children outlive their parent, and waits until they have no owner left but those in owners.
func (s *stage) stay(r schema.GroupVersionResource, owners []string, names ...string) {
	s.T.Helper()
	for _, name := range names {
		s.Await(r, name, fmt.Sprintf("to stay with the owners %v", owners), func(o *unstructured.Unstructured) bool {
			if o == nil || o.GetDeletionTimestamp() != nil {
				s.T.Fatalf("%s was deleted with its parent", name)
			}
			var kinds []string
			for _, owner := range o.GetOwnerReferences() {
				kinds = append(kinds, owner.Kind)
			}
			slices.Sort(kinds)
			return slices.Equal(kinds, owners)
		})
	}
}

// calling is a patch of the controller that has it call another hook.
func (s *stage) calling(path string) string {
	return fmt.Sprintf(`{"spec":{"hooks":{"sync":{"webhook":{"url":%q}}}}}`, s.Hook.URL(path))
}

// warnsOf has kubectl try a patch of a controller, and waits until it prints a summary of what would happen.
func (s *stage) warnsOf(c *controllers.Controller, patch, summary string) {
	s.T.Helper()
	if server.OnDefinitions() {
		return // There, nobody plans what is written.
	}
	// A warning is of what was found out within 2 seconds.
	cluster.Eventually(s.T, s.Limit, "kubectl to say: "+summary, func(context.Context) (bool, string) {
		output := s.Kubectl(s.T, "patch", c.Kind, c.Name, "--type=merge", "-p", patch, "--dry-run=server")
		return strings.Contains(output, "Warning: "+summary), output
	})
}

// write has kubectl patch the controller, and checks that it warns of these deletions; empty for none.
func (s *stage) write(patch, deletions string) {
	s.T.Helper()
	began := time.Now()
	output := s.Kubectl(s.T, "patch", s.controller.Kind, s.controller.Name, "--type=merge", "-p", patch)
	const warning = "Warning: syncs with this definition: "
	// In more time nothing may have been found out.
	late := server.OnDefinitions() || time.Since(began) >= 2*time.Second
	if deletions == "" && strings.Contains(output, warning) || deletions != "" && !late && !strings.Contains(output, warning+deletions+";") {
		s.T.Errorf("kubectl prints %q, want a warning of %q", output, deletions)
	}
}

// rollingUpdate stops an update at its first child, which is not ready.
func rollingUpdate(s *stage) {
	s.definition.Children[0] = fixture.Child{Resource: parts, OnParentDeletion: v1alpha1.ParentDeletionRetain}
	edit := s.definition.EditComposite
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) {
		edit(spec)
		spec.ChildResources[0].UpdateStrategy = &v1alpha1.CompositeControllerChildUpdateStrategy{
			Method:       v1alpha1.ChildUpdateRollingInPlace,
			StatusChecks: v1alpha1.ChildUpdateStatusChecks{Conditions: []v1alpha1.StatusConditionCheck{{Type: "Ready", Status: new("True")}}},
		}
	}
	s.controller = s.Run(s.definition)
	s.parent("p", map[string]any{"of": "parts", "names": "a b c d", "data": "1", "fewer": 1})
	waitsAt := func(child string) {
		s.Await(fixture.Things, "p", "to wait for "+child, func(o *unstructured.Unstructured) bool {
			updated, _ := fixture.Condition(o, "Updated")
			return strings.HasPrefix(updated, "False RolloutWaiting ") && strings.Contains(updated, child)
		})
	}
	s.row("Synced", func() {
		s.Patch(fixture.Things, "p", `{"spec":{"data":"2"}}`)
		waitsAt("p-a")
		s.awaitSynced("p", "True Synced ")
		for _, r := range s.Requests("/hook") {
			if strings.Contains(string(r.Body), `"type":"Synced"`) {
				s.T.Errorf("the hook was shown the condition: %s", r.Body)
			}
		}
	})
	s.row("PlanWarnings", func() {
		s.warnsOf(s.controller, s.calling("/fewer"), "1 of 1 parent would change: 1 child deleted;")
		s.write(s.calling("/fewer"), "1 child deleted")
		s.Await(parts, "p-d", "to be deleted", cluster.Gone)
	})
	s.row("Paused", func() {
		s.pause("p")
		calls := s.calls("p")
		a := s.Get(parts, "p-a")
		s.Patch(parts, "p-a", fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True"}]}}`, a.GetGeneration()), "status")
		s.parent("q", map[string]any{"of": "parts", "names": "a", "data": "1"})
		if got := s.data(parts, "p", "a", "b", "c"); got != "a=2 b=1 c=1" || s.calls("p") != calls {
			s.T.Errorf("during the pause the children became %s, and hooks were called %d times", got, s.calls("p")-calls)
		}
		s.resume("p")
		waitsAt("p-b")
		if got := s.data(parts, "p", "a", "b", "c"); got != "a=2 b=2 c=1" {
			s.T.Errorf("after the pause the children became %s, want one more on the new revision", got)
		}
	})
	s.row("Retained", func() {
		s.Delete(fixture.Things, "p")
		s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
		s.stay(parts, nil, "p-a", "p-b", "p-c")
		if got := s.data(parts, "p", "a", "b", "c"); got != "a=2 b=2 c=1" {
			s.T.Errorf("the children became %s without their parent", got)
		}
	})
}

// deletionGuard allows one deletion a minute.
func deletionGuard(s *stage) {
	edit := s.definition.EditComposite
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) {
		edit(spec)
		spec.DeletionGuard = &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(1))}
	}
	s.controller = s.Run(s.definition)
	s.parent("p", map[string]any{"names": "a b c", "data": "1", "fewer": 3})
	s.parent("q", map[string]any{"names": "a b c", "data": "1"})
	held := func(status metav1.ConditionStatus, part string) string {
		return s.controller.AwaitCondition(v1alpha1.ConditionDeletionsHeld, "to be "+string(status), func(c metav1.Condition) bool {
			return c.Status == status && strings.Contains(c.Message, part)
		}).Message
	}
	s.row("PlanWarnings", func() {
		s.warnsOf(s.controller, s.calling("/fewer"), "0 of 2 parents would change: 3 children refused;")
		s.write(s.calling("/fewer"), "")
	})
	s.row("Synced", func() {
		held(metav1.ConditionTrue, "3 deletions, of 1 parent")
		s.awaitSynced("p", "False Held 3 deletions of children are held")
	})
	s.row("Retained", func() {
		s.Delete(fixture.Things, "q")
		s.Await(fixture.Things, "q", "to be gone", cluster.Gone)
		s.stay(fixture.ConfigMaps, nil, "q-a", "q-b", "q-c")
		s.Idle(s.controller)
		held(metav1.ConditionTrue, "3 deletions, of 1 parent")
	})
	s.row("Paused", func() {
		_, command, _ := strings.Cut(held(metav1.ConditionTrue, "kubectl "), "kubectl ")
		s.pause("p")
		s.Kubectl(s.T, strings.Fields(command)...)
		held(metav1.ConditionFalse, "")
		s.parent("r", map[string]any{"names": "a", "data": "1"})
		if got := s.data(fixture.ConfigMaps, "p", "a", "b", "c"); got != "a=1 b=1 c=1" {
			s.T.Errorf("during the pause the children became %s", got)
		}
		s.resume("p")
		for _, name := range []string{"p-a", "p-b", "p-c"} {
			s.Await(fixture.ConfigMaps, name, "to be deleted, as is confirmed", cluster.Gone)
		}
		s.awaitSynced("p", "True Synced ")
	})
}

// deselection has a finalize hook, which has the children of parents deleted that are not selected any more.
func deselection(s *stage) {
	s.definition.Finalize = s.At("/hook")
	s.controller = s.Run(s.definition)
	two := map[string]any{"names": "a b", "data": "1"}
	s.parent("p", two)
	released := func(o *unstructured.Unstructured) bool {
		return o != nil && !fixture.HasFinalizer(o, s.Finalizer(s.definition))
	}
	s.row("Paused", func() {
		s.pause("p")
		calls := s.calls("p")
		s.deselect("p")
		s.parent("q", map[string]any{"names": "a b", "data": "1", "keeps": "true"})
		if got := s.data(fixture.ConfigMaps, "p", "a", "b"); got != "a=1 b=1" || s.calls("p") != calls || released(s.Get(fixture.Things, "p")) {
			s.T.Errorf("during the pause the children became %s, hooks were called %d times, and the finalizer came off: %t",
				got, s.calls("p")-calls, released(s.Get(fixture.Things, "p")))
		}
		s.resume("p")
		s.Await(fixture.Things, "p", "to be released", released)
		if got := s.data(fixture.ConfigMaps, "p", "a", "b"); got != "a is gone b is gone" {
			s.T.Errorf("the finalize hook has left the children %s", got)
		}
	})
	s.row("Synced", func() {
		// It waits for nothing any more.
		s.awaitSynced("p", "True Synced ")
		written := s.Patch(fixture.Things, "p", `{"spec":{"data":"2"}}`)
		s.parent("r", two)
		if now := s.Get(fixture.Things, "p"); now.GetResourceVersion() != written.GetResourceVersion() {
			s.T.Errorf("a parent that is not selected was written: %v", now.Object)
		}
	})
	s.row("Retained", func() {
		s.deselect("q")
		s.Await(fixture.Things, "q", "to be released", released)
		// The garbage collector will not delete them with it.
		s.stay(fixture.ConfigMaps, []string{"Namespace", "Thing"}, "q-a", "q-b")
	})
	s.row("PlanWarnings", func() {
		rule := fmt.Sprintf(`{"apiVersion":"%s/v1","resource":"things","labelSelector":{"matchLabels":{%q:"nobody"}},"conditions":["Synced"]}`, fixture.Group, fixture.Label)
		patch := `{"spec":{"parentResource":` + rule + `}}`
		if s.definition.Kind == fixture.Decorator {
			patch = `{"spec":{"resources":[` + rule + `]}}`
		}
		s.warnsOf(s.controller, patch, "1 of 1 parent would change: 2 children deleted;")
		s.write(patch, "2 children deleted")
		s.Await(fixture.Things, "r", "to be released", released)
	})
}

// restart deletes a parent and edits one that is paused, while no server runs.
func restart(s *stage) {
	s.controller = s.Run(s.definition)
	s.parent("p", map[string]any{"names": "a", "data": "1"})
	s.parent("same", map[string]any{"names": "a b", "data": "1", "fewer": 1})
	s.parent("ends", map[string]any{"names": "a", "data": "1"})
	s.Parent("fails", map[string]any{"data": "broken"})
	s.awaitSynced("fails", "False Failing ")
	s.pause("p")
	s.Idle(s.controller)
	before, calls, synced := s.Get(fixture.Things, "same"), s.script.Calls("p"), s.script.Calls("same")
	if err := s.Server.Stop(); err != nil {
		s.T.Fatal(err)
	}
	s.Delete(fixture.Things, "ends")
	s.Patch(fixture.Things, "p", `{"spec":{"data":"2"}}`)
	s.Server.Restart()
	s.controller.AwaitReady()
	s.row("Retained", func() {
		s.Await(fixture.Things, "ends", "to be gone", cluster.Gone)
		s.stay(fixture.ConfigMaps, nil, "ends-a")
		s.AwaitEvent("ends", corev1.EventTypeNormal, "ChildRetained", "ConfigMap "+s.Namespace+"/ends-a")
	})
	s.row("PlanWarnings", func() {
		s.warnsOf(s.controller, s.calling("/fewer"), "2 of 3 parents would change: 1 child updated, 1 deleted; 1 sync would fail, ")
	})
	s.row("Synced", func() {
		s.script.AwaitCalls(s.T, "same", synced+1)
		s.Idle(s.controller)
		if now := s.Get(fixture.Things, "same"); now.GetResourceVersion() != before.GetResourceVersion() {
			s.T.Errorf("the first sync after a restart has written %v, which was %v", now.Object, before.Object)
		}
		s.awaitSynced("fails", "False Failing ")
		s.Patch(fixture.Things, "fails", `{"spec":{"data":"1"}}`)
		s.awaitSynced("fails", "True Synced ")
	})
	s.row("Paused", func() {
		s.awaitSynced("p", "Unknown Paused ")
		if got := s.data(fixture.ConfigMaps, "p", "a"); got != "a=1" || s.script.Calls("p") != calls {
			s.T.Errorf("after a restart the child of a paused parent became %s, and the hook was called %d times", got, s.script.Calls("p")-calls)
		}
		s.resume("p")
		s.awaitSynced("p", "True Synced ")
		if got := s.data(fixture.ConfigMaps, "p", "a"); got != "a=2" {
			s.T.Errorf("after the pause the child became %s", got)
		}
	})
}

// secondController has a DecoratorController with Secrets, which are deleted with their target, on the same parents. It keeps the condition, too.
func secondController(s *stage) {
	second := s.NewScript(fixture.Decorator)
	second.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Children: []*hook.Object{{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": c.Parent.GetName() + "-secret"},
			"stringData": map[string]any{"data": fixture.Value(c.Parent, "spec", "data")},
		}}}}, nil
	})
	none := s.NewScript(fixture.Decorator)
	none.Want()
	s.Handle("/second", second)
	s.Handle("/none", none)
	s.controller = s.Run(s.definition)
	decorator := s.Run(fixture.Definition{
		Kind: fixture.Decorator, Name: s.Name + "-second", Sync: s.At("/second"), EditDecorator: s.definition.EditDecorator,
		Children: []fixture.Child{{Resource: fixture.Secrets, Method: v1alpha1.ChildUpdateInPlace}},
	})
	rest := func() int {
		s.T.Helper()
		s.Idle(s.controller)
		s.Idle(decorator)
		return s.calls("p") + second.Calls("p")
	}
	hasData := func(of, value string) {
		s.T.Helper()
		s.Await(fixture.ConfigMaps, of+"-a", "to have "+value, func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == value })
		encoded := map[string]string{"1": "MQ==", "2": "Mg=="}[value]
		s.Await(fixture.Secrets, of+"-secret", "to have "+value, func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == encoded })
	}
	s.parent("p", map[string]any{"names": "a b", "data": "1", "fewer": 1})
	hasData("p", "1")
	s.row("PlanWarnings", func() {
		s.warnsOf(s.controller, s.calling("/fewer"), "1 of 1 parent would change: 1 child deleted;")
		s.warnsOf(decorator, s.calling("/none"), "1 of 1 parent would change: 1 child deleted;")
	})
	s.row("Synced", func() {
		calls := rest()
		s.parent("q", map[string]any{"names": "a", "data": "1"})
		hasData("q", "1")
		if now := rest(); now != calls {
			s.T.Errorf("two controllers that keep the condition had hooks called %d times for nothing", now-calls)
		}
		s.awaitSynced("p", "True Synced ")
	})
	s.row("Paused", func() {
		s.pause("p")
		calls := rest()
		s.Patch(fixture.Things, "p", `{"spec":{"data":"2"}}`)
		s.Patch(fixture.Things, "q", `{"spec":{"data":"2"}}`)
		hasData("q", "2")
		if now := rest(); now != calls {
			s.T.Errorf("hooks were called %d times about a paused parent", now-calls)
		}
		hasData("p", "1")
		s.resume("p")
		hasData("p", "2")
	})
	s.row("Retained", func() {
		s.Delete(fixture.Things, "p")
		s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
		s.stay(fixture.ConfigMaps, nil, "p-a", "p-b")
		if secret := s.Get(fixture.Secrets, "p-secret"); secret != nil && len(secret.GetOwnerReferences()) != 1 {
			s.T.Errorf("the garbage collector will not delete the child of the other controller: %v", secret.Object)
		}
	})
}
