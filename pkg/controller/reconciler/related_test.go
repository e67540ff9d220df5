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

package reconciler_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// versioned is an API server that serves gadgets in one version.
type versioned struct{ version atomic.Value }

func (v *versioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != fmt.Sprintf("/apis/example.com/%v", v.version.Load()) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"gadgets","kind":"Gadget"}]}`)
}

// TestACustomizeHookIsAskedAgainWhenAKindIsGone has a version of related objects served no more, without an event of the parent.
func TestACustomizeHookIsAskedAgainWhenAKindIsGone(t *testing.T) {
	api := &versioned{}
	api.version.Store("v1beta1")
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	customize := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"relatedResources":[{"apiVersion":"example.com/%v","resource":"gadgets","names":["g"]}]}`, api.version.Load())
	}))
	t.Cleanup(customize.Close)
	s := newSceneAt(t, server.URL)
	s.exist(thing(t, "p", 1, "", ""))
	for _, version := range []string{"v1beta1", "v1"} {
		informer := s.shared.Cluster.Cache.Acquire(cache.Query{Resource: schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "gadgets"}})
		gadget := parse(t, fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":"Gadget","metadata":{"name":"g","uid":"g","resourceVersion":"1"}}`, version))
		if err := informer.Replace([]any{gadget}, "1"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.shared.Cluster.Discovery.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	var shown atomic.Value
	s.start(&kind{write: func(sync *reconciler.Sync) error {
		shown.Store(sync.Related[0].Key)
		return nil
	}}, func(c *reconciler.Config) { c.Definition = customized(customize.URL) })
	s.eventually("the version that is served", func() bool { return shown.Load() == "Gadget.example.com/v1beta1" })
	api.version.Store("v1")
	s.changeDefinition("gadgets.example.com")
	s.eventually("the version that is served now", func() bool { return shown.Load() == "Gadget.example.com/v1" })
}

// TestAResyncAsksTheCustomizeHookAgain is about who has changed the hook, while it is called or after that.
func TestAResyncAsksTheCustomizeHookAgain(t *testing.T) {
	for name, during := range map[string]bool{"AfterTheCall": false, "DuringTheCall": true} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			called, respond := make(chan struct{}), make(chan struct{})
			customize := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := calls.Add(1)
				if n == 1 {
					close(called)
					<-respond
				}
				_, _ = fmt.Fprintf(w, `{"relatedResources":[{"apiVersion":"example.com/v1","resource":"gadgets","names":["g%d"]}]}`, n)
			}))
			t.Cleanup(customize.Close)
			api := &versioned{}
			api.version.Store("v1")
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			s := newSceneAt(t, server.URL)
			s.exist(thing(t, "p", 1, "", ""))
			informer := s.shared.Cluster.Cache.Acquire(cache.Query{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}})
			var gadgets []any
			for _, name := range []string{"g1", "g2"} {
				gadgets = append(gadgets, parse(t, fmt.Sprintf(
					`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":%q,"uid":%[1]q,"resourceVersion":"1"}}`, name)))
			}
			if err := informer.Replace(gadgets, "1"); err != nil {
				t.Fatal(err)
			}
			var shown atomic.Value
			c := s.start(&kind{write: func(sync *reconciler.Sync) error {
				shown.Store(sync.Related[0].Objects[0].Name())
				return nil
			}}, func(c *reconciler.Config) { c.Definition = customized(customize.URL) })
			<-called
			if !during {
				close(respond)
				s.eventually("what the hook named", func() bool { return shown.Load() == "g1" })
			}
			if n := c.Resync([]v1alpha1.ParentReference{{Group: "example.com", Resource: "things", Name: "p"}}); n != 1 {
				t.Fatalf("%d parents are resynced", n)
			}
			if during {
				close(respond)
			}
			s.eventually("what the hook names now", func() bool { return shown.Load() == "g2" })
			if n := calls.Load(); n != 2 {
				t.Errorf("the hook was called %d times, want 2", n)
			}
		})
	}
}

// customized is a controller with a customize hook at the address.
func customized(url string) reconciler.Definition {
	return reconciler.OfComposite(&v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{
			Sync:      &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/sync")}},
			Customize: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(url)}},
		}},
	})
}

// changeDefinition has the CustomResourceDefinition of that name changed, and Discovery see it.
func (s *scene) changeDefinition(name string) {
	s.t.Helper()
	definitions := s.shared.Cluster.Cache.Acquire(cache.Query{MetadataOnly: true, Resource: schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}})
	generation := 0
	s.eventually("a change of the definition", func() bool {
		generation++
		s.update(definitions, parse(s.t, fmt.Sprintf(
			`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":%q,"uid":"d","resourceVersion":"%[2]d","generation":%[2]d}}`,
			name, generation)))
		return s.shared.Cluster.Discovery.Epoch(schema.ParseGroupResource(name)) > 0
	})
}
