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

package manager

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// held are the informers that a standby holds, by the names of parents' resources.
type held struct {
	mu      sync.Mutex
	open    []string
	refused error
	changed []func()
}

func (h *held) hold(_ context.Context, d reconciler.Definition) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused != nil {
		return nil, h.refused
	}
	resource := d.Parents[0].Resource
	h.open = append(h.open, resource)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.Index(h.open, resource)
		h.open = slices.Delete(h.open, i, i+1)
	}, nil
}

func (h *held) subscribe(changed func()) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = append(h.changed, changed)
	return func() {}
}

// rediscover has other kinds be served.
func (h *held) rediscover() {
	h.mu.Lock()
	all := slices.Clone(h.changed)
	h.mu.Unlock()
	for _, changed := range all {
		changed()
	}
}

func (h *held) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = err
}

func (h *held) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := slices.Sorted(slices.Values(h.open)); !slices.Equal(got, want) {
		t.Errorf("%s: %q are held, not %q", when, got, want)
	}
}

func parentsOf(name, resource string) reconciler.Definition {
	return reconciler.OfComposite(&v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1alpha1.CompositeControllerSpec{ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: resource},
		}},
	})
}

func TestAStandbyHoldsWhatControllersNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		s := newStandby(h.hold, h.subscribe)
		ctx, end := context.WithCancel(t.Context())
		s.put(ctx, parentsOf("a", "things"))
		s.put(ctx, parentsOf("b", "others"))
		h.expect(t, "at first", "others", "things")
		s.put(ctx, parentsOf("a", "things"))
		h.expect(t, "after a change of the object, not of its spec", "others", "things")
		s.put(ctx, parentsOf("a", "more"))
		h.expect(t, "after a change of the spec", "more", "others")
		s.remove(identityOf(parentsOf("b", "others")))
		h.expect(t, "after a deletion", "more")
		h.rediscover()
		h.expect(t, "after other kinds are served", "more")
		end()
		s.wait()
		h.expect(t, "at the end")
		s.put(ctx, parentsOf("c", "things"))
		h.expect(t, "after the end")
	})
}

func TestAStandbyTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{refused: errors.New("not served")}
		s := newStandby(h.hold, h.subscribe)
		ctx, end := context.WithCancel(t.Context())
		s.put(ctx, parentsOf("a", "things"))
		h.expect(t, "while the kind is not served")
		h.refuse(nil)
		h.rediscover()
		h.expect(t, "when it is", "things")
		h.refuse(errors.New("not served"))
		h.rediscover()
		h.expect(t, "when it is not known any more", "things")
		s.remove(identityOf(parentsOf("a", "things")))
		h.refuse(errors.New("unreachable"))
		s.put(ctx, parentsOf("a", "things"))
		h.expect(t, "while the cluster is away")
		h.refuse(nil)
		time.Sleep(standbyRetry) //nolint:forbidigo // It is the time of a bubble.
		h.expect(t, "a moment after it is back", "things")
		end()
		s.wait()
		h.expect(t, "at the end")
	})
}
