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

package composite

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func testStatus(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Respond(func(q *fixture.Call) (*fixture.Reply, error) {
		seen, _, _ := unstructured.NestedString(q.Parent.Object, "status", "phase")
		phase := map[string]string{"": "first", "first": "second", "second": "second"}[seen]
		return &fixture.Reply{Status: map[string]any{"phase": phase, "observedGeneration": int64(99)}}, nil
	})
	st.run(nil)
	st.Parent("p", map[string]any{})
	done := st.Await(fixture.Things, "p", "to have the second status", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "status", "phase") == "second"
	})
	if n, _, _ := unstructured.NestedInt64(done.Object, "status", "observedGeneration"); n != done.GetGeneration() {
		t.Errorf("observedGeneration is %d, want the parent's generation %d", n, done.GetGeneration())
	}
	calls := st.settled()
	if calls > 3 {
		t.Errorf("the hook was called %d times for two changes of status, want at most 3", calls)
	}
	before := st.Get(fixture.Things, "p").GetResourceVersion()
	// What is not in the response goes: the status is replaced as a whole.
	st.Patch(fixture.Things, "p", `{"status":{"foreign":"1"}}`, "status")
	after := st.Await(fixture.Things, "p", "to lose a foreign status field", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "status", "foreign") == "" && o.GetResourceVersion() != before
	})
	st.settled()
	if now := st.Get(fixture.Things, "p").GetResourceVersion(); now != after.GetResourceVersion() {
		t.Errorf("the status was written again although it is the same: %s, then %s", after.GetResourceVersion(), now)
	}
}

func testResync(t *testing.T, s *fixture.Environment) {
	t.Run("ResyncAfterSecondsMayBeAFraction", func(t *testing.T) {
		st := newStage(t, s)
		st.script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
			return &fixture.Reply{ResyncAfterSeconds: 0.2}, nil
		})
		st.run(nil)
		st.Parent("p", map[string]any{})
		st.awaitCalls(5)
	})
	t.Run("ResyncPeriodSeconds", func(t *testing.T) {
		st := newStage(t, s)
		st.script.Want()
		st.run(func(spec *v1alpha1.CompositeControllerSpec) { spec.ResyncPeriodSeconds = ptr.To[int32](0) })
		st.Parent("p", map[string]any{})
		st.awaitCalls(4)
	})
}

func (s *stage) awaitCalls(want int) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, fmt.Sprintf("%d calls of the hook", want), func(context.Context) (bool, string) {
		n := s.script.All()
		return n >= want, strconv.Itoa(n)
	})
}

func testIgnoreStatus(t *testing.T, s *fixture.Environment) {
	for _, ignore := range []bool{false, true} {
		t.Run(strconv.FormatBool(ignore), func(t *testing.T) {
			st := newStage(t, s)
			st.script.Want()
			st.run(func(spec *v1alpha1.CompositeControllerSpec) {
				spec.ParentResource.IgnoreStatusChanges = new(ignore)
				spec.ChildResources = nil
			})
			st.Parent("p", map[string]any{})
			st.awaitCalls(1)
			before := st.settled()
			st.Patch(fixture.Things, "p", `{"metadata":{"finalizers":["conformance.example.com/x"]}}`)
			t.Cleanup(func() {
				_, err := s.TryKubectl(context.WithoutCancel(t.Context()), "", "-n", st.Namespace, "patch", "thing", "p", "--type=merge",
					"-p", `{"metadata":{"finalizers":[]}}`)
				if err != nil {
					t.Errorf("taking the finalizer off: %v", err)
				}
			})
			if !ignore {
				st.awaitCalls(before + 1)
			} else if after := st.settled(); after != before {
				t.Errorf("a finalizer led to %d calls of the hook", after-before)
			}
			before = st.settled()
			st.Patch(fixture.Things, "p", `{"metadata":{"annotations":{"a":"1"}}}`)
			st.awaitCalls(before + 1)
		})
	}
}

func testRetryAfter(t *testing.T, s *fixture.Environment) {
	for name, header := range map[string]func() string{
		"Seconds": func() string { return "1" },
		"Date":    func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, s)
			var first, second atomic.Int64
			st.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if first.CompareAndSwap(0, time.Now().UnixMilli()) {
					hooktest.RetryLater(http.StatusTooManyRequests, header()).ServeHTTP(w, r)
					return
				}
				second.CompareAndSwap(0, time.Now().UnixMilli())
				hooktest.JSON(map[string]any{"children": []any{}}).ServeHTTP(w, r)
			}))
			st.run(nil)
			st.Parent("p", map[string]any{})
			cluster.Eventually(t, limit, "the second call", func(context.Context) (bool, string) { return second.Load() > 0, "" })
			if waited := second.Load() - first.Load(); waited < 900 {
				t.Errorf("the hook was called again after %d ms; it asked for a second at least", waited)
			}
		})
	}
}
