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
	"errors"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testHot has somebody else write a child without a pause, so that it is never as it was observed. It is updated all the same, grows over the limit of
// annotations and shrinks below it, and no write of the other one is lost.
func testHot(t *testing.T, w *world) {
	c := newCell(t, w, fixture.ConfigMaps)
	c.declare(t, v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace})
	c.wish(configMap(filled(1, "dropped")))
	created := c.isLarge(false, 1, "f", "dropped")

	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writes := 0
	writing.Go(func() {
		for ctx.Err() == nil {
			// As somebody who reads, changes and writes: a write over his own would be lost.
			patch := fmt.Appendf(nil, `[{"op":"test","path":"/metadata/annotations/beats","value":"%d"},{"op":"replace","path":"/metadata/annotations/beats","value":"%d"}]`, writes, writes+1)
			if writes == 0 {
				patch = []byte(`[{"op":"add","path":"/metadata/annotations/beats","value":"1"}]`)
			}
			_, err := c.Resource(fixture.ConfigMaps).Patch(ctx, "child", types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "somebody"})
			switch {
			case errors.Is(err, context.Canceled):
				return
			case err != nil:
				t.Errorf("the write %d of the other one: %v", writes+1, err)
				return
			}
			writes++
		}
	})
	defer writing.Wait()
	defer stop()
	c.await("to be written by somebody else", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["beats"] != "" })

	for _, step := range []struct {
		kib  int
		keys []string
	}{{2, []string{"f", "a"}}, {300, []string{"f", "b"}}, {1, []string{"f"}}} {
		data := filled(step.kib, step.keys[1:]...)
		c.change(configMap(data))
		o := c.isLarge(step.kib > 256, step.kib, step.keys...)
		if o.GetUID() != created.GetUID() || o.GetAnnotations()["beats"] == "" {
			t.Errorf("with %d KiB it has the annotations %v", step.kib, len(o.GetAnnotations()))
		}
	}
	if writes == 0 {
		t.Error("nobody else wrote: the test shows nothing")
	}
}
