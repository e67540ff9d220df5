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
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

const limit = cluster.Limit

// A stage is one test of a controller, whose hook is told how many children there are.
type stage struct {
	*fixture.Test

	script     *fixture.Script
	definition fixture.Definition
}

func TestDeferredStatuses(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: limit})
	for _, row := range []struct {
		name string
		kind fixture.Kind
		run  func(*stage)
	}{
		{"HooksFindWhatTheyNoted", fixture.Composite, hooksFindWhatTheyNoted},
		{"HooksFindWhatTheyNotedOnATarget", fixture.Decorator, hooksFindWhatTheyNoted},
		{"SlowCall", fixture.Composite, slowCall},
		{"HangingCall", fixture.Composite, hangingCall},
		{"DeletionGuard", fixture.Composite, deletionGuard},
		{"Finalizing", fixture.Composite, finalizing},
		{"Rollout", fixture.Composite, rollout},
		{"LabelsOfATarget", fixture.Decorator, labels},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(newStage(t, e, row.kind))
		})
	}
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(kind)}
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
	s.Run(s.definition)
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
	s.Run(s.definition)
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
	s.Run(s.definition)
	s.Parent("p", map[string]any{})
	s.awaitStatus("seen", "0")
	close(release)
	done := s.Await(fixture.Things, "p", "to have the second label", func(o *unstructured.Unstructured) bool { return o.GetLabels()["seen"] == "2" })
	if got := fixture.Value(done, "status", "seen"); got != "0" {
		s.T.Errorf("a response without a status left %q", got)
	}
}
