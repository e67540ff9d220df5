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

package related_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

var (
	configMaps = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	secrets    = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
	namespaces = cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}
)

// scene is a customizer with a hook and a cluster whose informers the test feeds.
type scene struct {
	*related.Customizer

	t            *testing.T
	cluster      *cluster.Cluster
	expectations *expectations.Expectations
	// rules is the response of the hook, calls counts its calls.
	rules []hook.RelatedResourceRule
	calls int

	// parents are what is known of those of which known was asked.
	parents map[parent.Key]*related.Parent

	mu sync.Mutex
	// apis are the resources that the cluster serves, by the path of their group-version, and unavailable says that it does not say so.
	apis        map[string]string
	unavailable bool
	enqueued    []string
	// triggers are how objects changed.
	triggers []history.Trigger
}

func newScene(t *testing.T, rules ...hook.RelatedResourceRule) *scene {
	t.Helper()
	return newSceneWith(t, related.Config{}, rules...)
}

// newSceneWith takes what is not the same for all from config.
func newSceneWith(t *testing.T, config related.Config, rules ...hook.RelatedResourceRule) *scene {
	t.Helper()
	s := &scene{t: t, rules: rules, parents: map[parent.Key]*related.Parent{}, apis: map[string]string{"/api/v1": `{"name":"secrets","kind":"Secret","namespaced":true},
		{"name":"configmaps","kind":"ConfigMap","namespaced":true},{"name":"namespaces","kind":"Namespace"}`}}
	api := httptest.NewServer(http.HandlerFunc(s.discover))
	t.Cleanup(api.Close)
	server := hooktest.NewServer(t)
	server.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		s.calls++
		return &hook.CustomizeResponse{RelatedResources: s.rules}, nil
	}))
	url := server.URL("/customize")
	v2 := v1alpha1.HookVersionV2
	declared, err := hooks.New(webhook.Config{ControllerKind: "CompositeController", ControllerName: "c"}, hooks.Kinds{}, nil, nil,
		&v1alpha1.Hook{Version: &v2, Webhook: &v1alpha1.Webhook{URL: &url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(declared.Close)
	if s.cluster, err = cluster.New(cluster.Options{Config: &rest.Config{Host: api.URL, Transport: api.Client().Transport}}); err != nil {
		t.Fatal(err)
	}
	s.expectations = expectations.New(func(parent.Key) {}, nil)
	t.Cleanup(s.expectations.Close)
	set := expectations.NewInformers(s.expectations)
	t.Cleanup(set.Close)
	config.Hook, config.Cluster, config.Informers = declared.Customize, s.cluster, set
	config.Enqueue = func(key parent.Key, _ cache.Event, why history.Trigger) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.enqueued, s.triggers = append(s.enqueued, key.Name), append(s.triggers, why)
	}
	config.Parents = maps.All(s.parents)
	s.Customizer = related.New(config)
	return s
}

// known is what is known of a parent.
func (s *scene) known(key parent.Key) *related.Parent {
	if s.parents[key] == nil {
		s.parents[key] = &related.Parent{}
	}
	return s.parents[key]
}

// forget has a parent go.
func (s *scene) forget(key parent.Key) {
	s.Forget(key, s.known(key))
	delete(s.parents, key)
}

// discover tells which kinds the cluster serves.
func (s *scene) discover(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	resources, ok := s.apis[r.URL.Path]
	unavailable := s.unavailable
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case unavailable, resources == "unavailable":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case strings.HasPrefix(resources, `{"kind":"APIGroup"`):
		_, _ = fmt.Fprint(w, resources)
	default:
		_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[%s]}`, resources)
	}
}

// related returns the names of the related objects of a parent.
func (s *scene) related(p *object.Object) ([]string, error) {
	return s.relatedFor(controllerJSON, p)
}

// controllerJSON is the controller object where it does not matter.
const controllerJSON = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController"}`

// relatedFor is related while the controller object is as given.
func (s *scene) relatedFor(controller string, p *object.Object) ([]string, error) {
	groups, err := s.Related(s.t.Context(), s.asked(controller, p))
	var names []string
	for _, g := range groups {
		for _, o := range g.Objects {
			names = append(names, o.Name())
		}
	}
	return names, err
}

// asked is what the hook is asked about a parent, of a controller object as given.
func (s *scene) asked(controller string, p *object.Object) related.Asked {
	return related.Asked{
		Key: keyOf(p), Known: s.known(keyOf(p)), Root: webhook.RootKey{Kind: "Thing", Namespace: "ns", Name: p.Name()}, Parent: p, Controller: []byte(controller), Finalizing: p.Deleting(),
	}
}

func keyOf(p *object.Object) parent.Key {
	return parent.KeyOf(schema.GroupResource{Resource: "things"}, p)
}

func (s *scene) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.enqueued
	s.enqueued = nil
	return taken
}

// show lets an informer sync with objects.
func (s *scene) show(q cache.Query, list ...*object.Object) {
	s.t.Helper()
	var elements []any
	for _, o := range list {
		elements = append(elements, o)
	}
	if err := s.cluster.Cache.Acquire(q).Replace(elements, "9"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) update(q cache.Query, o *object.Object) {
	s.t.Helper()
	if err := s.cluster.Cache.Acquire(q).Update(o); err != nil {
		s.t.Fatal(err)
	}
}

func parse(t *testing.T, kind, namespace, name string, version int, more string) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d"%s}}`,
		kind, name, namespace, name, version, more), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func labeled(label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}
}

func TestRelatedObjectsAreWaitedForAndThenSelected(t *testing.T) {
	s := newScene(t, hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: labeled("app")})
	p := parse(t, "Thing", "ns", "p", 1, `,"generation":1`)
	_, err := s.related(p)
	waiting, ok := errors.AsType[*queue.WaitError](err)
	if !ok {
		t.Fatalf("the error is %v, want that the objects are not listed yet", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if waiting.Done(ended) {
		t.Error("waiting ended before the informer synced")
	}
	s.show(configMaps, parse(t, "ConfigMap", "ns", "a", 2, `,"labels":{"app":"yes"}`), parse(t, "ConfigMap", "ns", "b", 3, ""))
	if !waiting.Done(t.Context()) {
		t.Error("waiting did not end with the informer's list")
	}
	for range 2 {
		names, err := s.related(p)
		if err != nil || !slices.Equal(names, []string{"a"}) {
			t.Errorf("related objects are %v, %v, want a", names, err)
		}
	}
	if s.calls != 1 {
		t.Errorf("the hook was called %d times for one state of the parent", s.calls)
	}
	if _, err := s.related(parse(t, "Thing", "ns", "p", 4, `,"generation":2`)); err != nil || s.calls != 2 {
		t.Errorf("after a change of the parent: %d calls, %v; want a second one", s.calls, err)
	}
}

func TestChangesOfRelatedObjectsEnqueueTheirParents(t *testing.T) {
	everywhere := hook.RelatedResourceRule{
		APIVersion: "v1", Resource: "configmaps", LabelSelector: labeled("app"), NamespaceSelector: labeled("team"),
	}
	s := newScene(t, everywhere)
	s.show(namespaces, parse(t, "Namespace", "", "ns", 1, `,"labels":{"team":"yes"}`), parse(t, "Namespace", "", "other", 1, ""))
	s.show(configMaps)
	if names, err := s.related(parse(t, "Thing", "ns", "p", 1, "")); err != nil || len(names) > 0 {
		t.Fatalf("related objects are %v, %v, want none", names, err)
	}
	for _, tc := range []struct {
		reason string
		q      cache.Query
		o      *object.Object
		want   []string
	}{
		{"an object that is selected appears", configMaps, parse(t, "ConfigMap", "ns", "a", 10, `,"labels":{"app":"yes"}`), []string{"p"}},
		{"it is selected no more", configMaps, parse(t, "ConfigMap", "ns", "a", 11, ""), []string{"p"}},
		{"it was not and is not selected", configMaps, parse(t, "ConfigMap", "ns", "a", 12, ""), nil},
		{"its namespace is not selected", configMaps, parse(t, "ConfigMap", "other", "b", 13, `,"labels":{"app":"yes"}`), nil},
		{"a namespace becomes selected", namespaces, parse(t, "Namespace", "", "other", 14, `,"labels":{"team":"yes"}`), []string{"p"}},
		{"a namespace changes in another way", namespaces, parse(t, "Namespace", "", "other", 15, `,"labels":{"team":"yes","x":"y"}`), nil},
	} {
		s.update(tc.q, tc.o)
		if got := s.take(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: enqueued %v, want %v", tc.reason, got, tc.want)
		}
	}
	// The objects of a namespace are deleted before it, and their events may come after its own.
	if err := s.cluster.Cache.Acquire(namespaces).Delete(parse(t, "Namespace", "", "other", 16, `,"labels":{"team":"yes"}`)); err != nil {
		t.Fatal(err)
	}
	if got := s.take(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("a selected namespace is deleted: enqueued %v", got)
	}
	s.forget(parent.NewKey(schema.GroupResource{Resource: "things"}, "ns", "p"))
	s.update(configMaps, parse(t, "ConfigMap", "ns", "a", 20, `,"labels":{"app":"yes"}`))
	if got := s.take(); len(got) > 0 {
		t.Errorf("enqueued %v after it was forgotten", got)
	}
}

func TestItIsSaidHowARelatedObjectChangedIfThatIsRecorded(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprintf("recorded %t", recorded), func(t *testing.T) {
			s := newSceneWith(t, related.Config{Triggers: recorded}, hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps"})
			s.show(configMaps, parse(t, "ConfigMap", "ns", "a", 1, ""))
			if _, err := s.related(parse(t, "Thing", "ns", "p", 1, "")); err != nil {
				t.Fatal(err)
			}
			s.take()
			s.triggers = nil
			s.update(configMaps, parse(t, "ConfigMap", "ns", "a", 2, `,"labels":{"app":"yes"}`))
			if got := s.take(); !slices.Equal(got, []string{"p"}) || len(s.triggers) != 1 {
				t.Fatalf("enqueued %v because of %v", got, s.triggers)
			}
			if why := s.triggers[0]; (why.Object != nil) != recorded || slices.Equal(why.Fields, []string{"metadata.labels"}) != recorded {
				t.Errorf("the trigger is %+v", why)
			}
		})
	}
}

func TestRulesThatCannotBeUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		rule   hook.RelatedResourceRule
		check  func(error) bool
	}{
		"Unserved": {
			"The kind may be served later, so that a change of what is served retries the parent.",
			hook.RelatedResourceRule{APIVersion: "example.com/v1", Resource: "gadgets", LabelSelector: labeled("app")},
			func(err error) bool {
				wrong, ok := errors.AsType[*related.RuleError](err)
				return ok && wrong.Unresolved && !hook.IsRejected(err)
			},
		},
		"Invalid": {
			"The hook has to be changed.",
			hook.RelatedResourceRule{APIVersion: "v1", Resource: "namespaces", LabelSelector: labeled("app"), NamespaceSelector: labeled("team")},
			hook.IsRejected,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, tc.rule)
			if _, err := s.related(parse(t, "Thing", "ns", "p", 1, "")); err == nil || !tc.check(err) {
				t.Errorf("%s The error is %v", tc.reason, err)
			}
		})
	}
}

func TestWithoutAHookNothingIsRelated(t *testing.T) {
	z := related.New(related.Config{})
	groups, err := z.Related(t.Context(), related.Asked{})
	if err != nil || len(groups) != 0 {
		t.Errorf("related objects are %v, %v", groups, err)
	}
}

// held reports whether anything holds the informer of a query.
func (s *scene) held(q cache.Query) bool {
	first := s.cluster.Cache.Acquire(q)
	first.Release()
	again := s.cluster.Cache.Acquire(q)
	again.Release()
	return first == again
}

func (s *scene) expectHeld(reason string, q cache.Query, want bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return s.held(q) == want, nil
	})
	if err != nil {
		s.t.Errorf("%s: the informer of %s is held: %v, want %v", reason, q.Resource.Resource, !want, want)
	}
}

func TestInformersThatNoRuleNeedsAreGivenBack(t *testing.T) {
	selecting := hook.RelatedResourceRule{
		APIVersion: "v1", Resource: "configmaps", LabelSelector: labeled("app"), NamespaceSelector: labeled("team"),
	}
	s := newScene(t, selecting)
	var waiting *queue.WaitError
	relate := func(name string, generation int, rules ...hook.RelatedResourceRule) {
		t.Helper()
		s.rules = rules
		_, err := s.related(parse(t, "Thing", "ns", name, generation, fmt.Sprintf(`,"generation":%d`, generation)))
		if _, ok := errors.AsType[*queue.WaitError](err); err != nil && !ok {
			t.Fatal(err)
		}
		waiting, _ = errors.AsType[*queue.WaitError](err)
	}
	relate("p", 1, selecting)
	relate("other", 1, hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps", LabelSelector: labeled("app")})
	s.expectHeld("two parents need it", configMaps, true)
	s.expectHeld("a rule selects namespaces", namespaces, true)
	relate("p", 2)
	s.expectHeld("the other parent needs it", configMaps, true)
	s.expectHeld("no rule selects namespaces", namespaces, false)
	s.forget(keyOf(parse(t, "Thing", "ns", "other", 1, "")))
	s.expectHeld("the other parent is gone", configMaps, false)

	relate("p", 3, selecting)
	if waiting == nil {
		t.Fatal("an informer that was taken again has synced before it listed")
	}
	s.show(namespaces, parse(t, "Namespace", "", "ns", 1, `,"labels":{"team":"yes"}`))
	s.show(configMaps)
	if !waiting.Done(t.Context()) {
		t.Error("waiting did not end with the lists")
	}
	s.update(configMaps, parse(t, "ConfigMap", "ns", "a", 10, `,"labels":{"app":"yes"}`))
	if got := s.take(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("enqueued %v by an informer that was taken again, want p", got)
	}
}

// TestHandlersDoNotWaitForSyncs has a sync that takes an informer whose handlers, of another controller, are busy.
func TestHandlersDoNotWaitForSyncs(t *testing.T) {
	s := newScene(t, hook.RelatedResourceRule{
		APIVersion: "v1", Resource: "configmaps", LabelSelector: labeled("app"), NamespaceSelector: labeled("team"),
	})
	s.show(namespaces, parse(t, "Namespace", "", "ns", 1, `,"labels":{"team":"yes"}`))
	s.show(configMaps)
	if _, err := s.related(parse(t, "Thing", "ns", "p", 1, "")); err != nil {
		t.Fatal(err)
	}
	busy := s.cluster.Cache.Acquire(secrets)
	entered, leave := make(chan struct{}), make(chan struct{})
	defer busy.Subscribe(func(cache.Event) {
		close(entered)
		<-leave
	})()
	secret := parse(t, "Secret", "ns", "s", 1, "")
	var running sync.WaitGroup
	running.Go(func() {
		if err := busy.Update(secret); err != nil {
			t.Error(err)
		}
	})
	<-entered
	s.rules = []hook.RelatedResourceRule{{APIVersion: "v1", Resource: "secrets", LabelSelector: labeled("app")}}
	q := parse(t, "Thing", "ns", "q", 1, "")
	running.Go(func() { _, _ = s.related(q) })
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		s.expectations.WroteVersion(keyOf(q), busy, "99")
		return s.expectations.Pending() > 0, nil
	})
	if err != nil {
		t.Fatal("the sync does not take the informer")
	}
	handled := make(chan error, 1)
	changed := parse(t, "ConfigMap", "ns", "a", 10, `,"labels":{"app":"yes"}`)
	informer := s.cluster.Cache.Acquire(configMaps)
	go func() { handled <- informer.Update(changed) }()
	select {
	case err := <-handled:
		if got := s.take(); err != nil || !slices.Equal(got, []string{"p"}) {
			t.Errorf("enqueued %v, %v, want p", got, err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a handler waits for a sync that waits for another handler")
	}
	close(leave)
	running.Wait()
}
