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
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// limit is more than anything here takes on a busy machine.
const limit = 45 * time.Second

// selected is the label by which a test's controller selects its parents.
const selected = "conformance.example.com/test"

var (
	things        = schema.GroupVersionResource{Group: "conformance.example.com", Version: "v1", Resource: "things"}
	clusterThings = schema.GroupVersionResource{Group: "conformance.example.com", Version: "v1", Resource: "clusterthings"}
	configMaps    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.conformance.example.com}
spec:
  group: conformance.example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterthings.conformance.example.com}
spec:
  group: conformance.example.com
  names: {kind: ClusterThing, plural: clusterthings, singular: clusterthing}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// shared is the server and the clients of all tests.
type shared struct {
	*cluster.Cluster
	server  *server.Server
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	own     versioned.Interface
}

func setUp(t *testing.T) *shared {
	t.Helper()
	c := cluster.Shared(t)
	s := &shared{Cluster: c, server: server.Start(t, c, server.Options{})}
	config := c.Config(t)
	var err error
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.own, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	c.KubectlInput(t, crds, "apply", "-f", "-")
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s",
		"crd/things.conformance.example.com", "crd/clusterthings.conformance.example.com")
	return s
}

// A stage is one test: a namespace, a controller, and its hook.
type stage struct {
	*shared
	t          *testing.T
	namespace  string
	controller string
	hook       *hooktest.Server

	mu   sync.Mutex
	sync func(*hook.CompositeRequest) (*hook.CompositeResponse, error)
	last *hook.CompositeRequest
	n    int
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, s *shared) *stage {
	t.Helper()
	namespace := s.Namespace(t)
	st := &stage{shared: s, t: t, namespace: namespace, controller: namespace, hook: hooktest.NewServer(t)}
	st.hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.n++
		st.last = q
		if st.sync == nil {
			return nil, fmt.Errorf("no answer prepared")
		}
		return st.sync(q)
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		err := s.own.MetacontrollerV1alpha1().CompositeControllers().Delete(ctx, st.controller, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting the controller: %v", err)
		}
	})
	return st
}

// answers sets what the sync hook answers from now on.
func (s *stage) answers(f func(*hook.CompositeRequest) (*hook.CompositeResponse, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sync = f
}

// wants lets the sync hook answer with children that do not depend on the parent.
func (s *stage) wants(children ...*hook.Object) {
	s.answers(func(*hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: children}, nil
	})
}

// calls returns how often the sync hook was called, and the last request.
func (s *stage) calls() (int, *hook.CompositeRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, s.last
}

// rule declares a child kind.
func rule(apiVersion, resource string, method v1alpha1.ChildUpdateMethod) v1alpha1.CompositeControllerChildResourceRule {
	return v1alpha1.CompositeControllerChildResourceRule{
		ResourceRule:   v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource},
		UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: method},
	}
}

// run creates the controller, changed by edit, and waits until it runs.
func (s *stage) run(edit func(*v1alpha1.CompositeControllerSpec)) {
	s.t.Helper()
	c := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: s.controller}, Spec: v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule:  v1alpha1.ResourceRule{APIVersion: "conformance.example.com/v1", Resource: "things"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{selected: s.controller}},
		},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{rule("v1", "configmaps", v1alpha1.ChildUpdateInPlace)},
		Hooks: &v1alpha1.CompositeControllerHooks{
			Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(s.hook.URL("/sync"))}},
		},
	}}
	if edit != nil {
		edit(&c.Spec)
	}
	if _, err := s.own.MetacontrollerV1alpha1().CompositeControllers().Create(s.t.Context(), c, metav1.CreateOptions{}); err != nil {
		s.t.Fatalf("creating the controller: %v", err)
	}
	s.awaitReady()
}

func (s *stage) awaitReady() {
	s.t.Helper()
	cluster.Eventually(s.t, limit, "the controller to run", func(ctx context.Context) (bool, string) {
		c, err := s.own.MetacontrollerV1alpha1().CompositeControllers().Get(ctx, s.controller, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range c.Status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && condition.Status == metav1.ConditionTrue &&
				condition.ObservedGeneration == c.Generation {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", c.Status)
	})
}

// parent creates a Thing that the controller selects.
func (s *stage) parent(name string, spec map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	return s.create(things, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "conformance.example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": name, "namespace": s.namespace, "labels": map[string]any{selected: s.controller}},
		"spec":     spec,
	}})
}

func (s *stage) create(r schema.GroupVersionResource, o *unstructured.Unstructured) *unstructured.Unstructured {
	s.t.Helper()
	created, err := s.dynamic.Resource(r).Namespace(o.GetNamespace()).Create(s.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatalf("creating %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return created
}

// get reads an object of the stage's namespace, nil if it is not there.
func (s *stage) get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	s.t.Helper()
	o, err := s.dynamic.Resource(r).Namespace(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatalf("reading %s: %v", name, err)
	}
	return o
}

// await waits until an object of the stage's namespace is as wanted, and returns it.
func (s *stage) await(r schema.GroupVersionResource, name, what string, want func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	s.t.Helper()
	var found *unstructured.Unstructured
	cluster.Eventually(s.t, limit, fmt.Sprintf("%s %s %s", r.Resource, name, what), func(context.Context) (bool, string) {
		found = s.get(r, name)
		if found == nil {
			return want(nil), "it is not there"
		}
		shown, err := json.Marshal(found.Object)
		if err != nil {
			return false, err.Error()
		}
		return want(found), string(shown)
	})
	return found
}

// exists is a condition for await.
func exists(o *unstructured.Unstructured) bool { return o != nil }

// gone is a condition for await.
func gone(o *unstructured.Unstructured) bool { return o == nil }

// patch merges a JSON text into an object of the stage's namespace.
func (s *stage) patch(r schema.GroupVersionResource, name, text string, subresources ...string) *unstructured.Unstructured {
	s.t.Helper()
	o, err := s.dynamic.Resource(r).Namespace(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(text),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.t.Fatalf("patching %s: %v", name, err)
	}
	return o
}

func (s *stage) remove(r schema.GroupVersionResource, name string) {
	s.t.Helper()
	if err := s.dynamic.Resource(r).Namespace(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatalf("deleting %s: %v", name, err)
	}
}

// event waits for an event about an object whose message contains a text, and returns it.
func (s *stage) event(name, eventType, reason, text string) corev1.Event {
	s.t.Helper()
	var found corev1.Event
	cluster.Eventually(s.t, limit, fmt.Sprintf("the event %s %s %q", eventType, reason, text), func(ctx context.Context) (bool, string) {
		list, err := s.kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return false, err.Error()
		}
		var seen []string
		for _, e := range list.Items {
			if e.Type == eventType && e.Reason == reason && strings.Contains(e.Message, text) {
				found = e
				return true, ""
			}
			seen = append(seen, e.Type+" "+e.Reason+" "+e.Message)
		}
		return false, strings.Join(seen, "\n")
	})
	return found
}

// quiet waits until the hook was not called and no object changed for a while, and returns the number of calls so far.
func (s *stage) quiet() int {
	s.t.Helper()
	const still = 700 * time.Millisecond
	last, since := -1, time.Now()
	cluster.Eventually(s.t, limit, "the hook to be left alone", func(context.Context) (bool, string) {
		n, _ := s.calls()
		if n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > still, fmt.Sprintf("%d calls", n)
	})
	return last
}

// configMap returns a ConfigMap as a hook writes it.
func configMap(name string, data map[string]any) *hook.Object {
	return &hook.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
	}}
}

// value returns a nested string of an object.
func value(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	text, _, err := unstructured.NestedString(o.Object, path...)
	if err != nil {
		return err.Error()
	}
	return text
}
