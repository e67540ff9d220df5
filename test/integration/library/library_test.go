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

// Package library runs pkg/engine inside of the test, as a program of a user does, on a real control plane.
package library

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/engine"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

const group = "library.example.com"

var (
	greetings           = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "greetings"}
	configMaps          = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	controllerRevisions = v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions")
	leases              = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// greeting is a parent.
type greeting struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Who  string `json:"who"`
		Fail bool   `json:"fail"`
	} `json:"spec"`
}

type greetingStatus struct {
	Text string `json:"text"`
}

// greet desires a ConfigMap with a text for which it looks into another one.
func greet(_ context.Context, g *greeting, request *engine.CompositeRequest) (*engine.Desired[greetingStatus], error) {
	if g.Spec.Fail {
		return nil, errors.New("no quota for greetings")
	}
	word := "Hello"
	settings, err := engine.As[corev1.ConfigMap](request.Related.Find("v1", "ConfigMap", g.Namespace, "settings"))
	if err != nil {
		return nil, err
	}
	if settings != nil {
		word = settings.Data["word"]
	}
	text := word + " " + g.Spec.Who
	return &engine.Desired[greetingStatus]{Status: greetingStatus{Text: text}, Children: []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: g.Name}, Data: map[string]string{"text": text},
	}}}, nil
}

func settings(_ context.Context, request *engine.CustomizeRequest) (*engine.CustomizeResponse, error) {
	return &engine.CustomizeResponse{RelatedResources: []engine.RelatedResourceRule{{
		APIVersion: "v1", Resource: "configmaps", Namespace: request.Parent.GetNamespace(), Names: []string{"settings"},
	}}}, nil
}

// leave lets a parent go when its children are gone.
func leave(_ context.Context, request *engine.CompositeRequest) (*engine.CompositeResponse, error) {
	return &engine.CompositeResponse{Finalized: len(request.Children.OfType("v1", "ConfigMap")) == 0}, nil
}

// mark annotates a ConfigMap that asks for it.
func mark(context.Context, *engine.DecoratorRequest) (*engine.DecoratorResponse, error) {
	return &engine.DecoratorResponse{Annotations: map[string]*string{"marked": new("yes")}}, nil
}

func controller(method v1alpha1.ChildUpdateMethod) *v1alpha1.CompositeController {
	return &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "greetings"}, Spec: v1alpha1.CompositeControllerSpec{
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: v1alpha1.ResourceRule{APIVersion: group + "/v1", Resource: "greetings"}},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}, UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: method},
		}},
		GenerateSelector: new(true),
	}}
}

func marker() *v1alpha1.DecoratorController {
	return &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "marker"}, Spec: v1alpha1.DecoratorControllerSpec{
		Resources: []v1alpha1.DecoratorControllerResourceRule{{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"library": "mark"}},
		}},
	}}
}

// statuses are the latest ones of controllers.
type statuses struct {
	mu   sync.Mutex
	list map[string]v1alpha1.ControllerStatus
}

func (s *statuses) note(kind, name string, status v1alpha1.ControllerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = map[string]v1alpha1.ControllerStatus{}
	}
	s.list[kind+" "+name] = status
}

// await waits until the condition Ready of a controller has a status and a message with a text.
func (s *statuses) await(t *testing.T, controller string, want metav1.ConditionStatus, text string) {
	t.Helper()
	cluster.Eventually(t, cluster.Limit, controller+" to be Ready="+string(want), func(context.Context) (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		ready := meta.FindStatusCondition(s.list[controller].Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			return false, "there is no condition"
		}
		return ready.Status == want && strings.Contains(ready.Message, text), ready.Message
	})
}

// run runs an engine until stop is called, which returns when it has ended.
func run(t *testing.T, options engine.Options) (running *engine.Engine, stop func()) {
	t.Helper()
	running, err := engine.New(cluster.Shared(t).Config(t), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the engine ended with %v", err)
		}
		if err := running.Healthy(nil); err == nil {
			t.Error("the engine is healthy when it has ended")
		}
		if err := running.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "was run before") {
			t.Errorf("a second run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return running, stop
}

func objects(t *testing.T) *cluster.Objects {
	t.Helper()
	plane := cluster.Shared(t)
	plane.Define(t, cluster.CustomResource{Resource: greetings, Kind: "Greeting"})
	return cluster.NewClients(t, plane.Config(t)).Objects(t, plane.Namespace(t), cluster.Limit)
}

func newGreeting(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Greeting", "metadata": map[string]any{"name": name}, "spec": map[string]any{"who": "Ada"},
	}}
}

func newConfigMap(name string, labels, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": labels}, "data": data,
	}}
}

// says is a condition of a ConfigMap with a text.
func says(text string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		got, _, _ := unstructured.NestedString(o.Object, "data", "text")
		return got == text
	}
}

func TestControllersOfAProgram(t *testing.T) {
	o := objects(t)
	var seen statuses
	running, stop := run(t, engine.Options{
		Composites: []engine.Composite{{
			Controller: controller(v1alpha1.ChildUpdateInPlace), Sync: engine.Typed(greet), Customize: settings, Finalize: leave,
		}},
		Decorators: []engine.Decorator{{Controller: marker(), Sync: mark}},
		Lease:      "greetings", Namespace: o.Namespace, OnStatus: seen.note,
	})
	seen.await(t, "CompositeController greetings", metav1.ConditionTrue, "runs")
	if err := running.Healthy(nil); err != nil {
		t.Error(err)
	}

	o.Create(greetings, newGreeting("a"))
	o.Await(configMaps, "a", "to be made", says("Hello Ada"))
	o.Await(greetings, "a", "to have a status", func(g *unstructured.Unstructured) bool {
		text, _, _ := unstructured.NestedString(g.Object, "status", "text")
		return text == "Hello Ada"
	})
	o.Patch(configMaps, "a", `{"data":{"text":"drift"}}`)
	o.Await(configMaps, "a", "to be put back", says("Hello Ada"))

	o.Create(configMaps, newConfigMap("settings", nil, map[string]any{"word": "Salut"}))
	o.Await(configMaps, "a", "to follow a related object", says("Salut Ada"))

	o.Create(configMaps, newConfigMap("marked", map[string]any{"library": "mark"}, nil))
	o.Await(configMaps, "marked", "to be marked", func(c *unstructured.Unstructured) bool { return c.GetAnnotations()["marked"] == "yes" })

	o.Patch(greetings, "a", `{"spec":{"fail":true}}`)
	o.AwaitEvent("a", corev1.EventTypeWarning, "SyncError", "sync function: no quota for greetings")
	seen.await(t, "CompositeController greetings", metav1.ConditionFalse, "no quota for greetings")
	o.Patch(greetings, "a", `{"spec":{"fail":false}}`)
	seen.await(t, "CompositeController greetings", metav1.ConditionTrue, "runs")

	o.Delete(greetings, "a")
	o.Await(greetings, "a", "to be finalized", cluster.Gone)
	if child := o.Get(configMaps, "a"); child != nil {
		t.Errorf("the child is there without its parent: %v", child)
	}

	stop()
	holder, _, _ := unstructured.NestedString(o.Get(leases, "greetings").Object, "spec", "holderIdentity")
	if holder != "" {
		t.Errorf("the Lease is held by %s after the end", holder)
	}
}

// Of two processes one runs controllers. One that loses its Lease ends its run, and says why.
func TestOneProcessRunsControllers(t *testing.T) {
	o := objects(t)
	options := func(seen *statuses) engine.Options {
		return engine.Options{
			Composites: []engine.Composite{{Controller: controller(v1alpha1.ChildUpdateInPlace), Sync: engine.Typed(greet)}},
			Lease:      "greetings", Namespace: o.Namespace, OnStatus: seen.note,
		}
	}
	var first, second statuses
	_, stop := run(t, options(&first))
	first.await(t, "CompositeController greetings", metav1.ConditionTrue, "runs")
	waiting, err := engine.New(cluster.Shared(t).Config(t), options(&second))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- waiting.Run(t.Context()) }()
	stop()
	second.await(t, "CompositeController greetings", metav1.ConditionTrue, "runs")
	o.Patch(leases, "greetings", `{"spec":{"holderIdentity":"another","leaseDurationSeconds":3600}}`)
	if err := <-ended; !errors.Is(err, leaderelection.ErrLost) {
		t.Errorf("after the Lease was lost Run returned %v", err)
	}
}

// A program that has no finalize hook any more leaves no parent behind that cannot be deleted.
func TestAFinalizerOfAFormerVersionIsRemoved(t *testing.T) {
	o := objects(t)
	_, stop := run(t, engine.Options{Composites: []engine.Composite{{
		Controller: controller(v1alpha1.ChildUpdateInPlace), Sync: engine.Typed(greet), Finalize: leave,
	}}})
	o.Create(greetings, newGreeting("b"))
	o.Await(greetings, "b", "to have a finalizer", func(g *unstructured.Unstructured) bool { return len(g.GetFinalizers()) == 1 })
	stop()
	run(t, engine.Options{Composites: []engine.Composite{{Controller: controller(v1alpha1.ChildUpdateInPlace), Sync: engine.Typed(greet)}}})
	o.Await(greetings, "b", "to have no finalizer", func(g *unstructured.Unstructured) bool { return len(g.GetFinalizers()) == 0 })
	o.Delete(greetings, "b") // Engines of other tests would have it as a parent.
	o.Await(greetings, "b", "to be gone", cluster.Gone)
}

// revisions is what a cluster needs for rollouts.
const revisions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: controllerrevisions.metacontroller.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, as that of Metacontroller"}
spec:
  group: metacontroller.k8s.io
  names: {kind: ControllerRevision, plural: controllerrevisions}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// Revisions are stored by whoever serves ControllerRevisions.
func TestARolloutNeedsControllerRevisions(t *testing.T) {
	o := objects(t)
	var seen statuses
	run(t, engine.Options{
		Composites: []engine.Composite{{Controller: controller(v1alpha1.ChildUpdateRollingInPlace), Sync: engine.Typed(greet)}}, OnStatus: seen.note,
	})
	seen.await(t, "CompositeController greetings", metav1.ConditionFalse, "apply the CustomResourceDefinition controllerrevisions.metacontroller.k8s.io")
	cluster.Shared(t).ApplyForTest(t, revisions)
	seen.await(t, "CompositeController greetings", metav1.ConditionTrue, "runs")
	o.Create(greetings, newGreeting("c"))
	o.Await(configMaps, "c", "to be made", says("Hello Ada"))
	o.Patch(greetings, "c", `{"spec":{"who":"Grace"}}`)
	o.Await(configMaps, "c", "to be rolled", says("Hello Grace"))
	if list, err := o.Resource(controllerRevisions).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
		t.Errorf("the ControllerRevisions are %v: %v", list, err)
	}
	o.Delete(greetings, "c")
	o.Await(greetings, "c", "to be gone", cluster.Gone)
}
