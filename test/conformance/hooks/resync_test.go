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

package hooks

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testResync is about docs/reference/contract.md#s5.3, docs/reference/contract.md#s6 step 6.
func testResync(t *testing.T, s *shared, kind fixture.Kind) {
	t.Run("ResyncAfterSecondsMayBeAFraction", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", answering(func(question) any { return map[string]any{"resyncAfterSeconds": 0.3} }))
		st.run(definition{sync: st.at("/sync", v2)})
		st.Parent("p", nil)
		st.awaitCalls("/sync", "p", 6)
		requests := st.Requests("/sync")
		if waited := requests[5].Time.Sub(requests[4].Time); waited < 290*time.Millisecond {
			t.Errorf("the hook was called again after %v, it asked for 300 ms", waited)
		}
	})
	t.Run("ResyncAfterSecondsOfARefusedResponse", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		// The response is refused, but the time in it is not. The back-off alone would take longer than the test may.
		children := map[fixture.Kind]string{fixture.Composite: "children", fixture.Decorator: "attachments"}[kind]
		st.Handle("/sync", answering(func(question) any {
			return map[string]any{"resyncAfterSeconds": 0.2, children: []any{map[string]any{"kind": "ConfigMap"}}}
		}))
		st.run(definition{sync: st.at("/sync", v2), children: true})
		st.Parent("p", nil)
		st.awaitCalls("/sync", "p", 20)
		st.syncError("p", "")
	})
	t.Run("ResyncAfterSecondsOfZero", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", answering(func(question) any { return map[string]any{"resyncAfterSeconds": 0} }))
		st.run(definition{sync: st.at("/sync", v2)})
		st.Parent("p", nil)
		st.awaitCalls("/sync", "p", 1)
		calls := st.settled("/sync")
		if calls > 3 {
			t.Errorf("the hook was called %d times, zero asks for no further call", calls)
		}
	})
	t.Run("ResyncPeriodSeconds", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", fine())
		// Less than one means one (docs/reference/contract.md#s5.3).
		st.run(definition{sync: st.at("/sync", v1), resyncPeriod: new(int32)})
		st.Parent("p", nil)
		st.Parent("q", nil)
		st.awaitCalls("/sync", "p", 6)
		st.awaitCalls("/sync", "q", 6)
		requests := st.Requests("/sync")
		if took := requests[len(requests)-1].Time.Sub(requests[0].Time); took < 2*time.Second {
			t.Errorf("six calls took %v; the period is a second", took)
		}
	})
}

// testIgnoreStatus is about docs/reference/contract.md#s5.2.
func testIgnoreStatus(t *testing.T, s *shared, kind fixture.Kind) {
	for _, ignore := range []bool{false, true} {
		t.Run(strconv.FormatBool(ignore), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			st.Handle("/sync", fine())
			st.run(definition{sync: st.at("/sync", v1), ignoreStatus: &ignore})
			st.Parent("p", nil)
			st.awaitStatus("p", "done", "yes")
			st.settled("/sync")
			for _, step := range []struct {
				patch        string
				subresources []string
				status       bool
			}{
				{patch: `{"status":{"foreign":"1"}}`, subresources: []string{"status"}, status: true},
				{patch: `{"metadata":{"finalizers":["fixture.example.com/x"]}}`, status: true},
				{patch: `{"spec":{"a":"1"}}`},
				{patch: `{"metadata":{"labels":{"a":"1"}}}`},
				{patch: `{"metadata":{"annotations":{"a":"1"}}}`},
			} {
				before := len(st.Requests("/sync"))
				st.Patch(fixture.Things, "p", step.patch, step.subresources...)
				if !step.status || !ignore {
					st.awaitCalls("/sync", "p", before+1)
					st.settled("/sync")
				} else if after := st.settled("/sync"); after > before {
					t.Errorf("%d calls after %s", after-before, step.patch)
				}
			}
			// A parent that is being deleted is always looked at.
			before := len(st.Requests("/sync"))
			st.Delete(fixture.Things, "p")
			st.awaitCalls("/sync", "p", before+1)
			st.Patch(fixture.Things, "p", `{"metadata":{"finalizers":null}}`)
		})
	}
}

// testServerSideSelection is about the wish that parents which are not selected cost nothing: the API server leaves them out.
func testServerSideSelection(t *testing.T, s *shared, kind fixture.Kind) {
	plural := "selected" + string(kind[:4])
	switch kind {
	case fixture.Composite:
		plural = "selectedones"
	case fixture.Decorator:
		plural = "selectedtwos"
	}
	st := newStage(t, s, kind)
	st.Handle("/sync", fine())
	resource := fixture.Things
	resource.Resource = plural
	s.Define(t, cluster.CustomResource{Resource: resource, Kind: "K" + plural})
	path := fmt.Sprintf("/apis/%s/%s/%s", resource.Group, resource.Version, plural)
	st.run(definition{resource: resource, sync: st.at("/sync", v1)})
	seen := s.proxy.selectors(path)
	if want := fixture.Label + "=" + st.Name; !seen[want] || len(seen) != 1 {
		t.Errorf("the parents were watched with the label selectors %v, want only %q", seen, want)
	}
	// With a finalize hook, parents that were selected once must be seen too (docs/reference/contract.md#s15).
	st.running.Delete()
	st.running.AwaitGone()
	st.Handle("/finalize", answering(func(question) any { return map[string]any{"finalized": true} }))
	st.run(definition{resource: resource, sync: st.at("/sync", v1), finalize: st.at("/finalize", v1)})
	if seen := s.proxy.selectors(path); !seen[""] {
		t.Errorf("the parents were watched with the label selectors %v only; with a finalize hook all must be seen", seen)
	}
	list, err := s.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}
}
