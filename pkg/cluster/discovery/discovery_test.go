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

package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	things = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"things/status","kind":"Thing","namespaced":true,"verbs":["get","patch","update"]},
{"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list"]},
{"name":"reviews","kind":"Review","namespaced":false,"verbs":["create"]},
{"name":"reviews/status","kind":"Review","namespaced":false,"verbs":["get"]}]}`
	schemas = `{"components":{"schemas":{"Thing":{"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Thing"}],
"properties":{"metadata":{},"spec":{"allOf":[{"$ref":"#/components/schemas/Spec"}]}}},
"Spec":{"properties":{"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],"items":{"$ref":"#/components/schemas/Item"}},
"values":{"additionalProperties":{"type":"array","x-kubernetes-list-type":"set","items":{}}},"loop":{"$ref":"#/components/schemas/Loop"},
"closed":{"additionalProperties":false},"any":{"additionalProperties":true},"whole":{"x-kubernetes-map-type":"atomic","additionalProperties":{}},
"reference":{"allOf":[{"$ref":"#/components/schemas/Reference"}]},
"parts":{"allOf":[{"$ref":"#/components/schemas/Reference"}],"x-kubernetes-map-type":"granular"}}},
"Reference":{"x-kubernetes-map-type":"atomic","properties":{"name":{}}},
"Item":{"properties":{"nested":{"x-kubernetes-patch-merge-key":"k","x-kubernetes-patch-strategy":"merge","items":{}}}},
"Loop":{"$ref":"#/components/schemas/Loop"}}}}`
)

// apiServer serves a group, and lists and watches of definitions.
type apiServer struct {
	mu       sync.Mutex
	code     int
	requests int
	// unwatched refuses lists of definitions.
	unwatched bool
	// listed, where it is not nil, keeps lists of definitions waiting until it is closed.
	listed chan struct{}
	// definitions sends events to the watches of CustomResourceDefinitions.
	definitions chan string
}

func (s *apiServer) set(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = code
}

func (s *apiServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		_ = http.NewResponseController(w).Flush()
		events := s.definitions
		if !strings.HasSuffix(r.URL.Path, "customresourcedefinitions") {
			events = nil
		}
		for {
			select {
			case <-r.Context().Done():
				return
			case event := <-events:
				_, _ = w.Write([]byte(event))
				_ = http.NewResponseController(w).Flush()
			}
		}
	}
	if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") || strings.HasSuffix(r.URL.Path, "/apiservices") ||
		strings.HasSuffix(r.URL.Path, "webhookconfigurations") {
		if s.listed != nil {
			select {
			case <-r.Context().Done():
			case <-s.listed:
			}
		}
		if s.unwatched {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`))
		return
	}
	if strings.HasPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.mu.Lock()
	s.requests++
	code := s.code
	s.mu.Unlock()
	w.WriteHeader(code)
	switch {
	case code != http.StatusOK:
	case strings.HasPrefix(r.URL.Path, "/openapi/v3/"):
		_, _ = w.Write([]byte(schemas))
	default:
		_, _ = w.Write([]byte(things))
	}
}

func run(t *testing.T) (*apiServer, *discovery.Discovery) {
	t.Helper()
	return serve(t, &apiServer{code: http.StatusOK, definitions: make(chan string)})
}

func serve(t *testing.T, s *apiServer) (*apiServer, *discovery.Discovery) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	c, err := cache.New(cache.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	d, err := discovery.New(config, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	running.Go(func() { d.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return s, d
}

func TestTheLastGoodAnswerStays(t *testing.T) {
	s, d := run(t)
	thing := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	ask := func() (discovery.Resource, *discovery.Schema, error) {
		r, err := d.Resource(t.Context(), "example.com/v1", "things")
		found, schemaErr := d.Schema(t.Context(), thing)
		return r, found, errors.Join(err, schemaErr)
	}
	s.set(http.StatusServiceUnavailable)
	if _, _, err := ask(); err == nil {
		t.Error("a response from nowhere")
	} else if _, ok := errors.AsType[*discovery.NotFoundError](err); ok {
		t.Error("a failure was taken for a missing kind")
	}
	s.set(http.StatusOK)
	if r, found, err := ask(); err != nil || !r.HasStatus || found == nil {
		t.Fatalf("got %+v, %v, %v", r, found, err)
	}
	s.set(http.StatusServiceUnavailable)
	s.definitions <- `{"type":"ADDED","object":{"metadata":{"name":"things.example.com","resourceVersion":"2"}}}`
	// Subscribers are notified at the start as well, so that a notification need not be about this change.
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		before := s.count()
		if r, found, err := ask(); err != nil || !r.HasStatus || found == nil {
			return false, fmt.Errorf("after a failure: %+v, %v, %w", r, found, err)
		}
		return s.count() == before+2, nil
	})
	if err != nil {
		t.Fatalf("a change did not make it ask for both again: %v", err)
	}
	s.set(http.StatusNotFound)
	if _, found, err := ask(); found != nil || err == nil {
		t.Errorf("what is not served any more: %v, %v", found, err)
	}
}

func TestNothingIsAskedTwiceWithoutAChange(t *testing.T) {
	s, d := run(t)
	relied(t, s, d)
	before := s.count()
	for range 100 {
		if _, err := d.Kind(t.Context(), "example.com/v1", "Thing"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err == nil {
			t.Error("found a kind that is not there")
		}
	}
	// In the seconds after the definitions were listed kinds are asked for again some times.
	if got := s.count(); got > before+7 {
		t.Errorf("asked %d times more", got-before)
	}
}

// TestAKindThatCameBeforeItsDefinitionWasListedIsTold is about a definition that is created while the server starts: the kind was asked for
// before, and the definition is in the first list, so that no event tells of it.
func TestAKindThatCameBeforeItsDefinitionWasListedIsTold(t *testing.T) {
	s, d := serve(t, &apiServer{code: http.StatusNotFound, listed: make(chan struct{})})
	ask := func() error {
		_, err := d.Resource(t.Context(), "example.com/v1", "things")
		return err
	}
	told := make(chan struct{}, 1)
	defer d.Subscribe(func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})()
	if _, missing := errors.AsType[*discovery.NotFoundError](ask()); !missing {
		t.Fatal("a kind is served that is not")
	}
	s.set(http.StatusOK)
	close(s.listed)
	for err := errors.New("not asked again"); err != nil; err = ask() {
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatalf("subscribers are not told that a kind is served now: %v", err)
		}
	}
}

// TestAPanicOfASubscriberKeepsNothingFromTheOthers has one that panics whenever it is told. It is told again, as the others are.
func TestAPanicOfASubscriberKeepsNothingFromTheOthers(t *testing.T) {
	s, d := serve(t, &apiServer{code: http.StatusOK, listed: make(chan struct{})})
	panicked, told := make(chan struct{}, 100), make(chan struct{}, 100)
	before := recovery.Count()
	defer d.Subscribe(func() { panicked <- struct{}{}; panic("on purpose") })()
	defer d.Subscribe(func() { told <- struct{}{} })()
	close(s.listed)
	for range 2 {
		for _, c := range []chan struct{}{panicked, told} {
			select {
			case <-c:
			case <-time.After(10 * time.Second):
				t.Fatal("a subscriber is not told that kinds may have changed")
			}
		}
	}
	if recovery.Count() == before {
		t.Error("no panic was counted")
	}
}

// TestSchemasAreTrustedForAWhileWhereNothingTellsOfAChange is about a server that may not watch definitions: every sync asks
// for schemas, and the documents are large.
func TestSchemasAreTrustedForAWhileWhereNothingTellsOfAChange(t *testing.T) {
	s, d := serve(t, &apiServer{code: http.StatusOK, unwatched: true})
	for range 20 {
		if _, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}); err != nil {
			t.Fatal(err)
		}
	}
	// The first is asked for again where a run takes longer than they are trusted.
	if got := s.count(); got > 2 {
		t.Errorf("asked %d times", got)
	}
}

func TestManyWhoWantToKnowAtOnceAskOnce(t *testing.T) {
	s, d := run(t)
	relied(t, s, d)
	before := s.count()
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() {
			found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
			if found == nil || err != nil {
				t.Errorf("got %v, %v", found, err)
			}
		})
	}
	asking.Wait()
	if got := s.count() - before; got != 1 {
		t.Errorf("asked %d times", got)
	}
}

// relied waits until responses are relied upon, which they are not until the definitions are watched.
func relied(t *testing.T, s *apiServer, d *discovery.Discovery) {
	t.Helper()
	for last := -1; last != s.count(); {
		last = s.count()
		if _, err := d.Resource(t.Context(), "example.com/v1", "things"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSchemasFollowReferences(t *testing.T) {
	_, d := run(t)
	s, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
	if err != nil {
		t.Fatal(err)
	}
	spec := s.Field("spec")
	for name, tc := range map[string]struct {
		reason string
		at     *discovery.Schema
		want   string
	}{
		"Map":     {"The keys are in the schema.", spec.Field("list"), "map id"},
		"Nested":  {"Built-in kinds have patch strategies.", spec.Field("list").Item().Field("nested"), "map k"},
		"Values":  {"All keys of a map have the same schema.", spec.Field("values").Field("any"), "set "},
		"Loop":    {"A schema that refers to itself alone says nothing.", spec.Field("loop"), " "},
		"Missing": {"What is not there says nothing.", spec.Field("none").Item().Field("x"), " "},
	} {
		t.Run(name, func(t *testing.T) {
			kind, keys := tc.at.ListType()
			if got := kind + " " + strings.Join(keys, ","); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestMapsAreSharedAndStructsAreNot(t *testing.T) {
	_, d := run(t)
	s, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"values": true, "any": true, "closed": false, "whole": false, "list": false, "loop": false, "none": false} {
		if got := s.Field("spec").Field(name).Shared(); got != want {
			t.Errorf("%s: shared %t, want %t", name, got, want)
		}
	}
	if s.Field("spec").Shared() {
		t.Error("a struct is shared")
	}
	// Parts says otherwise than what it refers to, as the claimRef of PersistentVolumes does.
	for name, want := range map[string]bool{"values": false, "whole": true, "reference": true, "parts": false, "list": false, "none": false} {
		if got := s.Field("spec").Field(name).Atomic(); got != want {
			t.Errorf("%s: written as a whole %t, want %t", name, got, want)
		}
	}
}
