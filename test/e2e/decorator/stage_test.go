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

package decorator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

const (
	// limit is more than anything here takes on a busy machine.
	limit = 45 * time.Second
	// selected is the label by which a test's controller selects its targets.
	selected = "decorator.example.com/test"
)

var (
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	services     = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	revisions    = v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions")
	bareThings   = schema.GroupVersionResource{Group: "decorator.example.com", Version: "v1", Resource: "barethings"}
	fullThings   = schema.GroupVersionResource{Group: "decorator.example.com", Version: "v1", Resource: "fullthings"}
)

const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: barethings.decorator.example.com}
spec:
  group: decorator.example.com
  names: {kind: BareThing, plural: barethings, singular: barething}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fullthings.decorator.example.com}
spec:
  group: decorator.example.com
  names: {kind: FullThing, plural: fullthings, singular: fullthing}
  scope: Namespaced
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
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	own     versioned.Interface
}

func setUp(t *testing.T) *shared {
	t.Helper()
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	s := &shared{Cluster: c}
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
		"crd/barethings.decorator.example.com", "crd/fullthings.decorator.example.com")
	return s
}

type (
	request  = hook.DecoratorRequest
	response = hook.DecoratorResponse
)

// A stage is one test: a namespace, a controller, and its hooks.
type stage struct {
	*shared
	t          *testing.T
	namespace  string
	controller string
	hook       *hooktest.Server

	mu     sync.Mutex
	decide func(*request) *response
	// calls counts the sync and finalize calls for each target.
	calls map[string]int
	last  *request
}

func newStage(t *testing.T, s *shared, decide func(*request) *response) *stage {
	t.Helper()
	namespace := s.Namespace(t)
	st := &stage{
		shared: s, t: t, namespace: namespace, controller: namespace, hook: hooktest.NewServer(t), decide: decide, calls: map[string]int{},
	}
	answer := hooktest.Decorator(func(q *request) (*response, error) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.calls[q.Object.GetName()]++
		st.last = q
		return st.decide(q), nil
	})
	st.hook.Handle("/sync", answer)
	st.hook.Handle("/finalize", answer)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		err := s.own.MetacontrollerV1alpha1().DecoratorControllers().Delete(ctx, st.controller, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting the controller: %v", err)
		}
	})
	return st
}

// answers changes what the hooks answer.
func (s *stage) answers(decide func(*request) *response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = decide
}

// called returns how often the hooks were called for a target, and for all.
func (s *stage) called(name string) (one, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.calls {
		all += n
	}
	return s.calls[name], all
}

func (s *stage) lastRequest() *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *stage) hookAt(path string) *v1alpha1.Hook {
	return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(s.hook.URL(path))}}
}

// target declares a kind of targets, selected by the test's label.
func (s *stage) target(r schema.GroupVersionResource) v1alpha1.DecoratorControllerResourceRule {
	return v1alpha1.DecoratorControllerResourceRule{
		ResourceRule:  v1alpha1.ResourceRule{APIVersion: r.GroupVersion().String(), Resource: r.Resource},
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{selected: s.controller}},
	}
}

// run creates the controller, changed by edit, and waits until it runs.
func (s *stage) run(edit func(*v1alpha1.DecoratorControllerSpec), targets ...schema.GroupVersionResource) {
	s.t.Helper()
	c := &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: s.controller}}
	c.Spec.Hooks = &v1alpha1.DecoratorControllerHooks{Sync: s.hookAt("/sync")}
	for _, r := range targets {
		c.Spec.Resources = append(c.Spec.Resources, s.target(r))
	}
	if edit != nil {
		edit(&c.Spec)
	}
	if _, err := s.own.MetacontrollerV1alpha1().DecoratorControllers().Create(s.t.Context(), c, metav1.CreateOptions{}); err != nil {
		s.t.Fatalf("creating the controller: %v", err)
	}
	cluster.Eventually(s.t, limit, "the controller to run", func(ctx context.Context) (bool, string) {
		c, err := s.own.MetacontrollerV1alpha1().DecoratorControllers().Get(ctx, s.controller, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady), fmt.Sprintf("%+v", c.Status)
	})
}

// attaches declares a kind of attachments.
func attaches(spec *v1alpha1.DecoratorControllerSpec, r schema.GroupVersionResource, method v1alpha1.ChildUpdateMethod) {
	spec.Attachments = append(spec.Attachments, v1alpha1.DecoratorControllerAttachmentRule{
		ResourceRule:   v1alpha1.ResourceRule{APIVersion: r.GroupVersion().String(), Resource: r.Resource},
		UpdateStrategy: &v1alpha1.DecoratorControllerAttachmentUpdateStrategy{Method: method},
	})
}

// create creates an object in the stage's namespace that the controller selects, with further fields.
func (s *stage) create(r schema.GroupVersionResource, kind, name string, fields map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, fields)
	o.SetAPIVersion(r.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	o.SetLabels(map[string]string{selected: s.controller})
	created, err := s.at(r).Create(s.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatalf("creating %s %s: %v", kind, name, err)
	}
	return created
}

// at reaches the resource in the stage's namespace.
func (s *stage) at(r schema.GroupVersionResource) dynamic.ResourceInterface {
	if r == namespaces {
		return s.dynamic.Resource(r)
	}
	return s.dynamic.Resource(r).Namespace(s.namespace)
}

func (s *stage) patch(r schema.GroupVersionResource, name, text string, subresources ...string) *unstructured.Unstructured {
	s.t.Helper()
	o, err := s.at(r).Patch(s.t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.t.Fatalf("patching %s: %v", name, err)
	}
	return o
}

func (s *stage) remove(r schema.GroupVersionResource, name string) {
	s.t.Helper()
	if err := s.at(r).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatalf("deleting %s: %v", name, err)
	}
}

// get reads an object, nil if it is not there.
func (s *stage) get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	s.t.Helper()
	o, err := s.at(r).Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatalf("reading %s: %v", name, err)
	}
	return o
}

// await waits until an object is as wanted, and returns it.
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

func exists(o *unstructured.Unstructured) bool { return o != nil }

func gone(o *unstructured.Unstructured) bool { return o == nil }

// awaitCalls waits until the hooks were called for a target at least so often.
func (s *stage) awaitCalls(name string, n int) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, fmt.Sprintf("%d calls for %s", n, name), func(context.Context) (bool, string) {
		one, _ := s.called(name)
		return one >= n, fmt.Sprintf("%d calls", one)
	})
}

// quiet waits until the hooks were not called for a while, and returns the number of all calls so far.
func (s *stage) quiet() int {
	s.t.Helper()
	const still = 700 * time.Millisecond
	last, since := -1, time.Now()
	cluster.Eventually(s.t, limit, "the hooks to be left alone", func(context.Context) (bool, string) {
		if _, n := s.called(""); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > still, fmt.Sprintf("%d calls", last)
	})
	return last
}

// event waits for an event about an object whose message contains a text.
func (s *stage) event(name, eventType, reason, text string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, fmt.Sprintf("the event %s %s %q", eventType, reason, text), func(ctx context.Context) (bool, string) {
		list, err := s.kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return false, err.Error()
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.Type == eventType && e.Reason == reason && strings.Contains(e.Message, text) {
				return true, ""
			}
			seen = append(seen, e.Type+" "+e.Reason+" "+e.Message)
		}
		return false, strings.Join(seen, "\n")
	})
}

// configMap returns a ConfigMap as a hook writes it.
func configMap(name string, data map[string]any) *hook.Object {
	return &hook.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
	}}
}

// nothing is an answer that changes nothing.
func nothing(*request) *response { return &response{} }
