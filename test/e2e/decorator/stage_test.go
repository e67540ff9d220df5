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
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
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

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// shared is the cluster and the clients of all tests.
type shared struct {
	*cluster.Cluster
	*cluster.Clients
}

func setUp(t *testing.T) *shared {
	t.Helper()
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	c.Define(t,
		cluster.CustomResource{Resource: bareThings, Kind: "BareThing", WithoutStatus: true},
		cluster.CustomResource{Resource: fullThings, Kind: "FullThing"})
	return &shared{c, cluster.NewClients(t, c.Config(t))}
}

type (
	request  = hook.DecoratorRequest
	response = hook.DecoratorResponse
)

// A stage is one test: the objects of a namespace, a controller, and its hooks.
type stage struct {
	*shared
	*cluster.Objects
	t          *testing.T
	controller string
	hook       *hooktest.Server
	// running is the controller from run on.
	running *controllers.Controller

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
		shared: s, Objects: s.Objects(t, namespace, limit), t: t, controller: namespace, hook: hooktest.NewServer(t),
		decide: decide, calls: map[string]int{},
	}
	response := hooktest.Decorator(func(q *request) (*response, error) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.calls[q.Object.GetName()]++
		st.last = q
		return st.decide(q), nil
	})
	st.hook.Handle("/sync", response)
	st.hook.Handle("/finalize", response)
	return st
}

// responses changes what the hooks response.
func (s *stage) responses(decide func(*request) *response) {
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
	spec := v1alpha1.DecoratorControllerSpec{Hooks: &v1alpha1.DecoratorControllerHooks{Sync: s.hookAt("/sync")}}
	for _, r := range targets {
		spec.Resources = append(spec.Resources, s.target(r))
	}
	if edit != nil {
		edit(&spec)
	}
	s.running = controllers.Decorator(s.t, s.Clients, limit, s.controller, spec)
}

// attaches declares a kind of attachments.
func attaches(spec *v1alpha1.DecoratorControllerSpec, r schema.GroupVersionResource, method v1alpha1.ChildUpdateMethod) {
	spec.Attachments = append(spec.Attachments, v1alpha1.DecoratorControllerAttachmentRule{
		ResourceRule:   v1alpha1.ResourceRule{APIVersion: r.GroupVersion().String(), Resource: r.Resource},
		UpdateStrategy: &v1alpha1.DecoratorControllerAttachmentUpdateStrategy{Method: method},
	})
}

// createLabeled creates an object in the stage's namespace that the controller selects, with further fields.
func (s *stage) createLabeled(r schema.GroupVersionResource, kind, name string, fields map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, fields)
	o.SetAPIVersion(r.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	o.SetLabels(map[string]string{selected: s.controller})
	return s.Create(r, o)
}

// awaitCalls waits until the hooks were called for a target at least so often.
func (s *stage) awaitCalls(name string, n int) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, fmt.Sprintf("%d calls for %s", n, name), func(context.Context) (bool, string) {
		one, _ := s.called(name)
		return one >= n, fmt.Sprintf("%d calls", one)
	})
}

// quiet waits until the hooks are left alone, and returns the number of all calls so far.
func (s *stage) quiet() int {
	s.t.Helper()
	return cluster.Quiet(s.t, limit, func() int {
		_, n := s.called("")
		return n
	})
}

// configMap returns a ConfigMap as a hook writes it.
func configMap(name string, data map[string]any) *hook.Object {
	return &hook.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
	}}
}

// nothing is a response that changes nothing.
func nothing(*request) *response { return &response{} }
