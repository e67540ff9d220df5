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

package reconciler_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAParentThatIsHeldBackIsSyncedWhenTheControllerChanges has the hook return another label each time, until the parent is held back.
func TestAParentThatIsHeldBackIsSyncedWhenTheControllerChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := int64(1)
		var label atomic.Value
		s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
			if r.Method != http.MethodPatch {
				return http.StatusOK, `{}`
			}
			version++
			return http.StatusOK, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"p","uid":"uid-p","resourceVersion":"%d","labels":{"n":%q}}}`,
				version, label.Load())
		})})
		s.exist(thing(t, "p", 1, "", ""))
		var syncs atomic.Int64
		c := s.start(&kind{write: func(sync *reconciler.Sync) error {
			n := strconv.FormatInt(syncs.Add(1), 10)
			label.Store(n)
			return sync.WriteParent(t.Context(), parent.Changes{Labels: map[string]*string{"n": &n}})
		}}, nil)
		synctest.Wait() // Each response is taken over, and is the next change.
		if h := c.Health(); h.Differing != 1 {
			t.Fatalf("%d parents do not settle after %d syncs", h.Differing, syncs.Load())
		}
		changed := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{"a": "b"}}}
		before := syncs.Load()
		if err := c.Redefine(t.Context(), definition.OfComposite(changed)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if syncs.Load() == before {
			t.Error("it is not synced at once")
		}
	})
}
