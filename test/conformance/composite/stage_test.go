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
	"fmt"
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

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// shared is the server and the clients of all tests.
type shared struct {
	*cluster.Cluster
	*cluster.Clients
	server *server.Server
}

func setUp(t *testing.T) *shared {
	t.Helper()
	c := cluster.Shared(t)
	s := &shared{Cluster: c, Clients: cluster.NewClients(t, c.Config(t)), server: server.Start(t, c, server.Options{})}
	c.Define(t,
		cluster.CustomResource{Resource: things, Kind: "Thing"},
		cluster.CustomResource{Resource: clusterThings, Kind: "ClusterThing", ClusterScoped: true})
	return s
}

// A stage is one test: the objects of a namespace, a controller, and its hook.
type stage struct {
	*shared
	*cluster.Objects
	t          *testing.T
	controller string
	hook       *hooktest.Server
	// running is the controller from run on.
	running *controllers.Controller

	mu   sync.Mutex
	sync func(*hook.CompositeRequest) (*hook.CompositeResponse, error)
	last *hook.CompositeRequest
	n    int
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, s *shared) *stage {
	t.Helper()
	namespace := s.Namespace(t)
	st := &stage{shared: s, Objects: s.Objects(t, namespace, limit), t: t, controller: namespace, hook: hooktest.NewServer(t)}
	st.hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.n++
		st.last = q
		if st.sync == nil {
			return nil, fmt.Errorf("no response prepared")
		}
		return st.sync(q)
	}))
	return st
}

// responses sets what the sync hook responses from now on.
func (s *stage) responses(f func(*hook.CompositeRequest) (*hook.CompositeResponse, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sync = f
}

// wants lets the sync hook response with children that do not depend on the parent.
func (s *stage) wants(children ...*hook.Object) {
	s.responses(func(*hook.CompositeRequest) (*hook.CompositeResponse, error) {
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
	spec := v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule:  v1alpha1.ResourceRule{APIVersion: "conformance.example.com/v1", Resource: "things"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{selected: s.controller}},
		},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{rule("v1", "configmaps", v1alpha1.ChildUpdateInPlace)},
		Hooks: &v1alpha1.CompositeControllerHooks{
			Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(s.hook.URL("/sync"))}},
		},
	}
	if edit != nil {
		edit(&spec)
	}
	s.running = controllers.Composite(s.t, s.Clients, limit, s.controller, spec)
}

// parent creates a Thing that the controller selects.
func (s *stage) parent(name string, spec map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	return s.Create(things, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "conformance.example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": name, "labels": map[string]any{selected: s.controller}},
		"spec":     spec,
	}})
}

// quiet waits until the hook is left alone, and returns the number of calls so far.
func (s *stage) quiet() int {
	s.t.Helper()
	return cluster.Quiet(s.t, limit, func() int {
		n, _ := s.calls()
		return n
	})
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
