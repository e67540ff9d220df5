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

package brakes

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func pauses(t *testing.T, e *fixture.Environment) {
	tests(t, e, fixture.Table[*stage]{
		Both: map[string]func(*stage){"NothingIsDoneAndNothingIsLost": nothingIsLost, "ParentsAreNotFinalized": notFinalized},
		Composites: map[string]func(*stage){
			"InTheMiddleOfASync": middleOfASync, "Deletion": deletedWhilePaused, "Edits": editedWhilePaused,
		},
	})
	t.Run("InTheMiddleOfARollout", func(t *testing.T) { middleOfARollout(newStage(t, e, fixture.Composite)) })
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} { // Each restarts the server, so none is parallel to another one.
		t.Run("OneParent/"+string(kind), func(t *testing.T) { oneParent(newStage(t, e, kind)) })
		t.Run("OneParent/"+string(kind)+"/Inline", func(t *testing.T) {
			s := newStage(t, e, kind)
			s.inline()
			oneParent(s)
		})
	}
}

// nothingIsLost pauses one of two controllers of the same parents. What happens meanwhile is seen by the other one, and caught up by the
// paused one.
func nothingIsLost(s *stage) {
	s.run()
	seen := s.witness()
	s.Parent("a", map[string]any{"n": 2, "data": "1"})
	s.Parent("gone", map[string]any{"n": 1})
	s.awaitNames("a-0", "a-1", "gone-0")
	seen("a", "2")
	s.pause()
	calls := s.script.All()
	s.Patch(fixture.Things, "a", `{"spec":{"n":3,"data":"2"}}`)
	s.Parent("b", map[string]any{"n": 1})
	s.Delete(fixture.ConfigMaps, "a-1")
	s.Delete(fixture.Things, "gone")
	seen("a", "3")
	seen("b", "1")
	s.Await(fixture.ConfigMaps, "gone-0", "to be collected", cluster.Gone)
	if names := s.names(); !slices.Equal(names, []string{"a-0"}) {
		s.T.Errorf("during the pause the children became %v", names)
	}
	if now := s.script.All(); now != calls {
		s.T.Errorf("the hook was called %d times during the pause", now-calls)
	}
	s.resume()
	s.awaitNames("a-0", "a-1", "a-2", "b-0")
	s.Await(fixture.ConfigMaps, "a-0", "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	s.controller.AwaitCondition(v1alpha1.ConditionPaused, "to be false", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNotPaused
	})
}

// middleOfASync pauses while the hook is being called, and the call does not end.
func middleOfASync(s *stage) {
	var begun, cut atomic.Int64
	slow := make(chan struct{})
	s.Handle("/hook", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		select {
		case <-slow:
			s.script.ServeHTTP(w, r)
		case <-r.Context().Done():
			cut.Add(1)
		}
	}))
	s.definition.Sync.Webhook.Timeout = &metav1.Duration{Duration: limit} // Nothing else may end the call.
	s.run()
	s.Parent("a", map[string]any{"n": 1})
	s.eventually("the hook to be called", func() bool { return begun.Load() == 1 })
	s.pause()
	s.eventually("the call to be cut short", func() bool { return cut.Load() == 1 })
	close(slow)
	if names := s.names(); len(names) > 0 || begun.Load() != 1 {
		s.T.Errorf("the hook was called %d times, and there are the children %v", begun.Load(), names)
	}
	s.resume()
	s.awaitNames("a-0")
	s.controller.AwaitCondition(v1alpha1.ConditionHooksHealthy, "not to blame the hook", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue
	})
}

// notFinalized deletes a parent that the controller finalizes.
func notFinalized(s *stage) {
	s.definition.Finalize = s.finalize
	s.run()
	seen := s.witness()
	s.Parent("a", map[string]any{"n": 1})
	s.awaitNames("a-0")
	s.pause()
	s.Parent("new", map[string]any{"n": 1})
	s.Delete(fixture.Things, "a")
	s.Patch(fixture.Things, "a", `{"spec":{"n":7}}`)
	seen("new", "1")
	seen("a", "7")
	a, fresh := s.Get(fixture.Things, "a"), s.Get(fixture.Things, "new")
	if a == nil || !fixture.HasFinalizer(a, s.Finalizer(s.definition)) {
		s.T.Errorf("the parent was released during the pause: %v", a)
	}
	if fixture.HasFinalizer(fresh, s.Finalizer(s.definition)) {
		s.T.Error("a finalizer was added during the pause")
	}
	s.resume()
	s.Await(fixture.Things, "a", "to be gone", cluster.Gone)
	s.Await(fixture.Things, "new", "to be finalized from now on", func(o *unstructured.Unstructured) bool {
		return fixture.HasFinalizer(o, s.Finalizer(s.definition))
	})
}

// deletedWhilePaused deletes the controller. Its finalizer comes off the parents, and no hook is called.
func deletedWhilePaused(s *stage) {
	s.definition.Finalize = s.At("/hook")
	s.run()
	s.Parent("a", map[string]any{"n": 1})
	s.awaitNames("a-0")
	s.pause()
	calls := s.script.All()
	s.controller.Delete()
	s.Await(fixture.Things, "a", "to be released", func(o *unstructured.Unstructured) bool {
		return o != nil && !fixture.HasFinalizer(o, s.Finalizer(s.definition))
	})
	s.controller.AwaitGone()
	if now := s.script.All(); now != calls {
		s.T.Errorf("the hook was called %d times for a controller that was paused and deleted", now-calls)
	}
	if names := s.names(); !slices.Equal(names, []string{"a-0"}) {
		s.T.Errorf("the children are %v", names)
	}
}

// editedWhilePaused removes the finalize hook, and adds a method, during the pause: the controller that follows is paused, too.
func editedWhilePaused(s *stage) {
	s.definition.Finalize = s.At("/hook")
	s.run()
	seen := s.witness()
	s.Parent("a", map[string]any{"n": 1})
	s.awaitNames("a-0")
	s.pause()
	calls := s.script.All()
	s.controller.Patch(`{"spec":{"workers":3,"hooks":{"finalize":null}}}`)
	s.controller.AwaitCondition(v1alpha1.ConditionFinalizersReleased, "to wait for the end of the pause", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPaused
	})
	s.awaitPaused()
	s.Patch(fixture.Things, "a", `{"spec":{"n":2}}`)
	seen("a", "2")
	if a := s.Get(fixture.Things, "a"); !fixture.HasFinalizer(a, s.Finalizer(s.definition)) {
		s.T.Error("the finalizer came off during the pause")
	}
	if now := s.script.All(); now != calls {
		s.T.Errorf("the hook was called %d times during the pause", now-calls)
	}
	s.resume()
	s.awaitNames("a-0", "a-1")
	s.Await(fixture.Things, "a", "to be released", func(o *unstructured.Unstructured) bool {
		return o != nil && !fixture.HasFinalizer(o, s.Finalizer(s.definition))
	})
}

// middleOfARollout pauses a rolling update, and restarts the server meanwhile.
func middleOfARollout(s *stage) {
	s.definition.Children[0].Method = v1alpha1.ChildUpdateRollingInPlace
	s.run()
	seen := s.witness()
	s.Parent("a", map[string]any{"n": 12, "data": "1"})
	s.Await(fixture.ConfigMaps, "a-11", "to be there", cluster.Exists)
	s.Patch(fixture.Things, "a", `{"spec":{"data":"2"}}`)
	s.Await(fixture.ConfigMaps, "a-1", "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	s.pause()
	before := s.versions()
	if err := s.Server.Stop(); err != nil {
		s.T.Fatal(err)
	}
	s.Server.Restart()
	s.awaitPaused()
	s.Parent("b", map[string]any{"n": 1})
	seen("b", "1")
	if now := s.versions(); !slices.Equal(now, before) {
		s.T.Errorf("the rollout went on during the pause:\n%v\n%v", before, now)
	}
	s.resume()
	s.Await(fixture.ConfigMaps, "a-11", "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	s.Await(fixture.ConfigMaps, "b-0", "to be there", cluster.Exists)
}

// versions are the names and versions of children and revisions. The ConfigMap that Kubernetes makes in each namespace is none of them.
func (s *stage) versions() []string {
	s.T.Helper()
	var list []string
	configMaps, err := s.Resource(fixture.ConfigMaps).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	revisions, err := s.Resource(fixture.Revisions).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	for _, o := range slices.Concat(configMaps.Items, revisions.Items) {
		if len(o.GetOwnerReferences()) == 0 {
			continue
		}
		list = append(list, o.GetName()+"@"+o.GetResourceVersion())
	}
	return list
}

// oneParent pauses one of two parents, in the middle of a rolling update where there are such, changes it, restarts the server, and deletes it.
func oneParent(s *stage) {
	s.definition.Finalize = s.finalize
	if s.kind == fixture.Composite {
		s.definition.Children[0].Method = v1alpha1.ChildUpdateRollingInPlace
	}
	s.run()
	s.Parent("a", map[string]any{"n": 4, "data": "1"})
	s.Parent("b", map[string]any{"n": 0})
	s.awaitNames("a-0", "a-1", "a-2", "a-3")
	s.Patch(fixture.Things, "a", `{"spec":{"data":"2"}}`)
	s.Await(fixture.ConfigMaps, "a-3", "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	s.Patch(fixture.Things, "a", `{"metadata":{"annotations":{"metacontroller.k8s.io/paused":"true"}}}`)
	s.AwaitEvent("a", corev1.EventTypeNormal, "Paused", "until the annotation metacontroller.k8s.io/paused is taken off")
	ofA := func() []string {
		return slices.DeleteFunc(s.versions(), func(version string) bool { return !strings.HasPrefix(version, "a-") })
	}
	before, calls := ofA(), s.script.Calls("a")
	s.Patch(fixture.Things, "a", `{"spec":{"n":6,"data":"3"}}`)
	if err := s.Server.Stop(); err != nil {
		s.T.Fatal(err)
	}
	s.Server.Restart()
	s.controller.AwaitReady()
	s.Delete(fixture.Things, "a")
	s.AwaitEvent("a", corev1.EventTypeNormal, "Paused", "it is being deleted, and stays until it is finalized")
	s.Patch(fixture.Things, "b", `{"spec":{"n":1}}`)
	s.Await(fixture.ConfigMaps, "b-0", "to be there: other parents are not paused", cluster.Exists)
	if now := ofA(); !slices.Equal(now, before) {
		s.T.Errorf("children of a paused parent were written:\n%v\n%v", before, now)
	}
	if now := s.script.Calls("a"); now != calls {
		s.T.Errorf("the hook was called %d times about a paused parent", now-calls)
	}
	s.Patch(fixture.Things, "a", `{"metadata":{"annotations":{"metacontroller.k8s.io/paused":null}}}`)
	s.Await(fixture.Things, "a", "to be finalized", cluster.Gone)
	s.awaitNames("b-0")
}
