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

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

const stored = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"7"}}`

// against returns a client of a server whose address has a path, as a proxy's has.
func against(t testing.TB, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c, err := client.New(&rest.Config{
		Host: server.URL + "/clusters/one/", UserAgent: "tester/1", BearerToken: "secret",
		TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRequestsSayWhatIsToBeDone(t *testing.T) {
	t.Parallel()
	one := client.Target{Resource: configMaps, Namespace: "default", Name: "a"}
	all := client.Target{Resource: configMaps, Namespace: "default"}
	status := client.Target{Resource: deployments, Namespace: "default", Name: "system:web", Subresource: "status"}
	cluster := client.Target{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, Name: "a"}
	body := []byte(`{"a":1}`)
	got := func(_ *object.Object, err error) error { return err }
	for name, test := range map[string]struct {
		call func(context.Context, *client.Client) error
		want string
	}{
		"get": {
			func(ctx context.Context, c *client.Client) error { return got(c.Get(ctx, one)) },
			"GET /clusters/one/api/v1/namespaces/default/configmaps/a",
		},
		"get a cluster-scoped object": {
			func(ctx context.Context, c *client.Client) error { return got(c.Get(ctx, cluster)) },
			"GET /clusters/one/apis/example.com/v1/things/a",
		},
		"create": {
			func(ctx context.Context, c *client.Client) error { return got(c.Create(ctx, all, body)) },
			`POST /clusters/one/api/v1/namespaces/default/configmaps?fieldManager=metacontroller application/json {"a":1}`,
		},
		"update": {
			func(ctx context.Context, c *client.Client) error { return got(c.Update(ctx, one, body)) },
			`PUT /clusters/one/api/v1/namespaces/default/configmaps/a?fieldManager=metacontroller application/json {"a":1}`,
		},
		"try an update": {
			func(ctx context.Context, c *client.Client) error { return got(c.Try(ctx, one, body)) },
			`PUT /clusters/one/api/v1/namespaces/default/configmaps/a?fieldManager=metacontroller&dryRun=All application/json {"a":1}`,
		},
		"patch a status": {
			func(ctx context.Context, c *client.Client) error {
				return got(c.Patch(ctx, status, types.MergePatchType, body))
			},
			"PATCH /clusters/one/apis/apps/v1/namespaces/default/deployments/system:web/status?fieldManager=metacontroller-engine " +
				`application/merge-patch+json {"a":1}`,
		},
		"patch like kubectl": {
			func(ctx context.Context, c *client.Client) error {
				return got(c.Patch(ctx, one, types.StrategicMergePatchType, body))
			},
			"PATCH /clusters/one/api/v1/namespaces/default/configmaps/a?fieldManager=metacontroller-engine " +
				`application/strategic-merge-patch+json {"a":1}`,
		},
		"patch by steps": {
			func(ctx context.Context, c *client.Client) error {
				return got(c.Patch(ctx, one, types.JSONPatchType, body))
			},
			`PATCH /clusters/one/api/v1/namespaces/default/configmaps/a?fieldManager=metacontroller-engine application/json-patch+json {"a":1}`,
		},
		"apply": {
			func(ctx context.Context, c *client.Client) error {
				return got(c.Apply(ctx, one, client.Application{Manager: "a/b c", Force: true, Body: body}))
			},
			"PATCH /clusters/one/api/v1/namespaces/default/configmaps/a?fieldManager=a%2Fb+c&force=true " +
				`application/apply-patch+yaml {"a":1}`,
		},
		"try to apply": {
			func(ctx context.Context, c *client.Client) error {
				return got(c.Apply(ctx, one, client.Application{Manager: "a", Try: true, Body: body}))
			},
			"PATCH /clusters/one/api/v1/namespaces/default/configmaps/a?fieldManager=a&force=false&dryRun=All " +
				`application/apply-patch+yaml {"a":1}`,
		},
		"delete": {
			func(ctx context.Context, c *client.Client) error { _, err := c.Delete(ctx, one, "u", "7"); return err },
			"DELETE /clusters/one/api/v1/namespaces/default/configmaps/a application/json " +
				`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Background"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan string, 1)
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				seen <- strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body))
				for header, want := range map[string]string{"Accept": "application/json", "User-Agent": "tester/1", "Authorization": "Bearer secret"} {
					if got := r.Header.Get(header); got != want {
						t.Errorf("%s is %q, want %q", header, got, want)
					}
				}
				fmt.Fprint(w, stored)
			})
			if err := test.call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if got := <-seen; got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestResponsesAreObjects(t *testing.T) {
	t.Parallel()
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		// Without a length, in parts.
		fmt.Fprint(w, stored[:20])
		w.(http.Flusher).Flush()
		fmt.Fprint(w, stored[20:])
	})
	first, err := c.Create(t.Context(), client.Target{Resource: configMaps, Namespace: "default"}, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), client.Target{Resource: configMaps, Namespace: "default", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	// It is its own, though the buffer was used again.
	if first.ResourceVersion() != "7" || string(first.JSON()) != stored {
		t.Errorf("got %s", first.JSON())
	}
}

func TestErrorsAreThoseOfTheAPIServer(t *testing.T) {
	t.Parallel()
	const conflict = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"it is another one",` +
		`"reason":"Conflict","details":{"name":"a","kind":"configmaps"},"code":409}`
	for name, test := range map[string]struct {
		code        int
		contentType string
		body        string
		is          func(error) bool
		want        string
	}{
		"a Status": {409, "application/json", conflict, apierrors.IsConflict, "it is another one"},
		"an unknown path": {
			404, "text/plain", "404 page not found\n", apierrors.IsNotFound,
			"the server could not find the requested resource",
		},
		"a page of a proxy": {502, "text/html", "<h1>Bad Gateway</h1>", apierrors.IsInternalError, "<h1>Bad Gateway</h1>"},
		"something binary":  {403, "application/octet-stream", "\x01", apierrors.IsForbidden, "unknown"},
		"no object":         {200, "application/json", "[]", func(error) bool { return true }, "reading the API server's response"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := against(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				w.WriteHeader(test.code)
				fmt.Fprint(w, test.body)
			})
			_, err := c.Get(t.Context(), client.Target{Resource: configMaps, Namespace: "default", Name: "a"})
			if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if status, ok := err.(apierrors.APIStatus); ok && test.code == 404 && status.Status().Details.Name != "" {
				t.Error("a response that is no Status names an object")
			}
		})
	}
}

// TestRequestsAreSentAgainWhenTheServerWantsThat is what priority and fairness demands of clients: its 429 has a Retry-After.
func TestRequestsAreSentAgainWhenTheServerWantsThat(t *testing.T) {
	t.Parallel()
	target := client.Target{Resource: configMaps, Namespace: "default"}
	for name, test := range map[string]struct {
		code, refusals int
		retryAfter     string
		requests       int32
		ok             bool
	}{
		"429 with a time":            {429, 2, "0", 3, true},
		"503 with a time":            {503, 1, "0", 2, true},
		"429 for ever":               {429, 100, "0", 11, false},
		"429 without a time":         {429, 1, "", 1, false},
		"503 for ever":               {503, 100, "0", 11, false},
		"500 without a time":         {500, 1, "", 1, false},
		"409 with a time is no wait": {409, 1, "0", 1, false},
		"a time that is no number":   {429, 1, "Wed, 21 Oct 2026 07:28:00 GMT", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"a":1}` {
					t.Errorf("body %q, error %v", body, err)
				}
				if int(requests.Add(1)) <= test.refusals {
					if test.retryAfter != "" {
						w.Header().Set("Retry-After", test.retryAfter)
					}
					w.WriteHeader(test.code)
					return
				}
				fmt.Fprint(w, stored)
			})
			_, err := c.Create(t.Context(), target, []byte(`{"a":1}`))
			if (err == nil) != test.ok || requests.Load() != test.requests {
				t.Errorf("%d requests, error %v", requests.Load(), err)
			}
			if _, open := errors.AsType[*client.RepeatedError](err); open != (test.code >= 500 && err != nil && test.requests > 1) {
				t.Errorf("the error %v leaves open what was done: %t", err, open)
			}
		})
	}
}

// TestALongWaitIsLeftToTheCaller holds that no caller is blocked, with what it holds, for as long as an API server likes.
func TestALongWaitIsLeftToTheCaller(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{"1": time.Second, "30": 30 * time.Second, "3600": 30 * time.Second} {
		var requests atomic.Int32
		c := against(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		_, err := c.Get(t.Context(), client.Target{Resource: configMaps, Namespace: "default", Name: "a"})
		later, ok := errors.AsType[interface {
			error
			RetryAfter() time.Duration
		}](err)
		if !ok || later.RetryAfter() != want || !apierrors.IsTooManyRequests(err) || requests.Load() != 1 {
			t.Errorf("Retry-After %s: %d requests, got %v, want one to be sent after %s", header, requests.Load(), err, want)
		}
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c, err := client.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), client.Target{Resource: configMaps, Namespace: "default", Name: "a"})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestAConfigurationThatCannotWorkIsAnError(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*rest.Config{
		"address":     {Host: "://"},
		"certificate": {Host: "https://a.example", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := client.New(config); err == nil {
				t.Error("no error")
			}
		})
	}
}
