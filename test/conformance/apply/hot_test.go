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
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

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
