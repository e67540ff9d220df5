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
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const reasonApplied = "ChildAppliedServerSide"

// filled returns data of so many KiB, with further keys.
func filled(kib int, keys ...string) map[string]any {
	data := map[string]any{"f": strings.Repeat(strings.Repeat("x", 1023)+"\n", kib)}
	for _, key := range keys {
		data[key] = "1"
	}
	return data
}

// large is about children whose record would be too long for an annotation.
func large(t *testing.T, w *world) {
	merges := func(method v1alpha1.ChildUpdateMethod) v1alpha1.CompositeControllerChildUpdateStrategy {
		return v1alpha1.CompositeControllerChildUpdateStrategy{Method: method}
	}
	t.Run("Created", func(t *testing.T) {
		t.Parallel()
		c := newCell(t, w, fixture.ConfigMaps)
		c.declare(t, merges(v1alpha1.ChildUpdateInPlace))
		c.wish(configMap(filled(300, "a")))
		c.isLarge(true, 300, "f", "a")
		c.again("settled")
		c.disturb(`{"data":{"a":"edited","theirs":"1"}}`)
		c.await("to be put back", func(o *unstructured.Unstructured) bool { return data(o)["a"] == "1" })
		settled := c.isLarge(true, 300, "f", "a", "theirs")
		c.again("settled again")
		c.isSame(settled, "when it was put back")
	})
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRollingRecreate} {
		t.Run("GrowsAndShrinks/"+string(method), func(t *testing.T) {
			t.Parallel()
			testGrowing(t, w, merges(method))
		})
	}
	t.Run("TheAnnotationsOfOthersCount", func(t *testing.T) {
		t.Parallel()
		testOthersAnnotations(t, w, merges(v1alpha1.ChildUpdateRecreate))
	})
	t.Run("OnDeleteLeavesIt", func(t *testing.T) {
		t.Parallel()
		c := newCell(t, w, fixture.ConfigMaps)
		c.declare(t, merges(v1alpha1.ChildUpdateOnDelete))
		c.wish(configMap(filled(1)))
		created := c.isLarge(false, 1, "f")
		c.change(configMap(filled(300)))
		c.AwaitEvent("parent", "Warning", "ChildNotUpdated", "ConfigMap "+c.name+"/child")
		c.isSame(created, "which OnDelete leaves")
		c.Delete(fixture.ConfigMaps, "child")
		c.isLarge(true, 300, "f")
	})
	t.Run("Attachment", func(t *testing.T) {
		t.Parallel()
		c := newCell(t, w, fixture.ConfigMaps)
		c.decorate()
		c.wish(configMap(filled(300, "a")))
		c.await("to be created", func(o *unstructured.Unstructured) bool { return !isRecorded(o) && len(data(o)) == 2 })
	})
}

// isLarge waits until the child has the size and keys, and is applied or merged.
func (c *cell) isLarge(large bool, kib int, keys ...string) *unstructured.Unstructured {
	c.t.Helper()
	return c.await(fmt.Sprintf("to have %d KiB and %v, applied %t", kib, keys, large), func(o *unstructured.Unstructured) bool {
		values := data(o)
		for _, key := range keys {
			if values[key] == "" {
				return false
			}
		}
		return len(values["f"]) == kib<<10 && len(values) == len(keys) && isRecorded(o) != large && (!large || c.isApplied(o))
	})
}

// testGrowing has a child pass the limit in both directions, with keys that come and go.
func testGrowing(t *testing.T, w *world, strategy v1alpha1.CompositeControllerChildUpdateStrategy) {
	recreates := strategy.Method == v1alpha1.ChildUpdateRecreate || strategy.Method == v1alpha1.ChildUpdateRollingRecreate
	c := newCell(t, w, fixture.ConfigMaps)
	c.declare(t, strategy)
	c.wish(configMap(filled(1, "a", "b", "c")))
	created := c.isLarge(false, 1, "f", "a", "b", "c")
	for _, step := range []struct {
		kib  int
		keys []string
	}{
		{300, []string{"a", "b", "d"}}, // c goes as the child grows, d comes.
		{600, []string{"a", "b"}},
		{1000, []string{"a", "b", "e"}},
		{1, []string{"a", "e"}}, // b goes as it shrinks.
		{2, []string{"a"}},      // What was applied before goes as it is merged.
		{300, nil},
		{1, nil},
	} {
		c.change(configMap(filled(step.kib, step.keys...)))
		changed := c.isLarge(step.kib > 256, step.kib, append([]string{"f"}, step.keys...)...)
		if same := changed.GetUID() == created.GetUID(); same == recreates {
			t.Errorf("with %d KiB it is the same object: %t", step.kib, same)
		}
		// Moving the fields and applying are two writes of one sync.
		c.again(fmt.Sprint("settled with ", step.kib, step.keys))
		settled := c.child()
		c.again(fmt.Sprint("settled again with ", step.kib, step.keys))
		c.isSame(settled, fmt.Sprintf("with %d KiB", step.kib))
		created = settled
	}
	c.AwaitEvent("parent", "Normal", reasonApplied, "ConfigMap "+c.name+"/child")
	events := c.Events("parent")
	if n := len(slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool { return e.Reason != reasonApplied })); n != 1 {
		t.Errorf("%d events say that it is applied", n)
	}
	for _, e := range events {
		if e.Type == corev1.EventTypeWarning {
			t.Errorf("%s: %.300s", e.Reason, e.Message)
		}
	}
}

// testOthersAnnotations has somebody else annotate a child so that our record has no room any more. No child is recreated for that.
func testOthersAnnotations(t *testing.T, w *world, strategy v1alpha1.CompositeControllerChildUpdateStrategy) {
	c := newCell(t, w, fixture.ConfigMaps)
	c.declare(t, strategy)
	c.wish(configMap(filled(120, "a")))
	created := c.isLarge(false, 120, "f", "a")
	annotate := func(value string) { c.disturb(`{"metadata":{"annotations":{"theirs":` + value + `}}}`) }
	annotate(fmt.Sprintf("%q", strings.Repeat("x", 133<<10)))
	moved := c.isLarge(true, 120, "f", "a")
	annotate("null")
	back := c.isLarge(false, 120, "f", "a")
	if moved.GetUID() != created.GetUID() || back.GetUID() != created.GetUID() {
		t.Error("it was recreated")
	}
}
