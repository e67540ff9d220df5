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

package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// often is how often another client looks for something to write: writes are counted for a minute.
const often = 50 * time.Millisecond

// unsettled has a hook that counts its calls in the status, and then does not.
func unsettled(s *stage) {
	var mu sync.Mutex
	calls, counting := 0, true
	script := s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; !counting {
			calls = 0
		}
		return &fixture.Reply{Status: map[string]any{"calls": calls, "n": fixture.Value(c.Parent, "spec", "n")}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	s.Parent("p", map[string]any{"n": "1"})
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "status.calls differs in each response of the hook (a number, then another number)")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say so", is(metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, "1 parent does not settle", "status.calls"))
	c.AwaitCounters("the parent", func(n *v1alpha1.ControllerCounters) bool { return n.Unsettled == 1 })
	if n := script.Calls("p"); n > 50 {
		s.T.Errorf("the hook was called %d times", n)
	}
	// A change of the parent is not held back, however long the pauses are by now.
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.Things, "p", "to show the change", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "n") == "2" })
	mu.Lock()
	counting = false
	mu.Unlock()
	s.Patch(fixture.Things, "p", `{"spec":{"n":"3"}}`)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	c.AwaitCounters("no parent", func(n *v1alpha1.ControllerCounters) bool { return n.Unsettled == 0 })
}

// finalizedEarly has one function for the sync and the finalize hook, which says that it is done whenever there is nothing to delete.
func finalizedEarly(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Finalized: fixture.Value(c.Parent, "spec", "n") == "1", Status: map[string]any{}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Finalize: s.At("/sync")})
	s.Parent("p", map[string]any{"n": "1"})
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", `"finalized": true is in each response of the hook`)
	if n := script.Calls("p"); n > 50 {
		s.T.Errorf("the hook was called %d times", n)
	}
	// It is the controller itself that takes the finalizer off.
	for _, e := range s.Events("p") {
		if e.Reason == "ParentFlapping" {
			s.T.Errorf("another client is blamed: %s", e.Message)
		}
	}
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	s.Delete(fixture.Things, "p")
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
}

// restless has a hook that puts a time into a Deployment, whose own controller writes its status after each change.
func restless(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		labels := map[string]any{"app": "stamped"}
		return &fixture.Reply{Children: []*hook.Object{{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "stamped", "labels": map[string]any{fixture.Label: s.Name}},
			"spec": map[string]any{
				"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{
					"metadata": map[string]any{"labels": labels, "annotations": map[string]any{"time": time.Now().Format(time.RFC3339Nano)}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
				},
			},
		}}}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.Deployments, Method: v1alpha1.ChildUpdateInPlace},
	}})
	s.Parent("p", nil)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "spec.template.metadata.annotations.time of Deployment")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say so", is(metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, "annotations.time"))
	script.Want()
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
}

// counting is a script that counts its calls in the status once it is told to.
func counting(s *stage, children func(*fixture.Call) []*hook.Object) (script *fixture.Script, count *atomic.Bool) {
	count = new(atomic.Bool)
	var calls atomic.Int64
	script = s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{Status: map[string]any{"calls": int64(0)}, Children: children(c)}
		if count.Load() {
			reply.Status["calls"] = calls.Add(1)
		}
		return reply, nil
	})
	s.Handle("/sync", script)
	return script, count
}

// relatedToItself has a customize hook that selects the parent's own kind, so that each write of the parent is a change of a related object.
func relatedToItself(s *stage) {
	script, count := counting(s, func(*fixture.Call) []*hook.Object { return nil })
	count.Store(true)
	s.Hook.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{
			{APIVersion: fixture.Things.GroupVersion().String(), Resource: fixture.Things.Resource},
		}}, nil
	}))
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Customize: s.At("/customize")})
	s.Parent("p", nil)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "status.calls differs in each response")
	if n := script.Calls("p"); n > 50 {
		s.T.Errorf("the hook was called %d times", n)
	}
}

// waiting has a rolling update wait for a child that does not become ready, while the status is another one each time.
func waiting(s *stage) {
	if s.kind != fixture.Composite {
		s.T.Skip("only children of CompositeControllers roll")
	}
	script, count := counting(s, func(c *fixture.Call) []*hook.Object {
		n := fixture.Value(c.Parent, "spec", "n")
		return []*hook.Object{fixture.ConfigMap("one", map[string]any{"n": n}), fixture.ConfigMap("two", map[string]any{"n": n})}
	})
	s.Run(fixture.Definition{
		Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateRollingInPlace}},
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) {
			spec.ChildResources[0].UpdateStrategy.StatusChecks.Conditions = []v1alpha1.StatusConditionCheck{{Type: "Never", Status: new("True")}}
		},
	})
	s.Parent("p", map[string]any{"n": "1"})
	s.Await(fixture.ConfigMaps, "two", "to be created", cluster.Exists)
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.Things, "p", "to wait", func(o *unstructured.Unstructured) bool {
		return strings.Contains(fixture.Value(o, "status", "conditions"), "RolloutWaiting")
	})
	before := script.Calls("p")
	count.Store(true)
	s.Patch(fixture.Things, "p", `{"metadata":{"labels":{"look":"again"}}}`)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "status.calls differs in each response")
	if n := script.Calls("p") - before; n > 100 {
		s.T.Errorf("the hook was called %d times", n)
	}
}

// flapping has another client change a child back again and again.
func flapping(s *stage) {
	script := s.NewScript(s.kind)
	script.Want(fixture.ConfigMap("child", map[string]any{"k": "wanted"}))
	s.Handle("/sync", script)
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace},
	}})
	s.Parent("p", nil)
	s.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	cluster.EventuallyEvery(s.T, often, s.Limit, "an event that names who changes the child", func(ctx context.Context) (bool, string) {
		_, err := s.Kube.CoreV1().ConfigMaps(s.Namespace).Patch(ctx, "child", types.MergePatchType, []byte(`{"data":{"k":"other"}}`),
			metav1.PatchOptions{FieldManager: "meddler"})
		if err != nil {
			return false, err.Error()
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool {
			return e.Reason == "ChildFlapping" && strings.Contains(e.Message, `keeps changing back at data.k after every write`) &&
				strings.Contains(e.Message, `The field manager "meddler" sets this field`) && e.Related != nil && e.Related.Name == "child"
		}), fmt.Sprint(events)
	})
}

// taken has another client delete a child after each creation.
func taken(s *stage) {
	script := s.NewScript(s.kind)
	script.Want(fixture.ConfigMap("child", map[string]any{"k": "1"}))
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace},
	}})
	s.Parent("p", nil)
	s.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	deletions, last := 0, types.UID("")
	cluster.EventuallyEvery(s.T, often, s.Limit, "an event that says that somebody deletes the child", func(context.Context) (bool, string) {
		if child := s.Get(fixture.ConfigMaps, "child"); child != nil && child.GetUID() != last {
			s.Delete(fixture.ConfigMaps, "child")
			deletions, last = deletions+1, child.GetUID()
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool {
			return e.Reason == "ChildFlapping" && strings.Contains(e.Message, "is deleted after every creation by somebody else")
		}), fmt.Sprintf("%d deletions, %v", deletions, events)
	})
	// The creations are counted from the first one of a minute on. On a busy machine a minute may end before there were enough.
	if deletions < 12 || deletions >= 40 {
		s.T.Errorf("the child was left alone after %d deletions, want one of the first creation and 11 more", deletions)
	}
	c.AwaitCounters("the child", func(n *v1alpha1.ControllerCounters) bool { return n.Flapping == 1 })
	if child := s.Get(fixture.ConfigMaps, "child"); child != nil {
		s.T.Errorf("a child that is left alone was created at %v", child.GetCreationTimestamp())
	}
	// What the hook wants is another child now: it is created at once.
	script.Want(fixture.ConfigMap("child", map[string]any{"k": "2"}))
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.ConfigMaps, "child", "to be created as it is wanted now", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "data", "k") == "2"
	})
}

// contended has another client write the status of a parent again and again.
func contended(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Status: map[string]any{"phase": "wanted"}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	s.Parent("p", nil)
	things := s.Resource(fixture.Things)
	cluster.EventuallyEvery(s.T, often, s.Limit, "an event that names who writes the status", func(ctx context.Context) (bool, string) {
		_, err := things.Patch(ctx, "p", types.MergePatchType, []byte(`{"status":{"phase":"other"}}`),
			metav1.PatchOptions{FieldManager: "meddler"}, "status")
		if err != nil {
			return false, err.Error()
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool {
			return e.Reason == "ParentFlapping" && strings.Contains(e.Message, "status.phase keeps changing back after every write (a text, then another text)") &&
				strings.Contains(e.Message, `The field manager "meddler" writes it`)
		}), fmt.Sprint(events)
	})
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to say so", is(metav1.ConditionTrue, v1alpha1.ReasonChangedBack, "1 parent does not settle", "status.phase"))
	// Nobody writes any more: the parent is as the hook wants it, and in a minute nothing is known against it.
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to settle", is(metav1.ConditionFalse, v1alpha1.ReasonSettled))
	s.Await(fixture.Things, "p", "to be as wanted", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "phase") == "wanted" })
}
