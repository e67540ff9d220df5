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
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

var fleet = webhook.RootKey{Group: "example.com", Kind: "Fleet", Namespace: "shop", Name: "main"}

// proxied has the URLs that the proxy of this test process was sent. The standard library reads HTTP_PROXY once, so the
// proxy is started before all tests; it never applies to local addresses, which all other tests use.
var proxied struct {
	sync.Mutex
	urls []string
}

func TestMain(m *testing.M) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied.Lock()
		proxied.urls = append(proxied.urls, r.URL.String())
		proxied.Unlock()
		_, _ = io.WriteString(w, `{"finalized":true}`)
	}))
	os.Setenv("HTTP_PROXY", proxy.URL) //nolint:errcheck // the name and value are valid
	os.Unsetenv("NO_PROXY")            //nolint:errcheck // as above
	os.Unsetenv("no_proxy")            //nolint:errcheck // as above
	goleak.VerifyTestMain(proxiedTests{m: m, proxy: proxy})
}

// proxiedTests closes the proxy before goroutines are looked for.
type proxiedTests struct {
	m     *testing.M
	proxy *httptest.Server
}

// Run implements goleak.TestingM.
func (t proxiedTests) Run() int {
	code := t.m.Run()
	t.proxy.Close()
	return code
}

// configure returns a config for a hook at url.
func configure(url string, change ...func(*webhook.Config)) webhook.Config {
	c := webhook.Config{
		Hook: hook.Sync, ControllerKind: "CompositeController", ControllerName: "fleet",
		Webhook: &v1alpha1.Webhook{URL: &url, Timeout: &metav1.Duration{Duration: 30 * time.Second}},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func newClient(t *testing.T, c webhook.Config) *webhook.Client {
	t.Helper()
	client, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func withTimeout(d time.Duration) func(*webhook.Config) {
	return func(c *webhook.Config) { c.Webhook.Timeout = &metav1.Duration{Duration: d} }
}

func call(t *testing.T, client *webhook.Client) string {
	t.Helper()
	response, err := client.Call(t.Context(), fleet, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	return string(response.Body)
}

func TestRequest(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Body("application/json; charset=utf-8", `{"finalized":true}`))
	client := newClient(t, configure(server.URL("/sync?mode=1"), func(c *webhook.Config) { c.ServerVersion = "v1.2.3" }))

	response, err := client.Call(t.Context(), fleet, []byte(`{"parent":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(response.Body) != `{"finalized":true}` || response.ContentType != "application/json; charset=utf-8" || response.NotModified {
		t.Errorf("response %s, %s, %v", response.Body, response.ContentType, response.NotModified)
	}
	got := server.Requests("/sync")[0]
	if got.Method != http.MethodPost || string(got.Body) != `{"parent":{}}` {
		t.Errorf("request %s %s", got.Method, got.Body)
	}
	for header, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "metacontroller-apiserver/v1.2.3", "Authorization": "", "If-None-Match": "", "Idempotency-Key": "",
		"Traceparent": "",
	} {
		if got := got.Header.Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
	if client.Endpoint() != server.URL("/sync") {
		t.Errorf("Endpoint() = %s", client.Endpoint())
	}
}

func TestDefinitionsThatCannotWork(t *testing.T) {
	cases := map[string]struct {
		change func(*webhook.Config)
		want   string
	}{
		"NoWebhook":   {func(c *webhook.Config) { c.Webhook = nil }, "the hook has no webhook"},
		"NoAddress":   {func(c *webhook.Config) { c.Webhook.URL = nil }, "the webhook must have either url, or both service and path"},
		"UnknownHook": {func(c *webhook.Config) { c.Hook = "preUpdateChild" }, `unknown hook "preUpdateChild"`},
		"BothAuths": {
			func(c *webhook.Config) {
				c.Webhook.Authorization, c.Webhook.BasicAuth = &v1alpha1.WebhookAuthorization{}, &v1alpha1.WebhookBasicAuth{}
			},
			"webhook: authorization and basicAuth exclude each other; remove one of them",
		},
		"BothAuthsInEndpoint": {
			func(c *webhook.Config) {
				c.EndpointConfigs = []v1alpha1.EndpointConfig{{Host: "h", WebhookSecurity: v1alpha1.WebhookSecurity{
					Authorization: &v1alpha1.WebhookAuthorization{}, BasicAuth: &v1alpha1.WebhookBasicAuth{},
				}}}
			},
			"endpointConfigs[0]: authorization and basicAuth exclude each other; remove one of them",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := webhook.New(configure("http://h/sync", tc.change))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// statusOfNone answers with the status 000, which net/http takes from servers and does not send.
func statusOfNone(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(connection, "HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n")
	_ = connection.Close()
}

func TestStatusCodes(t *testing.T) {
	date := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason  string
		handler http.Handler
		want    error
		wantMsg string
	}{
		"429Seconds":         {"Retry-After in seconds.", hooktest.RetryLater(429, "7"), &webhook.RetryLaterError{Status: 429, After: 7 * time.Second}, "the hook returned 429 Too Many Requests, retry after 7s"},
		"429Date":            {"Retry-After as a date.", hooktest.RetryLater(429, date.Add(90*time.Second).Format(http.TimeFormat)), &webhook.RetryLaterError{Status: 429, After: 90 * time.Second}, "the hook returned 429 Too Many Requests, retry after 1m30s"},
		"429Bare":            {"Without Retry-After the queue backs off.", hooktest.RetryLater(429, ""), &webhook.RetryLaterError{Status: 429}, "the hook returned 429 Too Many Requests"},
		"503Seconds":         {"503 with Retry-After is the same.", hooktest.RetryLater(503, "2"), &webhook.RetryLaterError{Status: 503, After: 2 * time.Second}, "the hook returned 503 Service Unavailable, retry after 2s"},
		"503Bare":            {"503 without Retry-After is a failure like others.", hooktest.Status(503, "no upstream"), &webhook.StatusError{Code: 503, Body: "no upstream"}, "unsupported status code: 503 body: no upstream"},
		"500":                {"The body helps to find the fault.", hooktest.Status(500, "KeyError: 'spec'\n"), &webhook.StatusError{Code: 500, Body: "KeyError: 'spec'"}, "unsupported status code: 500 body: KeyError: 'spec'"},
		"201":                {"Only 200 is a response.", hooktest.Status(201, "{}"), &webhook.StatusError{Code: 201, Body: "{}"}, "unsupported status code: 201 body: {}"},
		"412WithoutEtag":     {"The request was not conditional.", hooktest.Status(412, ""), &webhook.StatusError{Code: 412}, "unsupported status code: 412 body: "},
		"000":                {"A status that is none.", http.HandlerFunc(statusOfNone), &webhook.StatusError{Code: 0}, "unsupported status code: 0 body: "},
		"302WithoutLocation": {"A redirect to nowhere.", hooktest.Status(302, ""), &webhook.StatusError{Code: 302}, "unsupported status code: 302 body: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := hooktest.NewServer(t)
			server.Handle("/sync", tc.handler)
			client := newClient(t, configure(server.URL("/sync"), func(c *webhook.Config) { c.Clock = clocktesting.NewFakePassiveClock(date) }))
			_, err := client.Call(t.Context(), fleet, []byte(`{}`))
			if err == nil {
				t.Fatalf("%s\nno error", tc.reason)
			}
			if diff := cmp.Diff(tc.want, err); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.reason, diff)
			}
			if err.Error() != tc.wantMsg {
				t.Errorf("%s\nmessage %q, want %q", tc.reason, err, tc.wantMsg)
			}
		})
	}
}

func TestProxyOfTheEnvironmentIsUsed(t *testing.T) {
	const address = "http://hook.shop.example/sync"
	proxied.Lock()
	proxied.urls = nil
	proxied.Unlock()
	if got := call(t, newClient(t, configure(address))); got != `{"finalized":true}` {
		t.Errorf("response %q", got)
	}
	proxied.Lock()
	defer proxied.Unlock()
	if len(proxied.urls) != 1 || proxied.urls[0] != address {
		t.Errorf("the proxy was sent %v", proxied.urls)
	}
}

func TestConnectionsAreKeptForAllWorkers(t *testing.T) {
	const workers, rounds = 8, 4
	server := hooktest.NewServer(t)
	arrived := make(chan struct{}, workers)
	proceed := make(chan struct{})
	server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-proceed
		_, _ = io.WriteString(w, `{}`)
	}))
	client := newClient(t, configure(server.URL("/sync"), func(c *webhook.Config) { c.Workers = workers }))
	for range rounds {
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err != nil {
					t.Error(err)
				}
			})
		}
		for range workers { // all calls are in progress at once
			<-arrived
		}
		for range workers {
			proceed <- struct{}{}
		}
		wg.Wait()
	}
	connections := map[string]bool{}
	for _, r := range server.Requests("/sync") {
		connections[r.Connection] = true
	}
	// On a busy machine net/http gives up a connection that is not ready for the next request at once.
	if n := len(connections); n < workers || n >= 2*workers {
		t.Errorf("%d connections for %d calls of %d workers, want about one each", n, workers*rounds, workers)
	}
}

func TestHTTP2IsUsedWhereOffered(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithHTTP2())
	server.Handle("/sync", hooktest.Body("", `{}`))
	call(t, newClient(t, configure(server.URL("/sync"), trusting(server))))
	if got := server.Requests("/sync")[0].Proto; got != "HTTP/2.0" {
		t.Errorf("the request came in %s", got)
	}
}

// TestStaleConnectionIsReplaced shows what happens when a hook's Pod goes away between two calls.
func TestStaleConnectionIsReplaced(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(hooktest.Body("", `{}`), hooktest.Closed(), hooktest.Body("", `{"finalized":true}`)))
	client := newClient(t, configure(server.URL("/sync")))
	call(t, client)
	if got := call(t, client); got != `{"finalized":true}` {
		t.Errorf("response %q", got)
	}
	if n := len(server.Requests("/sync")); n != 3 {
		t.Errorf("%d requests, want 3: the one on the dead connection is repeated on a new one", n)
	}
}

func TestResponseSizeIsLimited(t *testing.T) {
	const limit = 1000
	server := hooktest.NewServer(t)
	server.Handle("/fits", hooktest.Body("", strings.Repeat(" ", limit)))
	server.Handle("/declared", hooktest.Body("", strings.Repeat(" ", limit+1)))
	server.Handle("/streamed", hooktest.Huge(limit))
	server.Handle("/compressed", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 100*limit))
		_ = z.Close()
	}))
	limited := func(c *webhook.Config) { c.MaxResponseBytes = limit }
	if got := call(t, newClient(t, configure(server.URL("/fits"), limited))); len(got) != limit {
		t.Errorf("got %d bytes, want all %d", len(got), limit)
	}
	for _, path := range []string{"/declared", "/streamed", "/compressed"} {
		_, err := newClient(t, configure(server.URL(path), limited)).Call(t.Context(), fleet, []byte(`{}`))
		const want = "the response is larger than the limit of 1000 bytes; let the hook return less, or raise --hook-response-limit of the server"
		if !hook.IsRejected(err) || err.Error() != want {
			t.Errorf("%s: got %T %v, want %s", path, err, err, want)
		}
	}
}

func TestEtag(t *testing.T) {
	enabled := func(seconds *int32) func(*webhook.Config) {
		return func(c *webhook.Config) {
			c.Webhook.Etag = &v1alpha1.WebhookEtagConfig{Enabled: new(true), CacheTimeoutSeconds: seconds}
		}
	}
	other := fleet
	other.Name = "other"
	for _, notModified := range []int{http.StatusNotModified, http.StatusPreconditionFailed} {
		server := hooktest.NewServer(t)
		server.Handle("/sync", hooktest.Tagged(`"v1"`, notModified, map[string]any{"finalized": true}))
		clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
		client := newClient(t, configure(server.URL("/sync"), enabled(new(int32(60))), func(c *webhook.Config) { c.Clock = clock }))
		steps := []struct {
			reason   string
			before   func()
			key      webhook.RootKey
			sentTag  string
			repeated bool
		}{
			{"The first call has no tag.", func() {}, fleet, "", false},
			{"The second call sends the tag, and gets the body that belongs to it.", func() {}, fleet, `"v1"`, true},
			{"Another object has nothing to do with it.", func() {}, other, "", false},
			{"An entry expires by the time of the response, not of its last use.", func() { clock.SetTime(time.Unix(60, 0)) }, fleet, "", false},
			{"The new response is remembered.", func() {}, fleet, `"v1"`, true},
			{"An object that is gone is forgotten.", func() { client.Forget(fleet) }, fleet, "", false},
		}
		for i, step := range steps {
			step.before()
			response, err := client.Call(t.Context(), step.key, []byte(`{}`))
			if err != nil {
				t.Fatalf("%d, step %d: %s\n%v", notModified, i, step.reason, err)
			}
			requests := server.Requests("/sync")
			if sent := requests[len(requests)-1].Header.Get("If-None-Match"); sent != step.sentTag || response.NotModified != step.repeated || string(response.Body) != `{"finalized":true}` || response.ContentType != "application/json" {
				t.Errorf("%d, step %d: %s\nsent %q, got %s (%s), not modified: %v", notModified, i, step.reason, sent, response.Body, response.ContentType, response.NotModified)
			}
		}
	}
}

func TestEtagIsOffByDefault(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Tagged(`"v1"`, http.StatusNotModified, map[string]any{}))
	client := newClient(t, configure(server.URL("/sync")))
	client.Forget(fleet) // does nothing
	for range 2 {
		call(t, client)
	}
	for _, r := range server.Requests("/sync") {
		if r.Header.Get("If-None-Match") != "" {
			t.Error("a tag was sent")
		}
	}
}

func TestStoppedCallsSaySo(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Hang())
	client := newClient(t, configure(server.URL("/sync")))
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the controller is being replaced")
	go func() {
		server.Await(t.Context(), "/sync", 1)
		cancel(reason)
	}()
	_, err := client.Call(ctx, fleet, []byte(`{}`))
	want := "http error: calling " + server.URL("/sync") + ": the call was stopped: the controller is being replaced"
	if err == nil || err.Error() != want || !errors.Is(err, reason) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestClosedClientsRefuseCalls(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Body("", `{}`))
	client := newClient(t, configure(server.URL("/sync")))
	call(t, client)
	client.Close()
	client.Close()
	if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err == nil {
		t.Error("a closed client made a call")
	}
	if n := len(server.Requests("/sync")); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestURLCredentialsWorkAndStaySecret(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(hooktest.Body("", `{}`), hooktest.RedirectLoop()))
	u, err := url.Parse(server.URL("/sync?token=secret"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("user", "secret")
	client := newClient(t, configure(u.String()))
	call(t, client)
	if got := server.Requests("/sync")[0].Header.Get("Authorization"); got != "Basic dXNlcjpzZWNyZXQ=" {
		t.Errorf("Authorization %q", got)
	}
	if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the password", err)
	}
}

// series returns the labels of each time series of a metric that belongs to a URL, with its count.
func series(t *testing.T, metric, url string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["url"] != url {
				continue
			}
			text := ""
			for _, name := range slices.Sorted(maps.Keys(labels)) {
				if name != "url" {
					text += name + "=" + labels[name] + " "
				}
			}
			found[text] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithTLS())
	server.Handle("/finalize", hooktest.Sequence(hooktest.Body("", `{}`), hooktest.Status(500, ""), hooktest.Body("", `{}`)))
	url := server.URL("/finalize")
	config := configure(url, trusting(server), func(c *webhook.Config) {
		c.Hook, c.ControllerKind, c.ControllerName = hook.Finalize, "DecoratorController", "labeler"
	})
	first := newClient(t, config)
	if _, err := first.Call(t.Context(), fleet, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Call(t.Context(), fleet, []byte(`{}`)); err == nil {
		t.Fatal("no error for status 500")
	}
	const fixed = "controller_name=labeler controller_type=DecoratorController "
	expect := func(when string, want map[string]map[string]float64) {
		t.Helper()
		for metric, wanted := range want {
			if diff := cmp.Diff(wanted, series(t, metric, url)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", when, metric, diff)
			}
		}
	}
	used := map[string]map[string]float64{
		"metacontroller_finalize_requests_total": {
			"code=200 " + fixed + "method=post ": 1,
			"code=500 " + fixed + "method=post ": 1,
		},
		"metacontroller_finalize_request_duration_histogram_seconds": {fixed + "method=post ": 2},
		"metacontroller_finalize_tls_duration_histogram_seconds": {
			fixed + "event=tls_handshake_start ": 1, fixed + "event=tls_handshake_done ": 1,
		},
		"metacontroller_finalize_in_flight_requests": {fixed: 0},
	}
	expect("after two calls", used)

	second := newClient(t, config)
	first.Close()
	expect("after the first of two clients with the same labels was closed", used)
	second.Close()
	none := map[string]float64{}
	expect("after the last was closed", map[string]map[string]float64{
		"metacontroller_finalize_requests_total": none, "metacontroller_finalize_request_duration_histogram_seconds": none,
		"metacontroller_finalize_tls_duration_histogram_seconds": none, "metacontroller_finalize_in_flight_requests": none,
	})
}

func TestLookupsAreMeasured(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Body("", `{}`))
	_, port, err := net.SplitHostPort(server.Host())
	if err != nil {
		t.Fatal(err)
	}
	url := "http://localhost:" + port + "/sync"
	call(t, newClient(t, configure(url)))
	const fixed = "controller_name=fleet controller_type=CompositeController "
	want := map[string]float64{fixed + "event=dns_start ": 1, fixed + "event=dns_done ": 1}
	if diff := cmp.Diff(want, series(t, "metacontroller_sync_dns_duration_histogram_seconds", url)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// failing is a transport that calls a function of the program, which fails.
type failing struct{ err error }

// RoundTrip implements http.RoundTripper.
func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, errors.Join(r.Body.Close(), f.err)
}

func TestTheErrorOfAFunctionIsThatOfTheCall(t *testing.T) {
	cause := errors.New("no quota\x1b[2J for " + strings.Repeat("x", 1000))
	transport := failing{&webhook.FunctionError{Err: cause}}
	client := newClient(t, configure("http://function.invalid/sync", func(c *webhook.Config) { c.Transport = transport }))
	_, err := client.Call(t.Context(), fleet, []byte("{}"))
	if _, ok := errors.AsType[*webhook.FunctionError](err); !ok || !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	if text := err.Error(); !strings.HasPrefix(text, "no quota [2J for xxx") || len(text) > 600 {
		t.Errorf("the text has %d bytes: %q", len(text), text)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := client.Call(stopped, fleet, []byte("{}")); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is stopped: %v", err)
	}
}

func TestMessagesCallAFunctionByTheNameOfItsHook(t *testing.T) {
	function, refused := &webhook.FunctionError{Err: errors.New("the moon\nis down")}, &webhook.CallError{Endpoint: "http://h", Cause: "refused"}
	for name, tc := range map[string]struct {
		host      string
		transport http.RoundTripper
		err       error
		// explained is empty if the error needs an explanation.
		endpoint, failed, explained string
	}{
		"function": {
			webhook.FunctionHost, failing{function}, function, "the sync function", "sync function: the moon\nis down", "the moon is down",
		},
		"response of a function": {
			webhook.FunctionHost, failing{function}, errors.New("no kind"), "the sync function", "sync hook failed (version=v2): no kind", "",
		},
		"webhook": {
			"h", nil, refused, "http://h/sync", "sync hook failed (version=v2): http error: calling http://h: refused", "calling http://h: refused",
		},
		"webhook in a simulation": {
			"h", failing{refused}, errors.New("no kind"), "http://h/sync", "sync hook failed (version=v2): no kind", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, configure("http://"+tc.host+"/sync", func(c *webhook.Config) { c.Transport = tc.transport }))
			if got := client.Endpoint(); got != tc.endpoint {
				t.Errorf("the endpoint is %q, want %q", got, tc.endpoint)
			}
			if got := webhook.Failed(hook.Sync, v1alpha1.HookVersionV2, tc.err); got.Error() != tc.failed || !errors.Is(got, tc.err) {
				t.Errorf("the error is %q, want %q", got, tc.failed)
			}
			if got, ok := webhook.Explained(tc.err); ok != (tc.explained != "") || ok && got != tc.explained {
				t.Errorf("it is explained: %t, by %q, want %q", ok, got, tc.explained)
			}
		})
	}
}
