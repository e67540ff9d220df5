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
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// limit is more than anything here takes on a busy machine.
	limit = 45 * time.Second
	// selected is the label by which a test's controller selects its parents.
	selected = "hooks.example.com/test"

	composite = "CompositeController"
	decorator = "DecoratorController"
)

var (
	things        = schema.GroupVersionResource{Group: "hooks.example.com", Version: "v1", Resource: "things"}
	clusterThings = schema.GroupVersionResource{Group: "hooks.example.com", Version: "v1", Resource: "clusterthings"}
	configMaps    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces    = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// TestMain lets many tests run at the same time, however few processors there are: they spend their time waiting.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(cluster.Main(m))
}

// shared is the server and the clients of all tests.
type shared struct {
	*cluster.Cluster
	proxy   *proxy
	server  *server.Server
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	own     versioned.Interface
}

func setUp(t *testing.T) *shared {
	t.Helper()
	c := cluster.Shared(t)
	s := &shared{Cluster: c, proxy: newProxy(t, c)}
	s.server = server.Start(t, c, server.Options{Kubeconfig: s.proxy.kubeconfig})
	config := c.Config(t)
	config.QPS = -1
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
	s.define(t, "Thing", "things", "Namespaced")
	s.define(t, "ClusterThing", "clusterthings", "Cluster")
	return s
}

// define defines a kind and waits until it is served.
func (s *shared) define(t *testing.T, kind, plural, scope string) {
	t.Helper()
	s.KubectlInput(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.hooks.example.com}
spec:
  group: hooks.example.com
  names: {kind: %[1]s, plural: %[2]s}
  scope: %[3]s
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, kind, plural, scope), "apply", "-f", "-")
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/"+plural+".hooks.example.com")
}

// A stage is one test: a namespace, a controller of either kind, and its hooks.
type stage struct {
	*shared
	t          *testing.T
	kind       string
	namespace  string
	controller string
	hook       *hooktest.Server
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, s *shared, kind string, options ...hooktest.Option) *stage {
	t.Helper()
	namespace := s.namespace(t)
	st := &stage{shared: s, t: t, kind: kind, namespace: namespace, controller: namespace, hook: hooktest.NewServer(t, options...)}
	t.Cleanup(st.end)
	return st
}

// namespace makes a namespace that goes with the test. It is made without kubectl, which would take its time for so many.
func (s *shared) namespace(t *testing.T) string {
	t.Helper()
	name := "hooks-" + rand.String(8)
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.kube.CoreV1().Namespaces().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := s.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting namespace %s: %v", name, err)
		}
	})
	return name
}

func (s *stage) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), limit)
	defer cancel()
	remove := s.own.MetacontrollerV1alpha1().CompositeControllers().Delete
	if s.kind == decorator {
		remove = s.own.MetacontrollerV1alpha1().DecoratorControllers().Delete
	}
	if err := remove(ctx, s.controller, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.t.Errorf("deleting the controller: %v", err)
	}
}

// definition is what both kinds of controllers have in common. Parents are Things, unless resource says something else.
type definition struct {
	resource                  schema.GroupVersionResource
	sync, finalize, customize *v1alpha1.Hook
	endpoints                 []v1alpha1.EndpointConfig
	resyncPeriod              *int32
	ignoreStatus              *bool
	// children declares ConfigMaps and Deployments as children or attachments.
	children bool
}

// run creates the controller and waits until it runs.
func (s *stage) run(d definition) {
	s.t.Helper()
	if d.resource.Empty() {
		d.resource = things
	}
	meta := metav1.ObjectMeta{Name: s.controller}
	rule := v1alpha1.ResourceRule{APIVersion: d.resource.GroupVersion().String(), Resource: d.resource.Resource}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{selected: s.controller}}
	var children []v1alpha1.CompositeControllerChildResourceRule
	var attachments []v1alpha1.DecoratorControllerAttachmentRule
	if d.children {
		for _, rule := range []v1alpha1.ResourceRule{{APIVersion: "v1", Resource: "configmaps"}, {APIVersion: "apps/v1", Resource: "deployments"}} {
			children = append(children, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule})
			attachments = append(attachments, v1alpha1.DecoratorControllerAttachmentRule{ResourceRule: rule})
		}
	}
	var err error
	client := s.own.MetacontrollerV1alpha1()
	if s.kind == decorator {
		_, err = client.DecoratorControllers().Create(s.t.Context(), &v1alpha1.DecoratorController{
			ObjectMeta: meta, Spec: v1alpha1.DecoratorControllerSpec{
				Resources: []v1alpha1.DecoratorControllerResourceRule{
					{ResourceRule: rule, LabelSelector: selector, IgnoreStatusChanges: d.ignoreStatus},
				},
				Attachments:     attachments,
				Hooks:           &v1alpha1.DecoratorControllerHooks{Sync: d.sync, Finalize: d.finalize, Customize: d.customize},
				EndpointConfigs: d.endpoints, ResyncPeriodSeconds: d.resyncPeriod,
			},
		}, metav1.CreateOptions{})
	} else {
		_, err = client.CompositeControllers().Create(s.t.Context(), &v1alpha1.CompositeController{
			ObjectMeta: meta, Spec: v1alpha1.CompositeControllerSpec{
				ParentResource: v1alpha1.CompositeControllerParentResourceRule{
					ResourceRule: rule, LabelSelector: selector, IgnoreStatusChanges: d.ignoreStatus,
				},
				ChildResources:  children,
				Hooks:           &v1alpha1.CompositeControllerHooks{Sync: d.sync, Finalize: d.finalize, Customize: d.customize},
				EndpointConfigs: d.endpoints, ResyncPeriodSeconds: d.resyncPeriod, GenerateSelector: new(true),
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatalf("creating the controller: %v", err)
	}
	cluster.Eventually(s.t, limit, "the controller to run", func(ctx context.Context) (bool, string) {
		status, err := s.controllerStatus(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && condition.Status == metav1.ConditionTrue {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", status)
	})
}

func (s *stage) controllerStatus(ctx context.Context) (*v1alpha1.ControllerStatus, error) {
	if s.kind == decorator {
		d, err := s.own.MetacontrollerV1alpha1().DecoratorControllers().Get(ctx, s.controller, metav1.GetOptions{})
		return &d.Status.ControllerStatus, err
	}
	c, err := s.own.MetacontrollerV1alpha1().CompositeControllers().Get(ctx, s.controller, metav1.GetOptions{})
	return &c.Status.ControllerStatus, err
}

// at declares a hook at a path of the stage's server.
func (s *stage) at(path string, version v1alpha1.HookVersion) *v1alpha1.Hook {
	return &v1alpha1.Hook{Version: &version, Webhook: &v1alpha1.Webhook{URL: new(s.hook.URL(path))}}
}

// question is the body of a request, of any hook.
type question map[string]any

// parent is the parent or target that a request is about.
func (q question) parent() *unstructured.Unstructured {
	for _, key := range []string{"parent", "object"} {
		if o, ok := q[key].(map[string]any); ok {
			return &unstructured.Unstructured{Object: o}
		}
	}
	return &unstructured.Unstructured{}
}

// answering returns a hook that answers with the JSON that f returns.
func answering(f func(question) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &q) != nil {
			http.Error(w, "this is no request of a hook", http.StatusBadRequest)
			return
		}
		hooktest.JSON(f(q)).ServeHTTP(w, r)
	})
}

// reporting returns a hook of either kind that sets a status.
func reporting(f func(question) map[string]any) http.Handler {
	return answering(func(q question) any { return map[string]any{"status": f(q)} })
}

// fine returns a hook of either kind that sets the status done to "yes".
func fine() http.Handler {
	return reporting(func(question) map[string]any { return map[string]any{"done": "yes"} })
}

// calls returns the requests at a path about one parent, or about all when name is empty.
func (s *stage) calls(path, name string) []question {
	var found []question
	for _, r := range s.hook.Requests(path) {
		var q question
		if err := json.Unmarshal(r.Body, &q); err == nil && (name == "" || q.parent().GetName() == name) {
			found = append(found, q)
		}
	}
	return found
}

// awaitCalls waits until the hook at a path was called so often about one parent, or about all when name is empty.
func (s *stage) awaitCalls(path, name string, want int) []question {
	s.t.Helper()
	var found []question
	cluster.Eventually(s.t, limit, fmt.Sprintf("%d calls of %s", want, path), func(context.Context) (bool, string) {
		found = s.calls(path, name)
		return len(found) >= want, fmt.Sprintf("%d calls", len(found))
	})
	return found
}

// quiet waits until the hook at a path was not called for a while, and returns the number of calls so far.
func (s *stage) quiet(path string) int {
	s.t.Helper()
	const still = 700 * time.Millisecond
	last, since := -1, time.Now()
	cluster.Eventually(s.t, limit, "the hook to be left alone", func(context.Context) (bool, string) {
		if n := len(s.hook.Requests(path)); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > still, fmt.Sprintf("%d calls", last)
	})
	return last
}

// parent creates a Thing that the controller selects.
func (s *stage) parent(name string, spec map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	return s.create(things, s.namespace, name, map[string]any{"spec": spec}, map[string]string{selected: s.controller})
}

// kindOf are the kinds of the resources that tests create.
var kindOf = map[string]string{
	"things": "Thing", "clusterthings": "ClusterThing", "configmaps": "ConfigMap", "secrets": "Secret", "namespaces": "Namespace",
	"latecomers": "Latecomer",
}

func (s *stage) create(r schema.GroupVersionResource, namespace, name string, content map[string]any, labels map[string]string) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: content}
	if content == nil {
		o.Object = map[string]any{}
	}
	o.SetAPIVersion(r.GroupVersion().String())
	o.SetKind(kindOf[r.Resource])
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(labels)
	created, err := s.dynamic.Resource(r).Namespace(namespace).Create(s.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatalf("creating %s %s: %v", r.Resource, name, err)
	}
	if namespace == "" {
		s.t.Cleanup(func() {
			err := s.dynamic.Resource(r).Delete(context.WithoutCancel(s.t.Context()), name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.t.Errorf("deleting %s %s: %v", r.Resource, name, err)
			}
		})
	}
	return created
}

// patch merges a JSON text into an object.
func (s *stage) patch(r schema.GroupVersionResource, namespace, name, text string, subresources ...string) {
	s.t.Helper()
	_, err := s.dynamic.Resource(r).Namespace(namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(text),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.t.Fatalf("patching %s %s: %v", r.Resource, name, err)
	}
}

func (s *stage) remove(r schema.GroupVersionResource, namespace, name string) {
	s.t.Helper()
	if err := s.dynamic.Resource(r).Namespace(namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatalf("deleting %s %s: %v", r.Resource, name, err)
	}
}

// awaitStatus waits until a field of a Thing's status is as wanted.
func (s *stage) awaitStatus(name, field, want string) {
	s.t.Helper()
	s.awaitStatusOf(things, s.namespace, name, field, want)
}

func (s *stage) awaitStatusOf(r schema.GroupVersionResource, namespace, name, field, want string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, fmt.Sprintf("status.%s of %s to be %q", field, name, want), func(ctx context.Context) (bool, string) {
		o, err := s.dynamic.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		got, _, err := unstructured.NestedString(o.Object, "status", field)
		return err == nil && got == want, fmt.Sprintf("%q %v", o.Object["status"], err)
	})
}

// syncError waits for the event of a failed sync of a parent, and returns it. Its text is "Sync error: ", the prefix of the
// controller's kind, and text.
func (s *stage) syncError(name, text string) *corev1.Event {
	s.t.Helper()
	var found *corev1.Event
	cluster.Eventually(s.t, limit, fmt.Sprintf("the event of %s that says %q", name, text), func(context.Context) (bool, string) {
		var seen []string
		for _, e := range s.events(name) {
			if e.Type == corev1.EventTypeWarning && e.Reason == "SyncError" && strings.HasPrefix(e.Message, "Sync error: ") &&
				strings.HasSuffix(e.Message, text) {
				found = &e
				return true, ""
			}
			seen = append(seen, e.Type+" "+e.Reason+" "+e.Message)
		}
		return false, "\n" + strings.Join(seen, "\n")
	})
	return found
}

// events returns the events about an object of the stage's namespace.
func (s *stage) events(name string) []corev1.Event {
	s.t.Helper()
	list, err := s.kube.CoreV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		s.t.Fatalf("listing events: %v", err)
	}
	return list.Items
}

// calm fails the test if there is a Warning event about a parent.
func (s *stage) calm(name string) {
	s.t.Helper()
	for _, e := range s.events(name) {
		if e.Type == corev1.EventTypeWarning {
			s.t.Errorf("there is an event %s: %s", e.Reason, e.Message)
		}
	}
}
