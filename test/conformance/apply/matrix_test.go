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

// Package apply tests how children are changed: every update method with both apply strategies, on a real control plane
// (docs/reference/contract.md#s11, docs/reference/contract.md#s13, docs/reference/compatibility.md#d13).
package apply

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// gadget is a child with a value of ours.
func gadget(value int64) map[string]any {
	return map[string]any{
		"apiVersion": "apply.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": "child", "labels": map[string]any{"ours": "yes"}},
		"spec":     map[string]any{"size": value, "parts": []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "count": int64(3)}}},
	}
}

// size is the value of a gadget, which is 1 and becomes 2.
func size(o *unstructured.Unstructured) string { return at(o, []string{"spec", "size"}) }

// at returns what an object has at a path, as text.
func at(o *unstructured.Unstructured, path []string) string {
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || !found {
		return ""
	}
	return fmt.Sprint(value)
}

// written returns the part of an object that changes only when somebody writes it.
func written(o *unstructured.Unstructured) map[string]any {
	content := runtime.DeepCopyJSON(o.Object)
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	return content
}

// methodsAndStrategies runs every update method with both apply strategies on a custom kind: test/integration/children has the built-in ones.
// All cells live through the same restart of the server.
func methodsAndStrategies(t *testing.T, w *world) {
	type settled struct {
		*cell
		child map[string]any
	}
	var all []settled
	methods := []v1alpha1.ChildUpdateMethod{
		v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRollingRecreate, v1alpha1.ChildUpdateRollingInPlace,
		v1alpha1.ChildUpdateOnDelete,
	}
	cells := make(chan settled, 2*len(methods))
	t.Run("live", func(group *testing.T) {
		for _, method := range methods {
			for _, strategy := range []v1alpha1.ChildApplyStrategy{v1alpha1.ChildApplyMerge, v1alpha1.ChildApplyServerSide} {
				group.Run(fmt.Sprintf("%s %s", method, strategy), func(inner *testing.T) {
					inner.Parallel()
					// What the cell made lives until the whole test ends.
					c := newCell(t, w, schema.GroupVersionResource{Group: "apply.example.com", Version: "v1", Resource: "gadgets"})
					c.in(inner)
					c.live(t, method, strategy)
					cells <- settled{c, written(c.child())}
				})
			}
		}
	})
	close(cells)
	for c := range cells {
		all = append(all, c)
	}
	w.Server.Kill()
	w.Server.Restart()
	t.Run("restarted", func(t *testing.T) {
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.in(t)
				c.again("restarted")
				if now := written(c.cell.child()); !reflect.DeepEqual(now, c.child) {
					t.Errorf("a restart wrote the child\nwas %v\nis %v", c.child, now)
				}
			})
		}
	})
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
}

// live takes a child through a change of what is desired and a drift, and looks for needless writes after each.
func (c *cell) live(t *testing.T, method v1alpha1.ChildUpdateMethod, strategy v1alpha1.ChildApplyStrategy) {
	c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: method, Apply: strategy})
	c.wish(gadget(1))
	created := c.await("to be created", func(o *unstructured.Unstructured) bool { return size(o) == "1" })
	serverSide := strategy == v1alpha1.ChildApplyServerSide
	if c.isApplied(created) != serverSide || isRecorded(created) == serverSide {
		c.t.Errorf("applied %v, recorded %v", c.isApplied(created), isRecorded(created))
	}
	c.again("created")
	c.isSame(created, "after the create")

	c.change(gadget(2))
	changed := c.await("to be changed", func(o *unstructured.Unstructured) bool {
		return size(o) == "2" || method == v1alpha1.ChildUpdateOnDelete
	})
	c.isAsMethodSays(created, changed, method)

	// The mode has a default, and nobody of ours wants another.
	c.disturb(`{"metadata":{"labels":{"ours":"theirs"}},"spec":{"size":9,"mode":"Fast"}}`)
	if method == v1alpha1.ChildUpdateOnDelete {
		c.again("disturbed")
		if drifted := c.child(); size(drifted) != "9" || drifted.GetLabels()["ours"] != "theirs" {
			c.t.Errorf("drift was put back: %v", drifted.Object)
		}
		return
	}
	back := c.await("to be put back", func(o *unstructured.Unstructured) bool {
		return size(o) == "2" && o.GetLabels()["ours"] == "yes"
	})
	inPlace := method == v1alpha1.ChildUpdateInPlace || method == v1alpha1.ChildUpdateRollingInPlace
	if inPlace != (back.GetUID() == changed.GetUID()) {
		c.t.Errorf("the UID was %s and is %s", changed.GetUID(), back.GetUID())
	}
	if mode := at(back, []string{"spec", "mode"}); inPlace && mode != "Fast" {
		c.t.Errorf("what is not ours was changed to %q", mode)
	}
	for i := range 3 {
		c.again(fmt.Sprint("put back ", i))
	}
	c.isSame(back, "after the drift was put back")
}

func (c *cell) isAsMethodSays(before, after *unstructured.Unstructured, method v1alpha1.ChildUpdateMethod) {
	c.t.Helper()
	switch method {
	case v1alpha1.ChildUpdateOnDelete:
		if size(after) != "1" {
			c.t.Errorf("OnDelete changed the child to %v", after.Object)
		}
	case v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRollingInPlace:
		if before.GetUID() != after.GetUID() {
			c.t.Error("the child was made anew")
		}
	case v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateRollingRecreate:
		if before.GetUID() == after.GetUID() {
			c.t.Error("the child was not made anew")
		}
	}
}

func (c *cell) isSame(before *unstructured.Unstructured, when string) {
	c.t.Helper()
	if was, is := written(before), written(c.child()); !reflect.DeepEqual(was, is) {
		c.t.Errorf("the child was written %s\nwas %v\nis %v", when, was, is)
	}
}

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
	controllers.Composite(t, c.Clients, c.Limit, c.name, v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule:  v1alpha1.ResourceRule{APIVersion: "apply.example.com/v1", Resource: "wishes"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{chosen: c.name}},
		},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{
			ResourceRule:   v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: c.resource.Resource},
			UpdateStrategy: &strategy,
		}},
		Hooks: &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
			// On a busy machine a hook that is right may take longer than a controller waits by default, and no Warning is wanted.
			URL: new(c.hook.URL(c.path)), Timeout: &metav1.Duration{Duration: c.Limit},
		}}},
	})
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
