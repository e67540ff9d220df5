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
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

var (
	things  = discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, Kind: "Thing"}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// kind is a reconciler.Kind whose parts a test replaces. By default it does nothing.
type kind struct {
	observe func(*reconciler.Sync) error
	decide  func(*reconciler.Sync) error
	write   func(*reconciler.Sync) error
	apply   func(context.Context, *reconciler.Sync) error
	owns    func(*object.Object) bool
}

func (k *kind) Acquire(*expectations.Informers, func(parent.Key, v1alpha1.SyncReason)) {}

func (k *kind) Count(*metrics.Remembered) {}

func (k *kind) Forget(parent.Key) {}

func (k *kind) Owns(o *object.Object) bool { return k.owns == nil || k.owns(o) }

func (k *kind) Observe(_ context.Context, s *reconciler.Sync) error {
	if k.observe != nil {
		return k.observe(s)
	}
	return nil
}

func (k *kind) Decide(_ context.Context, s *reconciler.Sync) error {
	if k.decide != nil {
		return k.decide(s)
	}
	return nil
}

func (k *kind) Write(ctx context.Context, s *reconciler.Sync) error {
	if k.apply != nil {
		return k.apply(ctx, s)
	}
	if k.write != nil {
		return k.write(s)
	}
	return nil
}

// scene is a cluster whose informers a test feeds: its cache does not run.
type scene struct {
	t       testing.TB
	shared  *reconciler.Shared
	things  *cache.Informer
	widgets *cache.Informer
}

func newScene(t testing.TB) *scene {
	t.Helper()
	return newSceneAt(t, "http://127.0.0.1:1")
}

// newSceneAt returns a scene with an API server that is written to.
func newSceneAt(t testing.TB, apiServer string) *scene {
	t.Helper()
	return newSceneWith(t, &rest.Config{Host: apiServer})
}

// newSceneWith returns a scene with an API server that is reached as config says.
func newSceneWith(t testing.TB, config *rest.Config) *scene {
	t.Helper()
	host, err := cluster.New(cluster.Options{Config: config, Managers: []string{plan.LegacyManager}})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := events.NewRecorder(events.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return &scene{
		t: t, things: host.Cache.Acquire(cache.Query{Resource: things.GroupVersionResource}),
		widgets: host.Cache.Acquire(cache.Query{Resource: widgets}),
		shared: &reconciler.Shared{
			Options: reconciler.Options{}.WithDefaults(), Cluster: host, Recorder: recorder,
			Applier: apply.New(apply.Options{Client: host.Client}), Expectations: &expectations.Registry{},
		},
	}
}

// start shows the objects that exist and runs a controller of the kind until the test ends.
func (s *scene) start(k *kind, change func(*reconciler.Config)) *reconciler.Controller {
	s.t.Helper()
	c := s.build(k, change)
	ctx, stop := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	s.t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-c.Started()
	return c
}

// build returns a controller of the kind that does not run.
func (s *scene) build(k *kind, change func(*reconciler.Config)) *reconciler.Controller {
	s.t.Helper()
	config := reconciler.Config{
		Kind: k,
		Definition: reconciler.OfComposite(&v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{
				Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/sync")}},
			}},
		}),
		Resolver: reconciler.Resolver{
			Shared: s.shared,
			Sources: []*reconciler.Source{{
				Resource: things, Labels: labels.Everything(), ReportsGeneration: true,
				Selected: func(o *object.Object) bool { _, out := o.Label("out"); return !out },
			}},
			Children: []children.Rule{{
				Kind: widgets.GroupVersion().WithKind("Widget"), Resource: widgets, Method: v1alpha1.ChildUpdateInPlace,
			}},
		},
	}
	if change != nil {
		change(&config)
	}
	c, err := reconciler.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// exist lets the informers sync with the objects that exist at the start.
func (s *scene) exist(list ...*object.Object) {
	s.t.Helper()
	var elements []any
	for _, o := range list {
		elements = append(elements, o)
	}
	for informer, objects := range map[*cache.Informer][]any{s.things: elements, s.widgets: nil} {
		if err := informer.Replace(objects, "1"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// transport is an API server within the process, which returns a status code and a body: time may be that of a test.
type transport func(*http.Request) (int, string)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := f(r)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// wantWidget has a sync of the parent p want the widget w as its only child. The spec may be nil.
func (s *scene) wantWidget(sync *reconciler.Sync, spec map[string]any) {
	content := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}}
	if spec != nil {
		content["spec"] = spec
	}
	sync.Observed = s.widgets.ControlledBy("uid-p")
	sync.Decision = reconciler.Decision{Observed: sync.Observed, Desired: []children.Desired{{
		Key: children.Key{Group: widgets.Group, Kind: "Widget", Name: "w"}, APIVersion: "example.com/v1", Content: content,
	}}}
}

func (s *scene) update(informer *cache.Informer, o *object.Object) {
	s.t.Helper()
	if err := informer.Update(o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) eventually(what string, holds func() bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		return holds(), nil
	})
	if err != nil {
		s.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// thing is a parent; more is appended to its metadata and its content.
func thing(t testing.TB, name string, version int, metadata, content string) *object.Object {
	t.Helper()
	return parse(t, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"%s}%s}`,
		name, "uid-"+name, version, metadata, content))
}

// widget is a child of the owner; of none if that is empty.
func widget(t testing.TB, name string, version int, owner, metadata string) *object.Object {
	t.Helper()
	if owner != "" {
		metadata += fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Thing","name":%q,"uid":%q,"controller":true}]`,
			owner, "uid-"+owner)
	}
	return parse(t, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"%s}}`,
		name, "uid-"+name, version, metadata))
}

func parse(t testing.TB, text string) *object.Object {
	t.Helper()
	o, err := object.Parse([]byte(text), object.ParseOptions{Managers: []string{plan.LegacyManager}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
