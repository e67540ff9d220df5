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

package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// sized responds with a number of bytes, of which it declares the length or not.
func sized(bytes int, declared bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if declared {
			w.Header().Set("Content-Length", strconv.Itoa(bytes))
		} else {
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, strings.Repeat(" ", bytes))
	})
}

// TestResponsesOfAllHooksShareABudget holds a response of one hook, and then calls another.
func TestResponsesOfAllHooksShareABudget(t *testing.T) {
	const budget, limit = 1 << 20, 512 << 10
	for name, tc := range map[string]struct {
		reason      string
		first, then http.Handler
		fits        bool
	}{
		"Both":           {"There is room for two.", sized(limit, true), sized(limit, true), true},
		"Unknown":        {"What a response of unknown length turns out not to need is given back.", sized(100<<10, false), sized(limit, false), true},
		"Small":          {"Small responses need no room.", sized(limit, true), sized(64<<10, true), true},
		"SmallOfUnknown": {"Nor do those of unknown length that turn out small.", sized(limit, true), sized(64<<10, false), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold(t, tc.reason, fairqueue.Bytes(budget), limit, tc.first, tc.then, tc.fits)
		})
	}
	for name, tc := range map[string]struct {
		reason      string
		first, then http.Handler
		fits        bool
	}{
		"Declared":       {"There is room for one and a half.", sized(limit, true), sized(limit, true), false},
		"UnknownAfter":   {"A response of unknown length may be as large as the limit.", sized(limit, true), sized(300<<10, false), false},
		"DeclaredIsLess": {"A response that declares its length needs no more than that.", sized(limit, true), sized(200<<10, true), true},
		"Small":          {"Small responses need no room.", sized(limit, true), sized(64<<10, true), true},
	} {
		t.Run("Tight"+name, func(t *testing.T) {
			t.Parallel()
			hold(t, tc.reason, fairqueue.Bytes(limit*3/2), limit, tc.first, tc.then, tc.fits)
		})
	}
}

func hold(t *testing.T, reason string, budget *fairqueue.Budget, limit int64, first, then http.Handler, fits bool) {
	t.Helper()
	server := hooktest.NewServer(t)
	server.Handle("/first", first)
	server.Handle("/then", then)
	shared := func(c *webhook.Config) { c.ResponseBudget, c.MaxResponseBytes = budget, limit }
	held, err := newClient(t, configure(server.URL("/first"), shared)).Call(t.Context(), fleet, nil)
	if err != nil {
		t.Fatal(err)
	}
	timeout := 30 * time.Second
	if !fits {
		timeout = 2 * time.Second // Enough to connect on a busy machine.
	}
	other := newClient(t, configure(server.URL("/then"), shared, withTimeout(timeout)))
	response, err := other.Call(t.Context(), fleet, nil)
	response.Release()
	if fits && err != nil {
		t.Errorf("%s\n%v", reason, err)
	}
	if used, all := budget.Used(); used <= 0 || used > all {
		t.Errorf("%d of %d bytes are used by a response that is held", used, all)
	}
	if fits {
		return
	}
	want := "http error: calling " + server.URL("/then") + ": no room for the response within 2s beside those of other calls; " +
		"raise --hook-response-budget of the server, or let the hooks return less"
	if _, ok := errors.AsType[*webhook.CallError](err); !ok || err.Error() != want {
		t.Errorf("%s\ngot  %v\nwant %s", reason, err, want)
	}
	held.Release()
	held.Release()
	again := newClient(t, configure(server.URL("/then"), shared))
	if response, err = again.Call(t.Context(), fleet, nil); err != nil {
		t.Errorf("after a release there is no room: %v", err)
	}
	response.Release()
}

// TestCallsThatFailHoldNoRoom makes more failing calls than the budget has room for.
func TestCallsThatFailHoldNoRoom(t *testing.T) {
	const limit = 200 << 10
	server := hooktest.NewServer(t)
	server.Handle("/large", sized(limit+1, false))
	server.Handle("/short", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "150000")
		_, _ = io.WriteString(w, strings.Repeat(" ", 100<<10))
	}))
	server.Handle("/broken", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(" ", 100<<10))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	server.Handle("/good", sized(limit, true))
	budget := fairqueue.Bytes(limit)
	shared := func(c *webhook.Config) { c.ResponseBudget, c.MaxResponseBytes = budget, limit }
	for _, path := range []string{"/large", "/short", "/broken"} {
		if _, err := newClient(t, configure(server.URL(path), shared)).Call(t.Context(), fleet, nil); err == nil {
			t.Errorf("%s: no error", path)
		}
		response, err := newClient(t, configure(server.URL("/good"), shared)).Call(t.Context(), fleet, nil)
		if err != nil {
			t.Errorf("after %s there is no room: %v", path, err)
		}
		response.Release()
	}
}

// TestABudgetThatIsShortLetsAllCallsThrough makes many calls at once with room for two.
func TestABudgetThatIsShortLetsAllCallsThrough(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/declared", sized(100<<10, true))
	server.Handle("/unknown", sized(100<<10, false))
	budget := fairqueue.Bytes(250 << 10)
	var calling sync.WaitGroup
	for _, path := range []string{"/declared", "/unknown"} {
		client := newClient(t, configure(server.URL(path), func(c *webhook.Config) { c.ResponseBudget = budget }))
		for range 20 {
			calling.Go(func() {
				response, err := client.Call(t.Context(), fleet, nil)
				if err != nil || len(response.Body) != 100<<10 {
					t.Errorf("%s: %d bytes, %v", path, len(response.Body), err)
				}
				response.Release()
			})
		}
	}
	calling.Wait()
	if used, all := budget.Used(); used != 0 || all != 250<<10 {
		t.Errorf("%d of %d bytes are used after all responses were released", used, all)
	}
}

// TestRememberedResponsesShareABudget lets one hook fill it.
func TestRememberedResponsesShareABudget(t *testing.T) {
	const size = 10 << 10
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Tagged(`"v1"`, http.StatusNotModified, strings.Repeat("x", size)))
	budget := fairqueue.Bytes(size * 3 / 2)
	tagged := func(c *webhook.Config) {
		c.EtagBudget = budget
		c.Webhook.Etag = &v1alpha1.WebhookEtagConfig{Enabled: new(true)}
	}
	one, other := newClient(t, configure(server.URL("/sync"), tagged)), newClient(t, configure(server.URL("/sync"), tagged))
	remembers := func(c *webhook.Client) bool {
		response, err := c.Call(t.Context(), fleet, nil)
		if err != nil || len(response.Body) != size+2 {
			t.Fatalf("%d bytes, %v", len(response.Body), err)
		}
		defer response.Release()
		return response.NotModified
	}
	for i, want := range []bool{false, true, true} {
		if got := remembers(one); got != want {
			t.Errorf("call %d of the first hook: remembered: %t, want %t", i, got, want)
		}
	}
	for i := range 3 {
		if remembers(other) {
			t.Errorf("call %d of the second hook was remembered, and there is no room", i)
		}
	}
	held, err := one.Call(t.Context(), fleet, nil)
	if err != nil || !held.NotModified {
		t.Fatal(held.NotModified, err)
	}
	one.Close()
	for i := range 3 {
		if remembers(other) {
			t.Errorf("call %d of the second hook was remembered, and a response of the first one is still in use", i)
		}
	}
	held.Release()
	for i, want := range []bool{false, true} {
		if got := remembers(other); got != want {
			t.Errorf("call %d after the first hook is closed: remembered: %t, want %t", i, got, want)
		}
	}
}

// TestReadingCredentialsIsPartOfTheCall has credentials that never come.
func TestReadingCredentialsIsPartOfTheCall(t *testing.T) {
	client := newClient(t, configure("http://hook.example.com/sync", withTimeout(10*time.Millisecond), func(c *webhook.Config) {
		c.Credentials = absent{}
		c.Webhook.Authorization = &v1alpha1.WebhookAuthorization{
			SecretRef: v1alpha1.SecretKeyReference{Namespace: "shop", Name: "token", Key: "k"},
		}
	}))
	_, err := client.Call(t.Context(), fleet, nil)
	const want = "authorization of the hook, Secret shop/token: not read within 10ms: context deadline exceeded"
	if _, ok := errors.AsType[*webhook.CredentialsError](err); !ok || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// absent are credentials that cannot be read.
type absent struct{}

// Secret implements webhook.Credentials.
func (absent) Secret(ctx context.Context, _, _ string) (string, map[string][]byte, error) {
	<-ctx.Done()
	return "", nil, ctx.Err()
}

// ConfigMap implements webhook.Credentials.
func (a absent) ConfigMap(ctx context.Context, namespace, name string) (string, map[string][]byte, error) {
	return a.Secret(ctx, namespace, name)
}

// stuck is a connection to a hook that does not read its requests. It tells of each of them.
type stuck chan struct{}

// RoundTrip implements http.RoundTripper.
func (s stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case s <- struct{}{}:
	case <-r.Context().Done():
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRequestsOfAllHooksShareABudget keeps large requests on their way to hooks that do not read, and calls another one.
func TestRequestsOfAllHooksShareABudget(t *testing.T) {
	const size, limit = 100 << 10, 400 << 10
	budget := fairqueue.Bytes(limit)
	large, small := []byte(strings.Repeat(" ", size)), []byte(strings.Repeat(" ", 64<<10))
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Body("", `{}`))
	shared := func(c *webhook.Config) { c.RequestBudget = budget }
	client := newClient(t, configure(server.URL("/sync"), shared))
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	arrived := make(stuck)
	for i := range int64(4) {
		if _, err := client.Call(t.Context(), fleet, large); err != nil {
			t.Errorf("%d hooks that do not read leave no room: %v", i, err)
		}
		first := newClient(t, configure(server.URL("/sync"), shared, func(c *webhook.Config) { c.Transport = arrived }))
		for range 3 {
			calls.Go(func() {
				_, err := first.Call(ctx, fleet, large)
				if e, ok := errors.AsType[*webhook.CallError](err); !ok || e.NoRoom || !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want that the call was stopped", err)
				}
			})
		}
		<-arrived
		if used, all := budget.Used(); used != (i+1)*size || all != limit {
			t.Errorf("%d of %d bytes are used by the requests of %d hooks of %d each", used, all, i+1, size)
		}
	}
	if _, err := client.Call(t.Context(), fleet, small); err != nil {
		t.Errorf("a small request needs no room: %v", err)
	}
	// Enough to connect on a busy machine.
	_, err := newClient(t, configure(server.URL("/sync"), shared, withTimeout(2*time.Second))).Call(t.Context(), fleet, large)
	want := "http error: calling " + server.URL("/sync") + ": no room for the request within 2s beside those of other calls; " +
		"raise --hook-request-budget of the server, or let the hooks read their requests faster"
	if e, ok := errors.AsType[*webhook.CallError](err); !ok || err.Error() != want || !e.NoRoom || e.Connected {
		t.Errorf("got  %+v\nwant %s", err, want)
	}
	stop()
	calls.Wait()
	if _, err := client.Call(t.Context(), fleet, large); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if used, _ := budget.Used(); used != 0 {
		t.Errorf("%d bytes are used after all calls", used)
	}
}

// TestARequestThatWasReadNeedsNoRoom calls hooks that read their requests and do not answer.
func TestARequestThatWasReadNeedsNoRoom(t *testing.T) {
	for name, options := range map[string][]hooktest.Option{"HTTP/1.1": nil, "HTTP/2": {hooktest.WithHTTP2()}} {
		t.Run(name, func(t *testing.T) {
			budget := fairqueue.Bytes(400 << 10)
			large := []byte(strings.Repeat(" ", 500<<10))
			server := hooktest.NewServer(t, options...)
			const callers = 6
			arrived, proceed := make(chan struct{}, callers), make(chan struct{})
			server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				arrived <- struct{}{}
				<-proceed
				_, _ = io.WriteString(w, `{}`)
			}))
			change := []func(*webhook.Config){func(c *webhook.Config) { c.RequestBudget = budget }}
			if len(options) > 0 {
				change = append(change, trusting(server))
			}
			client := newClient(t, configure(server.URL("/sync"), change...))
			var calls sync.WaitGroup
			for range callers {
				calls.Go(func() {
					if _, err := client.Call(t.Context(), fleet, large); err != nil {
						t.Error(err)
					}
				})
			}
			for i := range callers {
				select {
				case <-arrived:
				case <-time.After(time.Minute):
					t.Fatalf("%d of %d requests arrived", i, callers)
				}
			}
			close(proceed)
			calls.Wait()
			if used, _ := budget.Used(); used != 0 {
				t.Errorf("%d bytes are used after all calls", used)
			}
		})
	}
}
