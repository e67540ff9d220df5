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
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
)

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
