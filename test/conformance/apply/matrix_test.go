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
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// kind is a kind of children: what is desired first and then, and how somebody else changes it.
type kind struct {
	resource schema.GroupVersionResource
	// manifest has a value of ours, which is 1 and becomes 2.
	manifest func(value int64) map[string]any
	// value is where it is.
	value []string
	// drift sets the value to 9, our label to theirs, and a field that nobody of ours wants.
	drift string
	// theirs is where that field is.
	theirs []string
}

func kinds() map[string]kind {
	labeled := func(apiVersion, kind string, rest map[string]any) map[string]any {
		o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "child", "labels": map[string]any{"ours": "yes"}}}
		maps.Copy(o, rest)
		return o
	}
	const label = `"metadata":{"labels":{"ours":"theirs"}}`
	return map[string]kind{
		"ConfigMap": {
			schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			func(v int64) map[string]any {
				return labeled("v1", "ConfigMap", map[string]any{"data": map[string]any{"ours": fmt.Sprint(v)}})
			},
			[]string{"data", "ours"},
			`{` + label + `,"data":{"ours":"9","theirs":"x"}}`,
			[]string{"data", "theirs"},
		},
		"Deployment": {
			schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			func(v int64) map[string]any {
				return labeled("apps/v1", "Deployment", map[string]any{"spec": map[string]any{
					"replicas": int64(0), "minReadySeconds": v, "selector": map[string]any{"matchLabels": map[string]any{"app": "x"}},
					"template": map[string]any{
						"metadata": map[string]any{"labels": map[string]any{"app": "x"}},
						"spec": map[string]any{"containers": []any{map[string]any{
							"name": "main", "image": "busybox", "ports": []any{map[string]any{"containerPort": int64(80)}},
							"resources": map[string]any{"requests": map[string]any{"cpu": "1000m"}},
						}}},
					},
				}})
			},
			[]string{"spec", "minReadySeconds"},
			`{` + label + `,"spec":{"minReadySeconds":9,"progressDeadlineSeconds":77}}`,
			[]string{"spec", "progressDeadlineSeconds"},
		},
		"Service": {
			schema.GroupVersionResource{Version: "v1", Resource: "services"},
			func(v int64) map[string]any {
				return labeled("v1", "Service", map[string]any{"spec": map[string]any{
					"selector": map[string]any{"app": fmt.Sprint(v)},
					"ports": []any{
						map[string]any{"name": "tcp", "port": int64(53)}, map[string]any{"name": "udp", "port": int64(53), "protocol": "UDP"},
					},
				}})
			},
			[]string{"spec", "selector", "app"},
			`{` + label + `,"spec":{"selector":{"app":"9"},"sessionAffinity":"ClientIP"}}`,
			[]string{"spec", "sessionAffinity"},
		},
		"Gadget": {
			schema.GroupVersionResource{Group: "apply.example.com", Version: "v1", Resource: "gadgets"},
			func(v int64) map[string]any {
				return labeled("apply.example.com/v1", "Gadget", map[string]any{"spec": map[string]any{
					"size": v, "parts": []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "count": int64(3)}},
				}})
			},
			[]string{"spec", "size"},
			`{` + label + `,"spec":{"size":9,"mode":"Fast"}}`,
			[]string{"spec", "mode"},
		},
	}
}

// at returns what an object has at a path, as text.
func at(o *unstructured.Unstructured, path []string) string {
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || !found {
		return ""
	}
	return fmt.Sprint(value)
}

// written returns the part of an object that changes only when somebody writes it: controllers write statuses.
func written(o *unstructured.Unstructured) map[string]any {
	content := runtime.DeepCopyJSON(o.Object)
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	unstructured.RemoveNestedField(content, "metadata", "annotations", "deployment.kubernetes.io/revision")
	if annotations, _, _ := unstructured.NestedMap(content, "metadata", "annotations"); len(annotations) == 0 {
		unstructured.RemoveNestedField(content, "metadata", "annotations")
	}
	if o.GetKind() == "Deployment" {
		unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	}
	return content
}

// methodsAndStrategies runs every update method with both apply strategies, and those that compare children otherwise on kinds of four sorts.
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
	cells := make(chan settled, 2*len(methods)*len(kinds()))
	t.Run("live", func(group *testing.T) {
		for name, k := range kinds() {
			of := methods
			if name != "Gadget" {
				of = methods[:2] // When a child is compared differs between the others, and not with what.
			}
			for _, method := range of {
				for _, strategy := range []v1alpha1.ChildApplyStrategy{v1alpha1.ChildApplyMerge, v1alpha1.ChildApplyServerSide} {
					group.Run(fmt.Sprintf("%s %s %s", name, method, strategy), func(inner *testing.T) {
						inner.Parallel()
						// What the cell made lives until the whole test ends.
						c := newCell(t, w, k.resource)
						c.in(inner)
						c.live(t, k, method, strategy)
						cells <- settled{c, written(c.child())}
					})
				}
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
			t.Run(c.name+" "+c.resource.Resource, func(t *testing.T) {
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

// live takes a child through a change of what is desired and a drift, and looks for needless writes after each.
func (c *cell) live(t *testing.T, k kind, method v1alpha1.ChildUpdateMethod, strategy v1alpha1.ChildApplyStrategy) {
	c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: method, Apply: strategy})
	c.wish(k.manifest(1))
	created := c.await("to be created", func(o *unstructured.Unstructured) bool { return at(o, k.value) == "1" })
	serverSide := strategy == v1alpha1.ChildApplyServerSide
	if c.isApplied(created) != serverSide || isRecorded(created) == serverSide {
		c.t.Errorf("applied %v, recorded %v", c.isApplied(created), isRecorded(created))
	}
	c.again("created")
	c.isSame(created, "after the create")

	c.change(k.manifest(2))
	changed := c.await("to be changed", func(o *unstructured.Unstructured) bool {
		return at(o, k.value) == "2" || method == v1alpha1.ChildUpdateOnDelete
	})
	c.isAsMethodSays(created, changed, method, k)

	c.disturb(k.drift)
	if method == v1alpha1.ChildUpdateOnDelete {
		c.again("disturbed")
		if drifted := c.child(); at(drifted, k.value) != "9" || drifted.GetLabels()["ours"] != "theirs" {
			c.t.Errorf("drift was put back: %v", drifted.Object)
		}
		return
	}
	back := c.await("to be put back", func(o *unstructured.Unstructured) bool {
		return at(o, k.value) == "2" && o.GetLabels()["ours"] == "yes"
	})
	inPlace := method == v1alpha1.ChildUpdateInPlace || method == v1alpha1.ChildUpdateRollingInPlace
	if inPlace != (back.GetUID() == changed.GetUID()) {
		c.t.Errorf("the UID was %s and is %s", changed.GetUID(), back.GetUID())
	}
	if inPlace && !slices.Contains([]string{"x", "77", "ClientIP", "Fast"}, at(back, k.theirs)) {
		c.t.Errorf("what is not ours was changed to %q", at(back, k.theirs))
	}
	for i := range 3 {
		c.again(fmt.Sprint("put back ", i))
	}
	c.isSame(back, "after the drift was put back")
}

func (c *cell) isAsMethodSays(before, after *unstructured.Unstructured, method v1alpha1.ChildUpdateMethod, k kind) {
	c.t.Helper()
	switch method {
	case v1alpha1.ChildUpdateOnDelete:
		if at(after, k.value) != "1" {
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
