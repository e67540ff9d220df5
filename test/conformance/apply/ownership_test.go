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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func configMap(data map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "child"}, "data": data}
}

// ownership is about fields, and objects, that belong to others.
func ownership(t *testing.T, w *world) {
	for name, run := range map[string]func(*testing.T, *world){
		"AChildThatOthersWriteAllTheTimeIsMerged": testHot,
		"AStrangerOfTheSameNameIsNotTakenOver":    testStranger,
		"WithoutForceAConflictIsTold":             testConflict,
		"AnElementThatIsAppliedAsAWholeGoes":      testElements,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, w)
		})
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
	c := newCell(t, w, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	with := func(names ...string) map[string]any {
		pod := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox"}}}
		var secrets []any
		for _, name := range names {
			secrets = append(secrets, map[string]any{"name": name})
		}
		if len(secrets) > 0 {
			pod["imagePullSecrets"] = secrets
		}
		labels := map[string]any{"app": "x"}
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "child"}, "spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
		}}
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
	controllers.Decorator(c.t, c.Clients, c.Limit, c.name, v1alpha1.DecoratorControllerSpec{
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

// testHot has somebody else write a child each time that the hook is called for it, so that it never is as it was observed. It is updated all the same,
// grows over the limit of annotations and shrinks below it, and no write of the other one is lost.
func testHot(t *testing.T, w *world) {
	c := newCell(t, w, fixture.ConfigMaps)
	c.path = "/hot/" + c.name
	writes := 0
	w.hook.Handle(c.path, hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		if len(q.Children["ConfigMap.v1"]) == 0 || t.Context().Err() != nil {
			return wished(q)
		}
		if err := c.count(t.Context(), writes); err == nil {
			writes++
		} else if t.Context().Err() == nil {
			t.Errorf("the write %d of somebody else: %v", writes+1, err)
		}
		return wished(q)
	}))
	c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace})
	c.wish(configMap(filled(1, "dropped")))
	created := c.isLarge(false, 1, "f", "dropped")
	for _, step := range []struct {
		kib  int
		keys []string
	}{{2, []string{"a"}}, {300, []string{"b"}}, {1, nil}} {
		c.change(configMap(filled(step.kib, step.keys...)))
		if o := c.isLarge(step.kib > 256, step.kib, append([]string{"f"}, step.keys...)...); o.GetUID() != created.GetUID() {
			t.Errorf("with %d KiB it is another object", step.kib)
		}
	}
	for _, e := range c.Events("parent") {
		if e.Type == "Warning" {
			t.Errorf("%s: %.300s", e.Reason, e.Message)
		}
	}
}

// count has somebody else count one further than n in an annotation of the child. It fails if the write of n was lost.
func (c *cell) count(ctx context.Context, n int) error {
	const path = "/metadata/annotations/beats"
	patch := fmt.Appendf(nil, `[{"op":"test","path":%q,"value":"%d"},{"op":"replace","path":%[1]q,"value":"%[3]d"}]`, path, n, n+1)
	if n == 0 {
		patch = fmt.Appendf(nil, `[{"op":"add","path":%q,"value":"1"}]`, path)
	}
	_, err := c.Resource(fixture.ConfigMaps).Patch(ctx, c.childName, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "somebody"})
	return err
}
