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

// Package deferred tests the statuses that syncs which wrote children leave to the syncs that follow from that
// (docs/reference/compatibility.md#d6).
package deferred

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

const limit = cluster.Limit

// A stage is one test of a controller of either kind, whose hook is decide: it is told how many children there are.
type stage struct {
	*fixture.Test

	kind       fixture.Kind
	script     *fixture.Script
	definition fixture.Definition
	controller *controllers.Controller
}

func TestDeferredStatuses(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: limit})
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		for name, run := range map[string]func(*stage){
			"HooksFindWhatTheyNoted": hooksFindWhatTheyNoted, "SlowCall": slowCall, "HangingCall": hangingCall, "FailingCall": failingCall, "Pause": pause,
			"ControllerDeleted": controllerDeleted, "DeletionGuard": deletionGuard, "Finalizing": finalizing, "IgnoredStatusChanges": ignoredStatusChanges,
			"ChangedMeanwhile": changedMeanwhile, "NoChildren": noChildren,
		} {
			t.Run(fmt.Sprintf("%s/%s", kind, name), func(t *testing.T) {
				t.Parallel()
				run(newStage(t, e, kind))
			})
		}
	}
	t.Run("Rollout", func(t *testing.T) { rollout(newStage(t, e, fixture.Composite)) })
	t.Run("LabelsOfATarget", func(t *testing.T) { labels(newStage(t, e, fixture.Decorator)) })
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), kind: kind, script: e.NewScript(kind)}
	s.Handle("/hook", s.script)
	s.definition = fixture.Definition{
		Kind: kind, Sync: s.At("/hook"), Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	}
	return s
}

// run runs the controller with a hook that wants two children.
func (s *stage) run(status func(c *fixture.Call, children int) (map[string]any, error)) {
	s.T.Helper()
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		children := len(c.Children["ConfigMap.v1"])
		now, err := status(c, children)
		if c.Finalizing {
			return &fixture.Reply{Status: now, Finalized: children == 0}, err
		}
		return &fixture.Reply{Children: two(c.Parent), Status: now}, err
	})
	s.controller = s.Run(s.definition)
}

func two(parent *hook.Object) []*hook.Object {
	data := map[string]any{"data": fixture.Value(parent, "spec", "data")}
	return []*hook.Object{fixture.ConfigMap(parent.GetName()+"-0", data), fixture.ConfigMap(parent.GetName()+"-1", data)}
}

// awaitStatus waits until the parent p has a field of the status.
func (s *stage) awaitStatus(field, want string) *unstructured.Unstructured {
	s.T.Helper()
	return s.Await(fixture.Things, "p", "to have status."+field+" "+want, func(o *unstructured.Unstructured) bool {
		return o != nil && fixture.Value(o, "status", field) == want
	})
}

// seen is a status that shows how many children the hook saw.
func seen(children int) map[string]any { return map[string]any{"seen": fmt.Sprint(children)} }

// hooksFindWhatTheyNoted has a hook count, in its status, how often it has been called without the children.
func hooksFindWhatTheyNoted(s *stage) {
	s.run(func(c *fixture.Call, children int) (map[string]any, error) {
		notes := fixture.Value(c.Parent, "status", "notes")
		if children < 2 {
			notes += "."
		}
		return map[string]any{"notes": notes, "seen": fmt.Sprint(children)}, nil
	})
	s.Parent("p", map[string]any{})
	done := s.awaitStatus("seen", "2")
	if notes := fixture.Value(done, "status", "notes"); notes != "." {
		s.T.Errorf("the notes of the hook are %q, want one dot", notes)
	}
	s.Settle()
	if calls := s.script.Calls("p"); calls > 3 {
		s.T.Errorf("the hook was called %d times, want 3 at most", calls)
	}
	if shown := s.script.Last().Parent; fixture.Value(shown, "status", "seen") != "2" {
		s.T.Errorf("the hook saw %v last", shown.Object["status"])
	}
}

// slowCall has a hook that takes its time: the call that sees the children waits until the status of the one before is stored.
func slowCall(s *stage) {
	release := make(chan struct{})
	s.run(func(_ *fixture.Call, children int) (map[string]any, error) {
		if children == 2 {
			<-release
		} else {
			<-time.After(300 * time.Millisecond)
		}
		return seen(children), nil
	})
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "0")
	close(release)
	s.awaitStatus("seen", "2")
}

// hangingCall has the call that sees the children hang, after one that was fast, until the status of that one is stored: at the latest when
// the call times out.
func hangingCall(s *stage) {
	release := make(chan struct{})
	s.definition.Sync.Webhook.Timeout = &metav1.Duration{Duration: time.Second}
	s.run(func(_ *fixture.Call, children int) (map[string]any, error) {
		if children == 2 {
			<-release
		}
		return seen(children), nil
	})
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "0")
	close(release)
	s.awaitStatus("seen", "2")
}

// failingCall has the call that sees the children fail until the status of the one before is stored.
func failingCall(s *stage) {
	var works atomic.Bool
	s.run(func(_ *fixture.Call, children int) (map[string]any, error) {
		if children == 2 && !works.Load() {
			return nil, errors.New("not yet")
		}
		return seen(children), nil
	})
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "0")
	works.Store(true)
	s.awaitStatus("seen", "2")
}

// awaitCall waits until a call has begun that waits.
func (s *stage) awaitCall(begun <-chan struct{}) {
	s.T.Helper()
	select {
	case <-begun:
	case <-time.After(limit): // The number of calls is not known while one waits.
		s.T.Fatal("no call saw the children")
	}
}

// pause pauses the controller during the call that sees the children. When nothing is under way, the status is stored.
func pause(s *stage) {
	called, release := make(chan struct{}, 100), make(chan struct{})
	s.run(func(_ *fixture.Call, children int) (map[string]any, error) {
		if children == 2 {
			called <- struct{}{}
			<-release
		}
		return seen(children), nil
	})
	s.Parent("p", map[string]any{})
	s.awaitCall(called)
	s.controller.Patch(`{"spec":{"paused":true}}`)
	s.Kubectl(s.T, "wait", "--for=condition=Paused", strings.ToLower(s.controller.Kind)+"/"+s.controller.Name, "--timeout", limit.String())
	if got := fixture.Value(s.Get(fixture.Things, "p"), "status", "seen"); got != "0" {
		s.T.Errorf("the status is %q when nothing is under way any more", got)
	}
	close(release)
	s.controller.Patch(`{"spec":{"paused":false}}`)
	s.awaitStatus("seen", "2")
}

// controllerDeleted deletes the controller during the call that sees the children.
func controllerDeleted(s *stage) {
	called, release := make(chan struct{}, 100), make(chan struct{})
	s.run(func(_ *fixture.Call, children int) (map[string]any, error) {
		if children == 2 {
			called <- struct{}{}
			<-release
		}
		return seen(children), nil
	})
	s.T.Cleanup(func() { close(release) })
	s.Parent("p", map[string]any{})
	s.awaitCall(called)
	s.controller.Delete()
	s.awaitStatus("seen", "0")
}

// deletionGuard holds the deletion of one child while another one is created.
func deletionGuard(s *stage) {
	guard := &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(0))}
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.DeletionGuard = guard }
	s.definition.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) { spec.DeletionGuard = guard }
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		name := fixture.Value(c.Parent, "spec", "child")
		return &fixture.Reply{
			Children: []*hook.Object{fixture.ConfigMap(name, map[string]any{})},
			Status:   map[string]any{"child": name, "seen": fmt.Sprint(len(c.Children["ConfigMap.v1"]))},
		}, nil
	})
	s.controller = s.Run(s.definition)
	s.Parent("p", map[string]any{"child": "a"})
	s.awaitStatus("seen", "1")
	s.Patch(fixture.Things, "p", `{"spec":{"child":"b"}}`)
	s.awaitStatus("child", "b")
	s.awaitStatus("seen", "2")
	s.Await(fixture.ConfigMaps, "a", "to stay", cluster.Exists)
}

// finalizing has each call of the finalize hook, which deletes the children, report in the status; another finalizer keeps the parent.
func finalizing(s *stage) {
	s.definition.Finalize = s.At("/hook")
	s.run(func(c *fixture.Call, children int) (map[string]any, error) {
		now := seen(children)
		now["finalizing"] = fmt.Sprint(c.Finalizing)
		return now, nil
	})
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "2")
	s.Patch(fixture.Things, "p", `{"metadata":{"finalizers":["conformance.example.com/x","`+s.Finalizer(s.definition)+`"]}}`)
	s.T.Cleanup(func() {
		_, err := s.TryKubectl(context.WithoutCancel(s.T.Context()), "", "-n", s.Namespace, "patch", "thing", "p", "--type=merge", "-p", `{"metadata":{"finalizers":[]}}`)
		if err != nil {
			s.T.Error(err)
		}
	})
	s.Delete(fixture.Things, "p")
	last := s.Await(fixture.Things, "p", "to be finalized", func(o *unstructured.Unstructured) bool {
		return o != nil && !fixture.HasFinalizer(o, s.Finalizer(s.definition)) && fixture.Value(o, "status", "seen") == "0"
	})
	if got := fixture.Value(last, "status", "finalizing"); got != "true" {
		s.T.Errorf("the status of the parent that is finalized says finalizing %q", got)
	}
}

// ignoredStatusChanges has the status be deferred where its change does not enqueue the parent.
func ignoredStatusChanges(s *stage) {
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.ParentResource.IgnoreStatusChanges = new(true) }
	s.definition.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) {
		for i := range spec.Resources {
			spec.Resources[i].IgnoreStatusChanges = new(true)
		}
	}
	s.run(func(_ *fixture.Call, children int) (map[string]any, error) { return seen(children), nil })
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "2")
}

// changedMeanwhile changes the parent during the call that sees the children.
func changedMeanwhile(s *stage) {
	called, release := make(chan struct{}, 100), make(chan struct{})
	s.run(func(c *fixture.Call, children int) (map[string]any, error) {
		if children == 2 {
			called <- struct{}{}
			<-release
		}
		now := seen(children)
		now["data"] = fixture.Value(c.Parent, "spec", "data")
		return now, nil
	})
	s.Parent("p", map[string]any{"data": "1"})
	s.awaitCall(called)
	s.Patch(fixture.Things, "p", `{"spec":{"data":"2"}}`)
	close(release)
	s.awaitStatus("data", "2")
	s.Settle()
	now := s.awaitStatus("seen", "2")
	if got, _, _ := unstructured.NestedInt64(now.Object, "status", "observedGeneration"); s.kind == fixture.Composite && got != now.GetGeneration() {
		s.T.Errorf("observedGeneration is %d of %d", got, now.GetGeneration())
	}
}

// noChildren has a hook without children: its status is written.
func noChildren(s *stage) {
	s.script.Respond(func(*fixture.Call) (*fixture.Reply, error) { return &fixture.Reply{Status: seen(0)}, nil })
	s.controller = s.Run(s.definition)
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "0")
	s.Settle()
	if calls := s.script.Calls("p"); calls > 2 {
		s.T.Errorf("the hook was called %d times, want 2 at most", calls)
	}
}

// rollout updates the children one by one: the condition Updated ends as true, and the hook's own status is the last one.
func rollout(s *stage) {
	s.definition.Children[0].Method = v1alpha1.ChildUpdateRollingInPlace
	s.run(func(c *fixture.Call, children int) (map[string]any, error) {
		now := seen(children)
		now["data"] = fixture.Value(c.Parent, "spec", "data")
		return now, nil
	})
	s.Parent("p", map[string]any{"data": "1"})
	s.awaitStatus("seen", "2")
	s.Patch(fixture.Things, "p", `{"spec":{"data":"2"}}`)
	for _, name := range []string{"p-0", "p-1"} {
		s.Await(fixture.ConfigMaps, name, "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == "2" })
	}
	s.Settle()
	now := s.awaitStatus("data", "2")
	conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
	if err != nil || len(conditions) != 1 {
		s.T.Fatalf("the conditions are %v: %v", conditions, err)
	}
	if updated, ok := conditions[0].(map[string]any); !ok || updated["type"] != "Updated" || updated["status"] != "True" {
		s.T.Errorf("the condition is %v", conditions[0])
	}
}

// labels has a target's labels be written with the first response, and its status with them.
func labels(s *stage) {
	release := make(chan struct{})
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		children := len(c.Children["ConfigMap.v1"])
		if children == 2 {
			<-release
			return &fixture.Reply{Children: two(c.Parent), Labels: map[string]*string{"seen": new("2")}}, nil // The status stays.
		}
		return &fixture.Reply{Children: two(c.Parent), Labels: map[string]*string{"seen": new("0")}, Status: seen(children)}, nil
	})
	s.controller = s.Run(s.definition)
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "0")
	close(release)
	done := s.Await(fixture.Things, "p", "to have the second label", func(o *unstructured.Unstructured) bool { return o.GetLabels()["seen"] == "2" })
	if got := fixture.Value(done, "status", "seen"); got != "0" {
		s.T.Errorf("a response without a status left %q", got)
	}
}
