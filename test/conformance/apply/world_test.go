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
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// limit is more than anything here takes on a busy machine.
	limit = time.Minute
	// record is the annotation of the merge strategy.
	record = "metacontroller.k8s.io/last-applied-configuration"
	// chosen is the label by which a controller selects its parents.
	chosen = "apply.example.com/controller"
)

var (
	wishes = schema.GroupVersionResource{Group: "apply.example.com", Version: "v1", Resource: "wishes"}
	events = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// crds are a parent that says in its spec which child it wants, and a kind of children.
const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wishes.apply.example.com}
spec:
  group: apply.example.com
  names: {kind: Wish, plural: wishes, singular: wish}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.apply.example.com}
spec:
  group: apply.example.com
  names: {kind: Gadget, plural: gadgets, singular: gadget}
  scope: Namespaced
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
              size: {type: integer}
              mode: {type: string, default: Slow}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, count: {type: integer, default: 1}}
`

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// world is the server, the hook and the clients of all tests.
type world struct {
	*cluster.Cluster
	server  *server.Server
	dynamic dynamic.Interface
	own     versioned.Interface
	hook    *hooktest.Server
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	c := cluster.Shared(t)
	w := &world{Cluster: c, server: server.Start(t, c, server.Options{Args: args}), hook: hooktest.NewServer(t)}
	config := c.Config(t)
	var err error
	if w.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if w.own, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	c.KubectlInput(t, crds, "apply", "-f", "-")
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/wishes.apply.example.com", "crd/gadgets.apply.example.com")
	w.hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		child, found, err := unstructured.NestedMap(q.Parent.Object, "spec", "child")
		if err != nil || !found {
			return &hook.CompositeResponse{}, err
		}
		return &hook.CompositeResponse{Children: []*hook.Object{{Object: child}}}, nil
	}))
	w.hook.Handle("/decorate", hooktest.Decorator(func(q *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		child, found, err := unstructured.NestedMap(q.Object.Object, "spec", "child")
		if err != nil || !found {
			return &hook.DecoratorResponse{}, err
		}
		return &hook.DecoratorResponse{Attachments: []*hook.Object{{Object: child}}}, nil
	}))
	return w
}

// A cell is a controller with one parent and one child, in a namespace of its own.
type cell struct {
	*world
	t         *testing.T
	name      string
	resource  schema.GroupVersionResource
	childName string
}

func newCell(t *testing.T, w *world, resource schema.GroupVersionResource) *cell {
	t.Helper()
	return &cell{world: w, t: t, name: w.Namespace(t), resource: resource, childName: "child"}
}

// declare makes the controller, and waits until it runs.
func (c *cell) declare(strategy v1alpha1.CompositeControllerChildUpdateStrategy) {
	c.t.Helper()
	apiVersion := c.resource.GroupVersion().String()
	controller := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule:  v1alpha1.ResourceRule{APIVersion: "apply.example.com/v1", Resource: "wishes"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{chosen: c.name}},
		},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{
			ResourceRule:   v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: c.resource.Resource},
			UpdateStrategy: &strategy,
		}},
		Hooks: &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(c.hook.URL("/sync"))}}},
	}}
	controllers := c.own.MetacontrollerV1alpha1().CompositeControllers()
	if _, err := controllers.Create(c.t.Context(), controller, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), limit)
		defer cancel()
		if err := controllers.Delete(ctx, c.name, metav1.DeleteOptions{}); err != nil {
			c.t.Errorf("deleting the controller: %v", err)
		}
	})
	c.awaitReady()
}

// use changes the apply strategy of the controller.
func (c *cell) use(strategy v1alpha1.ChildApplyStrategy) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/childResources/0/updateStrategy/apply","value":%q}]`, strategy)
	_, err := c.own.MetacontrollerV1alpha1().CompositeControllers().Patch(c.t.Context(), c.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.awaitReady()
}

func (c *cell) awaitReady() {
	c.t.Helper()
	cluster.Eventually(c.t, limit, "the controller to run", func(ctx context.Context) (bool, string) {
		controller, err := c.own.MetacontrollerV1alpha1().CompositeControllers().Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range controller.Status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && condition.Status == metav1.ConditionTrue &&
				condition.ObservedGeneration == controller.Generation {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", controller.Status)
	})
}

// wish makes the parent, with the child that it wants.
func (c *cell) wish(child map[string]any) {
	c.t.Helper()
	parent := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apply.example.com/v1", "kind": "Wish",
		"metadata": map[string]any{"name": "parent", "labels": map[string]any{chosen: c.name}},
		"spec":     map[string]any{"child": child, "nonce": "0"},
	}}
	if _, err := c.dynamic.Resource(wishes).Namespace(c.name).Create(c.t.Context(), parent, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// change has the parent want another child, and waits until the controller has dealt with it.
func (c *cell) change(child map[string]any) {
	c.t.Helper()
	spec, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/child", "value": child}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.patchParent(types.JSONPatchType, spec)
}

// again has the controller sync the parent once more, and waits until it has.
func (c *cell) again(nonce string) {
	c.t.Helper()
	c.patchParent(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"nonce":%q}}`, nonce))
}

func (c *cell) patchParent(kind types.PatchType, patch []byte) {
	c.t.Helper()
	parents := c.dynamic.Resource(wishes).Namespace(c.name)
	patched, err := parents.Patch(c.t.Context(), "parent", kind, patch, metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	cluster.Eventually(c.t, limit, "the parent to be synced", func(ctx context.Context) (bool, string) {
		parent, err := parents.Get(ctx, "parent", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		// The status is written after the children (contract §6).
		seen, _, _ := unstructured.NestedInt64(parent.Object, "status", "observedGeneration")
		return seen >= patched.GetGeneration(), fmt.Sprintf("observed generation %d of %d", seen, patched.GetGeneration())
	})
}

// await waits until the child is as wanted, and returns it.
func (c *cell) await(what string, want func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	c.t.Helper()
	var child *unstructured.Unstructured
	cluster.Eventually(c.t, limit, "the child "+what, func(ctx context.Context) (bool, string) {
		var err error
		child, err = c.dynamic.Resource(c.resource).Namespace(c.name).Get(ctx, c.childName, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		shown, err := json.Marshal(child.Object)
		if err != nil {
			return false, err.Error()
		}
		return want(child), string(shown)
	})
	return child
}

func (c *cell) child() *unstructured.Unstructured {
	c.t.Helper()
	child, err := c.dynamic.Resource(c.resource).Namespace(c.name).Get(c.t.Context(), c.childName, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return child
}

// disturb has somebody else patch the child.
func (c *cell) disturb(patch string) {
	c.t.Helper()
	_, err := c.dynamic.Resource(c.resource).Namespace(c.name).Patch(c.t.Context(), c.childName, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		c.t.Fatal(err)
	}
}

// awaitEvent waits for an event of the parent.
func (c *cell) awaitEvent(reason, text string) {
	c.t.Helper()
	cluster.Eventually(c.t, limit, fmt.Sprintf("an event %s %q", reason, text), func(ctx context.Context) (bool, string) {
		list, err := c.dynamic.Resource(events).Namespace(c.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=parent"})
		if err != nil {
			return false, err.Error()
		}
		var seen []string
		for i := range list.Items {
			message, _, _ := unstructured.NestedString(list.Items[i].Object, "message")
			if list.Items[i].Object["reason"] == reason && strings.Contains(message, text) {
				return true, ""
			}
			seen = append(seen, message)
		}
		return false, strings.Join(seen, "\n")
	})
}

// manager is the field manager of the cell's controller.
func (c *cell) manager() string { return "metacontroller/compositecontroller/" + c.name }

// isApplied reports whether the field manager of the controller has applied an object.
func (c *cell) isApplied(o *unstructured.Unstructured) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == c.manager() && entry.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

func isRecorded(o *unstructured.Unstructured) bool { return o.GetAnnotations()[record] != "" }
