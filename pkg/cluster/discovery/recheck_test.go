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

package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
)

const (
	older = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"others","kind":"Other","namespaced":true,"verbs":["get"]}]}`
	newer = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"others","kind":"Other","namespaced":true,"verbs":["get"]},{"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]}]}`
	withStatus = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"others","kind":"Other","namespaced":true,"verbs":["get"]},{"name":"others/status","kind":"Other","namespaced":true,"verbs":["patch"]}]}`
)

// unavailable is served as an error.
const unavailable = "unavailable"

// quiet is a cluster within the process whose definitions do not change. Time may be that of a test.
type quiet struct {
	// label is that of the APIService of example.com/v1.
	label string

	mu       sync.Mutex
	served   map[string]string // what paths return, besides the lists of definitions
	requests map[string]int
}

func (q *quiet) serve(path, body string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.served[path] = body
}

func (q *quiet) count(path string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.requests[path]
}

// RoundTrip implements http.RoundTripper.
func (q *quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	respond := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	path := r.URL.Path
	defined := strings.HasSuffix(path, "/"+apiServiceResource.Resource)
	switch {
	case r.URL.Query().Get("watch") != "":
		reader, writer := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = writer.Close() })
		return respond(http.StatusOK, reader)
	case defined, strings.HasSuffix(path, "/"+crdResource.Resource), strings.HasSuffix(path, "webhookconfigurations"):
		item := ""
		if defined {
			item = fmt.Sprintf(`{"metadata":{"name":"v1.example.com","uid":"u","resourceVersion":"1","labels":{%q:%q}}}`, automanagedLabel, q.label)
		}
		return respond(http.StatusOK, io.NopCloser(strings.NewReader(
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[`+item+`]}`)))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests[path]++
	switch body := q.served[path]; body {
	case "":
	case unavailable:
		return respond(http.StatusServiceUnavailable, io.NopCloser(strings.NewReader(body)))
	default:
		return respond(http.StatusOK, io.NopCloser(strings.NewReader(body)))
	}
	return respond(http.StatusNotFound, io.NopCloser(strings.NewReader(
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)))
}

const (
	kindsPath   = "/apis/example.com/v1"
	schemasPath = "/openapi/v3/apis/example.com/v1"
)

// run runs a Discovery of the cluster within a bubble, until the minute in which the definitions were listed is over.
func (q *quiet) run(t *testing.T) *Discovery {
	t.Helper()
	q.served, q.requests = map[string]string{kindsPath: older, schemasPath: string(documentOf("map"))}, map[string]int{}
	config := &rest.Config{Host: "http://api", QPS: -1, Transport: q}
	c, err := cache.New(cache.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(config, c)
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
	pass(30 * time.Second)
	return d
}

// pass lets time pass within a bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // It is the time of a bubble.
	synctest.Wait()
}

// counted counts the notifications of a Discovery.
func counted(t *testing.T, d *Discovery) (told func() int) {
	t.Helper()
	var mu sync.Mutex
	var n int
	t.Cleanup(d.Subscribe(func() {
		mu.Lock()
		defer mu.Unlock()
		n++
	}))
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestKindsThatNoObjectTellsOfAreLookedForEveryMinute(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		label  string
		now    string
		// kind is looked for after the change. It has a status if status is set.
		kind   string
		status bool
		told   bool
	}{
		"aggregated":    {"The server behind an APIService was replaced.", "", newer, "Thing", false, true},
		"status":        {"A parent's status is written now.", "", withStatus, "Other", true, true},
		"built-in":      {"The kube-apiserver was replaced by a newer one.", "onstart", newer, "Thing", false, true},
		"custom":        {"The event of a CustomResourceDefinition would tell.", "true", newer, "Thing", false, false},
		"nothing":       {"Nobody is told of nothing.", "", older, "Other", false, false},
		"another label": {"It says nothing.", "yes", newer, "Thing", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: tc.label}
				d := q.run(t)
				_, err := d.Kind(t.Context(), "example.com/v1", "Thing")
				if _, missing := errors.AsType[*NotFoundError](err); !missing {
					t.Fatalf("a kind is served that is not: %v", err)
				}
				told := counted(t, d)
				q.serve(kindsPath, tc.now)
				pass(recheckInterval)
				if got := told() > 0; got != tc.told {
					t.Errorf("subscribers are told: %t. %s", got, tc.reason)
				}
				if found, err := d.Kind(t.Context(), "example.com/v1", tc.kind); tc.told && (err != nil || found.HasStatus != tc.status) {
					t.Errorf("%s: %+v, %v. %s", tc.kind, found, err, tc.reason)
				}
			})
		})
	}
}

func TestNobodyIsToldAndLittleIsAskedWhileNothingChanges(t *testing.T) {
	for label, want := range map[string]struct{ kinds, schemas int }{"": {60, 6}, "onstart": {60, 6}, "true": {0, 0}} {
		t.Run(label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: label}
				d := q.run(t)
				use := func() {
					if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err != nil {
						t.Error(err)
					}
					found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
					if found == nil || err != nil {
						t.Errorf("schema %v, %v", found, err)
					}
				}
				use()
				told, kinds, schemas := counted(t, d), q.count(kindsPath), q.count(schemasPath)
				for range 3600 {
					pass(time.Second)
					use()
				}
				if got := q.count(kindsPath) - kinds; got > want.kinds {
					t.Errorf("kinds are asked for %d times in an hour, want %d", got, want.kinds)
				}
				if got := q.count(schemasPath) - schemas; got > want.schemas || got < want.schemas-1 {
					t.Errorf("schemas are asked for %d times in an hour, want %d", got, want.schemas)
				}
				if told() > 0 {
					t.Errorf("subscribers are notified %d times", told())
				}
			})
		})
	}
}

func TestSchemasThatNoObjectTellsOfAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		d := q.run(t)
		listType := func() string {
			found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
			if err != nil {
				t.Fatal(err)
			}
			return found.Field("list").node.ListType
		}
		if got := listType(); got != "map" {
			t.Fatalf("the list is a %q", got)
		}
		q.serve(schemasPath, string(documentOf("set")))
		pass(schemasRecheck + recheckInterval)
		if got := listType(); got != "set" {
			t.Errorf("the list is a %q after %v", got, schemasRecheck+recheckInterval)
		}
		if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err != nil {
			t.Fatal(err)
		}
		// Schemas that may have changed with the kinds are read at once.
		q.serve(schemasPath, string(documentOf("atomic")))
		q.serve(kindsPath, newer)
		pass(recheckInterval)
		if got := listType(); got != "atomic" {
			t.Errorf("the list is a %q after the kinds have changed", got)
		}
	})
}

// TestWhileAnAPIIsUnavailableTheLastResponseIsNotWaitedFor is about an aggregated API: its own event would say that it is not available, and
// of a single response that fails none does.
func TestWhileAnAPIIsUnavailableTheLastResponseIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		d := q.run(t)
		use := func() {
			if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err != nil {
				t.Error(err)
			}
			found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
			if found == nil || err != nil {
				t.Errorf("schema %v, %v", found, err)
			}
		}
		use()
		told := counted(t, d)
		q.serve(kindsPath, unavailable)
		q.serve(schemasPath, unavailable)
		pass(schemasRecheck + recheckInterval)
		kinds, schemas := q.count(kindsPath), q.count(schemasPath)
		for range 100 {
			use()
		}
		if kinds, schemas = q.count(kindsPath)-kinds, q.count(schemasPath)-schemas; kinds+schemas > 0 {
			t.Errorf("users ask %d times for kinds and %d times for schemas", kinds, schemas)
		}
		if told() > 0 {
			t.Errorf("subscribers are notified %d times", told())
		}
		q.serve(kindsPath, newer)
		pass(recheckInterval)
		if told() == 0 {
			t.Error("subscribers are not told of a kind that came with the end of the failure")
		}
	})
}

func TestVersionsThatAreNotServedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		d := q.run(t)
		ask := func(version string) {
			if _, err := d.Kind(t.Context(), "example.com/"+version, "Thing"); err == nil {
				t.Errorf("%s is served", version)
			}
			if found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Thing"}); err != nil ||
				(found != nil) != (version == "v1") {
				t.Errorf("%s: schema %v, %v", version, found, err)
			}
		}
		ask("v1")
		for n := range 1000 {
			ask(fmt.Sprintf("v%d", 2+n))
		}
		before := q.count("/apis/example.com/v2")
		for range 100 {
			ask("v2")
		}
		if got := q.count("/apis/example.com/v2"); got != before {
			t.Errorf("asked %d times more for a version that was not served a moment ago", got-before)
		}
		pass(2 * recheckInterval)
		d.mu.Lock()
		defer d.mu.Unlock()
		for version := range d.versions.known {
			if version.Group == "example.com" && version.Version != "v1" {
				t.Errorf("%s is remembered", version)
				break
			}
		}
		if len(d.schemas.known) != 1 {
			t.Errorf("%d documents are remembered of one", len(d.schemas.known))
		}
	})
}
