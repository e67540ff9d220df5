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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// limit is more than anything here takes on a busy machine.
	limit = 2 * time.Minute
	// hookTimeout is more than any response takes there. A call that is cut short is an event that no test expects.
	hookTimeout = time.Minute
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
	*cluster.Clients
	proxy  *proxy
	server *server.Server
}

func setUp(t *testing.T) *shared {
	t.Helper()
	c := cluster.Shared(t)
	s := &shared{Cluster: c, Clients: cluster.NewClients(t, c.Config(t)), proxy: newProxy(t, c)}
	s.server = server.Start(t, c, server.Options{Kubeconfig: s.proxy.kubeconfig})
	c.Define(t,
		cluster.CustomResource{Resource: things, Kind: "Thing"},
		cluster.CustomResource{Resource: clusterThings, Kind: "ClusterThing", ClusterScoped: true})
	return s
}

// A stage is one test: the objects of a namespace, a controller of either kind, and its hooks.
type stage struct {
	*shared
	*cluster.Objects
	t          *testing.T
	kind       string
	controller string
	hook       *hooktest.Server
	// running is the controller from run on.
	running *controllers.Controller
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, s *shared, kind string, options ...hooktest.Option) *stage {
	t.Helper()
	namespace := s.Namespace(t)
	return &stage{
		shared: s, Objects: s.Objects(t, namespace, limit), t: t, kind: kind, controller: namespace, hook: hooktest.NewServer(t, options...),
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
	if s.kind == decorator {
		s.running = controllers.Decorator(s.t, s.Clients, limit, s.controller, v1alpha1.DecoratorControllerSpec{
			Resources: []v1alpha1.DecoratorControllerResourceRule{
				{ResourceRule: rule, LabelSelector: selector, IgnoreStatusChanges: d.ignoreStatus},
			},
			Attachments:     attachments,
			Hooks:           &v1alpha1.DecoratorControllerHooks{Sync: d.sync, Finalize: d.finalize, Customize: d.customize},
			EndpointConfigs: d.endpoints, ResyncPeriodSeconds: d.resyncPeriod,
		})
		return
	}
	s.running = controllers.Composite(s.t, s.Clients, limit, s.controller, v1alpha1.CompositeControllerSpec{
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule: rule, LabelSelector: selector, IgnoreStatusChanges: d.ignoreStatus,
		},
		ChildResources:  children,
		Hooks:           &v1alpha1.CompositeControllerHooks{Sync: d.sync, Finalize: d.finalize, Customize: d.customize},
		EndpointConfigs: d.endpoints, ResyncPeriodSeconds: d.resyncPeriod, GenerateSelector: new(true),
	})
}

// at declares a hook at a path of the stage's server.
func (s *stage) at(path string, version v1alpha1.HookVersion) *v1alpha1.Hook {
	return &v1alpha1.Hook{Version: &version, Webhook: &v1alpha1.Webhook{
		URL: new(s.hook.URL(path)), Timeout: &metav1.Duration{Duration: hookTimeout},
	}}
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

// answering returns a hook that responses with the JSON that f returns.
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

// quiet waits until the hook at a path is left alone, and returns the number of calls so far.
func (s *stage) quiet(path string) int {
	s.t.Helper()
	return cluster.Quiet(s.t, limit, func() int { return len(s.hook.Requests(path)) })
}

// parent creates a Thing that the controller selects.
func (s *stage) parent(name string, spec map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	return s.create(things, s.Namespace, name, map[string]any{"spec": spec}, map[string]string{selected: s.controller})
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
	o.SetName(name)
	o.SetLabels(labels)
	return s.In(namespace).Create(r, o)
}

// awaitStatus waits until a field of a Thing's status is as wanted.
func (s *stage) awaitStatus(name, field, want string) {
	s.t.Helper()
	s.awaitStatusOf(things, s.Namespace, name, field, want)
}

func (s *stage) awaitStatusOf(r schema.GroupVersionResource, namespace, name, field, want string) {
	s.t.Helper()
	s.In(namespace).Await(r, name, fmt.Sprintf("to have the status %s %q", field, want), func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		got, _, err := unstructured.NestedString(o.Object, "status", field)
		return err == nil && got == want
	})
}

// syncError waits for the event of a failed sync of a parent, and returns it. Its text is "Sync error: ", the prefix of the
// controller's kind, and text.
func (s *stage) syncError(name, text string) *corev1.Event {
	s.t.Helper()
	return s.AwaitEventAs(name, fmt.Sprintf("that says %q", text), func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Reason == "SyncError" && strings.HasPrefix(e.Message, "Sync error: ") &&
			strings.HasSuffix(e.Message, text)
	})
}

// calm fails the test if there is a Warning event about a parent.
func (s *stage) calm(name string) {
	s.t.Helper()
	for _, e := range s.Events(name) {
		if e.Type == corev1.EventTypeWarning {
			s.t.Errorf("there is an event %s: %s", e.Reason, e.Message)
		}
	}
}
