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
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// BenchmarkCreate has the server's part in it, which is small: it reads the body and writes an object of 2 KB.
func BenchmarkCreate(b *testing.B) {
	response := strings.Replace(stored, `"metadata"`, `"data":{"k":"`+strings.Repeat("x", 1900)+`"},"metadata"`, 1)
	c := against(b, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		fmt.Fprint(w, response)
	})
	target := client.Target{Resource: configMaps, Namespace: "default"}
	body := []byte(response)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Create(b.Context(), target, body); err != nil {
			b.Fatal(err)
		}
	}
}

// No groups are sent: API servers add those of a service account, and ask for a right for each that is sent.
func TestAnIdentityIsInEveryRequest(t *testing.T) {
	t.Parallel()
	one := client.Target{Resource: configMaps, Namespace: "default", Name: "a"}
	body := []byte(`{"a":1}`)
	got := func(_ *object.Object, err error) error { return err }
	for name, test := range map[string]struct {
		call  func(context.Context, *client.Client) error
		verbs string
	}{
		"get":    {func(ctx context.Context, c *client.Client) error { return got(c.Get(ctx, one)) }, "get"},
		"create": {func(ctx context.Context, c *client.Client) error { return got(c.Create(ctx, one, body)) }, "create"},
		"try":    {func(ctx context.Context, c *client.Client) error { return got(c.Try(ctx, one, body)) }, "update"},
		"whole":  {func(ctx context.Context, c *client.Client) error { return got(c.Whole().Get(ctx, one)) }, "get"},
		"patch": {func(ctx context.Context, c *client.Client) error {
			return got(c.Patch(ctx, one, types.MergePatchType, body))
		}, "patch"},
		"apply": {func(ctx context.Context, c *client.Client) error {
			return got(c.Apply(ctx, one, client.Application{Manager: "m", Body: body}))
		}, "patch create"},
		"delete": {func(ctx context.Context, c *client.Client) error { _, err := c.Delete(ctx, one, "u", "7"); return err }, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuse := true
			server := against(t, func(w http.ResponseWriter, r *http.Request) {
				user, groups := r.Header.Values("Impersonate-User"), r.Header.Values("Impersonate-Group")
				if !slices.Equal(user, []string{"system:serviceaccount:team:alice"}) || len(groups) > 0 {
					t.Errorf("the user is %q, the groups are %q", user, groups)
				}
				if agent := r.Header.Get("User-Agent"); agent != "tester/1" {
					t.Errorf("the user agent is %q", agent)
				}
				if refuse {
					w.WriteHeader(http.StatusForbidden)
				}
				fmt.Fprint(w, stored)
			})
			var seen []string
			as := server.As(client.Identity{User: "system:serviceaccount:team:alice", Observe: func(_ context.Context, r client.Request, err error) {
				seen = append(seen, fmt.Sprint(strings.Join(r.Verbs, " "), " ", r.Target.Name, " ", apierrors.IsForbidden(err)))
			}})
			if err := test.call(t.Context(), as); !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
			refuse = false
			if err := test.call(t.Context(), as); err != nil {
				t.Error(err)
			}
			if want := []string{test.verbs + " a true", test.verbs + " a false"}; !slices.Equal(seen, want) {
				t.Errorf("observed %q, want %q", seen, want)
			}
		})
	}
}

func TestNobodyIsToldOfWhatSaysNothingAboutTheIdentity(t *testing.T) {
	t.Parallel()
	server := against(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	as := server.As(client.Identity{User: "alice", Observe: func(_ context.Context, r client.Request, _ error) { t.Errorf("told of %v", r) }})
	if _, err := as.Get(client.Unobserved(t.Context()), client.Target{Resource: configMaps, Namespace: "default", Name: "a"}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

func TestOthersKeepTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	var users []string
	server := against(t, func(w http.ResponseWriter, r *http.Request) {
		users = append(users, r.Header.Get("Impersonate-User"))
		fmt.Fprint(w, stored)
	})
	for _, c := range []*client.Client{server.As(client.Identity{User: "alice"}), server, server.As(client.Identity{User: "bob"})} {
		if _, err := c.Get(t.Context(), client.Target{Resource: configMaps, Namespace: "default", Name: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"alice", "", "bob"}; !slices.Equal(users, want) {
		t.Errorf("got %q, want %q", users, want)
	}
}

var one = client.Target{Resource: configMaps, Namespace: "default", Name: "a"}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(w *http.Request, status int, header http.Header) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(stored)), Request: w}
}

func newClient(t *testing.T, config *rest.Config) *client.Client {
	t.Helper()
	config.Host = "http://cluster.example"
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRequestsAreLimited sends 100 requests as fast as it may.
func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		qps   float32
		burst int
		want  time.Duration
	}{
		"limit":            {qps: 10, burst: 20, want: 8 * time.Second},
		"burst by default": {qps: 10, want: 9 * time.Second},
		"none":             {qps: 0, burst: 20},
		"negative":         {qps: -1, burst: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, &rest.Config{QPS: test.qps, Burst: test.burst, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return respond(r, http.StatusOK, nil), nil
				})})
				start := time.Now()
				var sending sync.WaitGroup
				for _, sharing := range []*client.Client{c, c.Knowing("metacontroller")} {
					sending.Go(func() {
						for range 50 {
							if _, err := sharing.Get(t.Context(), one); err != nil {
								t.Error(err)
							}
						}
					})
				}
				sending.Wait()
				if took := time.Since(start); took < test.want-time.Millisecond || took > test.want+time.Millisecond {
					t.Errorf("100 requests took %s, want %s", took, test.want)
				}
			})
		})
	}
}

// latencies are how long requests were held back, as the metrics of client-go are told.
type latencies struct {
	mu   sync.Mutex
	seen []time.Duration
}

func (l *latencies) Observe(_ context.Context, _ string, _ url.URL, latency time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, latency)
}

// TestWaitingForTheLimitIsMeasured is not parallel, since it replaces a metric of the process.
func TestWaitingForTheLimitIsMeasured(t *testing.T) {
	var measured latencies
	former := metrics.RateLimiterLatency
	metrics.RateLimiterLatency = &measured
	defer func() { metrics.RateLimiterLatency = former }()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, &rest.Config{QPS: 1, Burst: 1, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return respond(r, http.StatusOK, nil), nil
		})})
		for range 2 {
			if _, err := c.Get(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
	})
	if want := []time.Duration{0, time.Second}; !slices.Equal(measured.seen, want) {
		t.Errorf("requests were held back for %v, not %v", measured.seen, want)
	}
}

func TestWaitingForTheLimitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	c := newClient(t, &rest.Config{QPS: 1e-6, Burst: 1, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return respond(r, http.StatusOK, nil), nil
	})})
	if _, err := c.Get(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, one); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestARequestEndsInTime has an API server that never responds, or not to the end.
func TestARequestEndsInTime(t *testing.T) {
	t.Parallel()
	for name, transport := range map[string]roundTrip{
		"no response": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"no end": func(r *http.Request) (*http.Response, error) {
			response := respond(r, http.StatusOK, nil)
			response.Body = io.NopCloser(endless{r.Context()})
			return response, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := newClient(t, &rest.Config{Transport: transport}).Get(t.Context(), one)
				if err == nil || !strings.HasPrefix(err.Error(), "the API server did not respond within 1m30s: ") || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != 90*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// endless is a body without an end.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

// handler records warnings.
type handler struct{ seen []string }

func (h *handler) HandleWarningHeader(code int, agent, text string) {
	h.seen = append(h.seen, fmt.Sprintf("%d %s %s", code, agent, text))
}

func (h *handler) HandleWarningHeaderWithContext(_ context.Context, code int, agent, text string) {
	h.HandleWarningHeader(code, agent, text)
}

func TestWarningsReachTheHandler(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "things.example.com/v1beta1 is deprecated"`)
		w.Header().Add("Warning", `299 - "unknown field \"spec.a\""`)
		fmt.Fprint(w, stored)
	}))
	defer server.Close()
	var with, without handler
	for name, test := range map[string]struct {
		config *rest.Config
		seen   *[]string
	}{
		"with context": {&rest.Config{WarningHandlerWithContext: &with}, &with.seen},
		"without":      {&rest.Config{WarningHandler: &without}, &without.seen},
	} {
		test.config.Host = server.URL
		c, err := client.New(test.config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(*test.seen, "\n"), "299 - things.example.com/v1beta1 is deprecated\n299 - unknown field \"spec.a\""; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestWarningsAreLoggedOnceByDefault(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	c := newClient(t, &rest.Config{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return respond(r, http.StatusOK, http.Header{"Warning": {`299 - "v1beta1 is deprecated"`, `199 - "other"`}}), nil
	})})
	for range 3 {
		if _, err := c.Get(ctx, one); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "v1beta1 is deprecated"); n != 1 || strings.Contains(log.String(), "other") {
		t.Errorf("the log is %s", log.String())
	}
}
