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
	"encoding/json"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// record is the annotation of the merge strategy.
	record = "metacontroller.k8s.io/last-applied-configuration"
	// chosen is the label by which a controller selects its parents.
	chosen = "apply.example.com/controller"
)

// wishes are parents that say in their spec which child they want.
var wishes = schema.GroupVersionResource{Group: "apply.example.com", Version: "v1", Resource: "wishes"}

// gadgets are children whose schema sets defaults and says how a list is merged.
const gadgets = `
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

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, cluster.Audit)) }

// TestApply has one server for all that needs no flag.
func TestApply(t *testing.T) {
	w := newWorld(t)
	t.Run("MethodsAndStrategies", func(t *testing.T) { methodsAndStrategies(t, w) })
	t.Run("Ownership", func(t *testing.T) { ownership(t, w) })
	t.Run("Large", func(t *testing.T) { large(t, w) })
}

// world is the environment of all tests, and the hook of their controllers.
type world struct {
	*fixture.Environment
	hook *hooktest.Server
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	e := fixture.SetUp(t, fixture.Options{
		Server: server.Options{Args: args}, Resources: []cluster.CustomResource{{Resource: wishes, Kind: "Wish"}},
	})
	w := &world{Environment: e, hook: hooktest.NewServer(t)}
	e.DefineManifests(t, gadgets)
	w.hook.Handle("/sync", hooktest.Composite(wished))
	w.hook.Handle("/decorate", hooktest.Decorator(func(q *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		child, found, err := unstructured.NestedMap(q.Object.Object, "spec", "child")
		if err != nil || !found {
			return &hook.DecoratorResponse{}, err
		}
		return &hook.DecoratorResponse{Attachments: []*hook.Object{{Object: child}}}, nil
	}))
	return w
}

// wished responds with the child that the parent wants.
func wished(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	child, found, err := unstructured.NestedMap(q.Parent.Object, "spec", "child")
	if err != nil || !found {
		return &hook.CompositeResponse{}, err
	}
	return &hook.CompositeResponse{Children: []*hook.Object{{Object: child}}}, nil
}

// A cell is a controller with one parent and one child, in a namespace of its own.
type cell struct {
	*world
	*cluster.Objects
	t         *testing.T
	name      string
	resource  schema.GroupVersionResource
	childName string
	// path is where the hook is.
	path string
	// running is the controller from declare or decorate on.
	running *controllers.Controller
}

func newCell(t *testing.T, w *world, resource schema.GroupVersionResource) *cell {
	t.Helper()
	c := &cell{world: w, name: w.Namespace(t), resource: resource, childName: "child", path: "/sync"}
	c.in(t)
	return c
}

// in has another test use the cell from now on.
func (c *cell) in(t *testing.T) {
	c.t, c.Objects = t, c.Clients.Objects(t, c.name, c.Limit)
}

// declare makes the controller, and waits until it runs. It lives until the test t ends.
func (c *cell) declare(t *testing.T, strategy v1alpha1.CompositeControllerChildUpdateStrategy) {
	t.Helper()
	apiVersion := c.resource.GroupVersion().String()
	c.running = controllers.Composite(t, c.Clients, c.Limit, c.name, v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule:  v1alpha1.ResourceRule{APIVersion: "apply.example.com/v1", Resource: "wishes"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{chosen: c.name}},
		},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{
			ResourceRule:   v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: c.resource.Resource},
			UpdateStrategy: &strategy,
		}},
		Hooks: &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(c.hook.URL(c.path))}}},
	})
}

// use changes the apply strategy of the controller.
func (c *cell) use(strategy v1alpha1.ChildApplyStrategy) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/childResources/0/updateStrategy/apply","value":%q}]`, strategy)
	_, err := c.Versioned.MetacontrollerV1alpha1().CompositeControllers().Patch(c.t.Context(), c.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.running.AwaitReady()
}

// wish makes the parent, with the child that it wants.
func (c *cell) wish(child map[string]any) {
	c.t.Helper()
	c.Create(wishes, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apply.example.com/v1", "kind": "Wish",
		"metadata": map[string]any{"name": "parent", "labels": map[string]any{chosen: c.name}},
		"spec":     map[string]any{"child": child, "nonce": "0"},
	}})
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
	patched, err := c.Resource(wishes).Patch(c.t.Context(), "parent", kind, patch, metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.Await(wishes, "parent", "to be synced", func(parent *unstructured.Unstructured) bool {
		if parent == nil {
			return false
		}
		// The status is written after the children (docs/reference/contract.md#s6).
		seen, _, _ := unstructured.NestedInt64(parent.Object, "status", "observedGeneration")
		return seen >= patched.GetGeneration()
	})
}

// await waits until the child is there and as wanted, and returns it.
func (c *cell) await(what string, want func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	c.t.Helper()
	return c.Await(c.resource, c.childName, what, func(o *unstructured.Unstructured) bool { return o != nil && want(o) })
}

func (c *cell) child() *unstructured.Unstructured {
	c.t.Helper()
	child := c.Get(c.resource, c.childName)
	if child == nil {
		c.t.Fatal("the child is not there")
	}
	return child
}

// disturb has somebody else patch the child.
func (c *cell) disturb(patch string) {
	c.t.Helper()
	_, err := c.Resource(c.resource).Patch(c.t.Context(), c.childName, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		c.t.Fatal(err)
	}
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
