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

package apply

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func configMap(data map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "child"}, "data": data}
}

// ownership is about fields, and objects, that belong to others.
func ownership(t *testing.T, w *world) {
	for name, run := range map[string]func(*testing.T, *world){
		"AnEditOfOursIsPutBackAndOneOfTheirsStays/Merge":      editing(v1alpha1.ChildApplyMerge),
		"AnEditOfOursIsPutBackAndOneOfTheirsStays/ServerSide": editing(v1alpha1.ChildApplyServerSide),
		"MovingBetweenStrategiesChangesNoValue/InPlace":       moving(v1alpha1.ChildUpdateInPlace),
		"MovingBetweenStrategiesChangesNoValue/Recreate":      moving(v1alpha1.ChildUpdateRecreate),
		"AChildThatOthersWriteAllTheTimeIsMerged":             testHot,
		"AStrangerOfTheSameNameIsNotTakenOver":                testStranger,
		"TheChildOfAnotherIsNotTakenOver":                     testOthersChild,
		"WithoutForceAConflictIsTold":                         testConflict,
		"MetacontrollersServerSideApplyIsTakenOver":           testLegacy,
		"AnElementThatIsAppliedAsAWholeGoes":                  testElements,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, w)
		})
	}
}

// editing has a person change a field of ours and one of their own with kubectl edit.
func editing(strategy v1alpha1.ChildApplyStrategy) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		c := newCell(t, w, fixture.ConfigMaps)
		c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace, Apply: strategy})
		c.wish(configMap(map[string]any{"ours": "wanted"}))
		c.await("to be created", func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "wanted" })
		c.disturb(`{"data":{"theirs":"before"}}`)

		editor := filepath.Join(t.TempDir(), "editor")
		const script = "#!/bin/sh\nexec sed -i 's/ours: wanted/ours: edited/; s/theirs: before/theirs: edited/' \"$1\"\n"
		if err := os.WriteFile(editor, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		seen := c.watch()
		edit := exec.CommandContext(t.Context(), c.KubectlPath, "--kubeconfig", c.Kubeconfig, "-n", c.name, "edit", "configmap", "child")
		edit.Env = append(os.Environ(), "KUBE_EDITOR="+editor)
		if printed, err := edit.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		seen.until(func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "edited" })
		back := c.await("to be put back", func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "wanted" })
		if got := at(back, []string{"data", "theirs"}); got != "edited" {
			t.Errorf("their field is %q, want it as edited", got)
		}
		c.again("after the edit")
		c.isSame(back, "after the edit was put back")
	}
}

// moving changes the apply strategy of a controller there and back.
func moving(method v1alpha1.ChildUpdateMethod) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		c := newCell(t, w, fixture.ConfigMaps)
		c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: method, Apply: v1alpha1.ChildApplyMerge})
		c.wish(configMap(map[string]any{"a": "1", "b": "1", "c": "1"}))
		created := c.await("to be created", isRecorded)
		seen := c.watch()

		c.use(v1alpha1.ChildApplyServerSide)
		c.await("to be applied", func(o *unstructured.Unstructured) bool { return c.isApplied(o) && !isRecorded(o) })
		// Moving the fields and applying are two writes of one sync.
		c.again("moved")
		moved := c.child()
		c.again("moved before")
		c.isSame(moved, "after it moved")
		seen.until(func(o *unstructured.Unstructured) bool { return o.GetResourceVersion() == moved.GetResourceVersion() },
			func(o *unstructured.Unstructured) {
				if o.GetUID() != created.GetUID() || len(data(o)) != 3 {
					t.Errorf("on the way it was %v", o.Object)
				}
			})
		if method == v1alpha1.ChildUpdateInPlace {
			c.change(configMap(map[string]any{"a": "1", "b": "1"}))
			c.await("to lose what was merged into it", func(o *unstructured.Unstructured) bool { return len(data(o)) == 2 })
		}

		before := c.child()
		c.use(v1alpha1.ChildApplyMerge)
		back := c.await("to be recorded", isRecorded)
		if back.GetUID() != before.GetUID() || len(data(back)) != len(data(before)) {
			t.Errorf("the way back changed it to %v", back.Object)
		}
		if method == v1alpha1.ChildUpdateInPlace {
			c.change(configMap(map[string]any{"a": "1"}))
			c.await("to lose what was applied to it", func(o *unstructured.Unstructured) bool { return len(data(o)) == 1 })
		}
		settled := c.child()
		c.again("settled")
		c.isSame(settled, "after it moved back")
	}
}

func data(o *unstructured.Unstructured) map[string]string {
	values, _, _ := unstructured.NestedStringMap(o.Object, "data")
	return values
}

func (c *cell) applies() v1alpha1.CompositeControllerChildUpdateStrategy {
	return v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace, Apply: v1alpha1.ChildApplyServerSide}
}

func testStranger(t *testing.T, w *world) {
	c := newCell(t, w, fixture.ConfigMaps)
	c.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"child"},"data":{"theirs":"1"}}`, "-n", c.name, "create", "-f", "-")
	before := c.child()
	c.declare(t, c.applies())
	c.wish(configMap(map[string]any{"ours": "1"}))
	c.AwaitEvent("parent", "Warning", "SyncError", "ConfigMap "+c.name+"/child exists and is not controlled by Wish "+c.name+"/parent")
	c.isSame(before, "though it is a stranger's")
	c.Kubectl(t, "-n", c.name, "delete", "configmap", "child")
	c.await("to be created once the stranger is gone", func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "1" })
}

func testOthersChild(t *testing.T, w *world) {
	c := newCell(t, w, fixture.ConfigMaps)
	c.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"child","ownerReferences":[{"apiVersion":"v1","kind":"Namespace",`+
		`"name":"default","uid":"`+c.Kubectl(t, "get", "namespace", "default", "-o", "jsonpath={.metadata.uid}")+`","controller":true}]}}`,
		"-n", c.name, "create", "-f", "-")
	before := c.child()
	c.declare(t, c.applies())
	c.wish(configMap(map[string]any{"ours": "1"}))
	c.AwaitEvent("parent", "Warning", "SyncError", "ConfigMap "+c.name+"/child exists and is not controlled by Wish "+c.name+"/parent")
	c.isSame(before, "though it is another's")
}

func testConflict(t *testing.T, w *world) {
	c := newCell(t, w, fixture.ConfigMaps)
	strategy := c.applies()
	strategy.Force = new(false)
	c.declare(t, strategy)
	c.wish(configMap(map[string]any{"ours": "1", "more": "1"}))
	c.await("to be created", c.isApplied)
	c.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"child"},"data":{"ours":"taken"}}`,
		"-n", c.name, "apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "-f", "-")
	c.AwaitEvent("parent", "Warning", "SyncError", "updating ConfigMap "+c.name+"/child: other field managers own what is to be applied, and "+
		`updateStrategy.force is false: .data.ours (conflict with "somebody"`)
	if got := at(c.child(), []string{"data", "ours"}); got != "taken" {
		t.Errorf("the field is %q, want it left to its owner", got)
	}
	c.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"child"}}`,
		"-n", c.name, "apply", "--server-side", "--field-manager=somebody", "-f", "-")
	c.await("to be put back when the other lets go", func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "1" })
}

// testElements has the hook drop elements of a list whose elements are applied as wholes, so that managedFields say the keys alone.
func testElements(t *testing.T, w *world) {
	deployments := kinds()["Deployment"]
	c := newCell(t, w, deployments.resource)
	with := func(names ...string) map[string]any {
		child := deployments.manifest(1)
		if len(names) == 0 {
			return child
		}
		secrets := make([]any, len(names))
		for i, name := range names {
			secrets[i] = map[string]any{"name": name}
		}
		if err := unstructured.SetNestedSlice(child, secrets, "spec", "template", "spec", "imagePullSecrets"); err != nil {
			t.Fatal(err)
		}
		return child
	}
	has := func(want string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool {
			return at(o, []string{"spec", "template", "spec", "imagePullSecrets"}) == want
		}
	}
	c.declare(t, c.applies())
	c.wish(with("a", "b"))
	c.await("to be created", has("[map[name:a] map[name:b]]"))
	c.disturb(`{"spec":{"template":{"spec":{"imagePullSecrets":[{"name":"a"},{"name":"b"},{"name":"theirs"}]}}}}`)
	c.change(with("a"))
	c.await("to lose one element", has("[map[name:a] map[name:theirs]]"))
	c.change(with())
	c.await("to lose all elements but that of another", has("[map[name:theirs]]"))
}

// testLegacy takes over a child that Metacontroller applied with its own strategy server-side-apply.
func testLegacy(t *testing.T, w *world) {
	c := newCell(t, w, fixture.ConfigMaps)
	c.declare(t, c.applies())
	c.wish(configMap(map[string]any{"kept": "1", "dropped": "1"}))
	c.await("to be created", c.isApplied)
	// What another field manager has applied too stays when ours lets go, unless it is taken over.
	c.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"child"},"data":{"kept":"1","dropped":"1"}}`,
		"-n", c.name, "apply", "--server-side", "--field-manager=metacontroller", "-f", "-")
	c.change(configMap(map[string]any{"kept": "1"}))
	last := c.await("to lose the field", func(o *unstructured.Unstructured) bool { return len(data(o)) == 1 })
	for _, entry := range last.GetManagedFields() {
		if entry.Manager == "metacontroller" {
			t.Errorf("the field manager of old still owns %s", entry.FieldsV1)
		}
	}
}

// TestTheFlagDecidesForRulesThatDoNotSay runs a server whose flag asks for server-side apply with one field manager.
func TestTheFlagDecidesForRulesThatDoNotSay(t *testing.T) {
	w := newWorld(t, "--apply-strategy=server-side-apply", "--apply-strategy-ssa-field-manager=acme")
	isAcmes := func(o *unstructured.Unstructured) bool {
		for _, entry := range o.GetManagedFields() {
			if entry.Manager == "acme" && entry.Operation == metav1.ManagedFieldsOperationApply {
				return true
			}
		}
		return false
	}
	t.Run("Composite", func(t *testing.T) {
		c := newCell(t, w, fixture.ConfigMaps)
		c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace})
		c.wish(configMap(map[string]any{"ours": "1"}))
		c.await("to be applied by the manager of the flag", isAcmes)
		c.disturb(`{"data":{"ours":"9"}}`)
		c.await("to be put back", func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "1" })
	})
	t.Run("Decorator", func(t *testing.T) {
		c := newCell(t, w, fixture.ConfigMaps)
		c.decorate()
		c.wish(configMap(map[string]any{"ours": "1"}))
		c.await("to be applied by the manager of the flag", isAcmes)
		c.disturb(`{"data":{"ours":"9"}}`)
		c.await("to be put back", func(o *unstructured.Unstructured) bool { return at(o, []string{"data", "ours"}) == "1" })
	})
}

// decorate makes a DecoratorController whose attachments are what its targets wish for.
func (c *cell) decorate() {
	c.t.Helper()
	c.running = controllers.Decorator(c.t, c.Clients, c.Limit, c.name, v1alpha1.DecoratorControllerSpec{
		Resources: []v1alpha1.DecoratorControllerResourceRule{{
			ResourceRule:  v1alpha1.ResourceRule{APIVersion: "apply.example.com/v1", Resource: "wishes"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{chosen: c.name}},
		}},
		Attachments: []v1alpha1.DecoratorControllerAttachmentRule{{
			ResourceRule:   v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"},
			UpdateStrategy: &v1alpha1.DecoratorControllerAttachmentUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace},
		}},
		Hooks: &v1alpha1.DecoratorControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(c.hook.URL("/decorate"))}}},
	})
}

// A sighting has the states of the child since it was begun.
type sighting struct {
	t      *testing.T
	limit  time.Duration
	events <-chan watch.Event
}

// watch watches the child from now on, its present state included.
func (c *cell) watch() sighting {
	c.t.Helper()
	watching, err := c.Resource(c.resource).Watch(c.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + c.childName})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(watching.Stop)
	return sighting{c.t, c.Limit, watching.ResultChan()}
}

// until goes through the states, giving each to those who look, until one is the last.
func (s sighting) until(last func(*unstructured.Unstructured) bool, look ...func(*unstructured.Unstructured)) {
	s.t.Helper()
	var states []string
	ctx, cancel := context.WithTimeout(s.t.Context(), s.limit)
	defer cancel()
	for {
		select {
		case event := <-s.events:
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				s.t.Fatalf("the watch ended with %+v after %v", event.Object, states)
			}
			for _, l := range look {
				l(o)
			}
			if last(o) {
				return
			}
			states = append(states, fmt.Sprint(event.Type, " ", o.Object["data"]))
		case <-ctx.Done():
			s.t.Fatalf("the child was not seen as awaited, but as %v", states)
		}
	}
}
