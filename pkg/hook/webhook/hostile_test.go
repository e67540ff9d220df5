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
	"bytes"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

// TestHostileResponses sends each hostile response through call and decoding: none may pass, and each message says what is wrong.
func TestHostileResponses(t *testing.T) {
	const page = `the response must be a JSON object, is not JSON (Content-Type "text/html; charset=utf-8"): it begins with "<!DOCTYPE html> <html><head><title>Sign in</title></head><bo"`
	wants := map[string]string{
		"Empty":          `the response must be a JSON object, is empty (no Content-Type); to want no children, return {}`,
		"Null":           `the response must be a JSON object, is null (Content-Type "application/json")`,
		"List":           `the response must be a JSON object, is a list (Content-Type "application/json")`,
		"Text":           `the response must be a JSON object, is not JSON (Content-Type "text/plain"): it begins with "ok"`,
		"HTML":           page,
		"Binary":         `the response must be a JSON object, is not JSON and not text (Content-Type "application/octet-stream")`,
		"Truncated":      `the response is not valid JSON (Content-Type "application/json"): unexpected end of JSON input, at byte 44`,
		"ChildrenObject": `children: must be a list, is an object`,
		"NullChild":      `children[0]: must be an object, is null`,
		"TextChild":      `children[0]: must be an object, is a string`,
		"DeepNesting":    `the response is not valid JSON (Content-Type "application/json"): invalid character '[' exceeded max depth, at byte 10010`,
		"Huge":           `the response is larger than the limit of 33554432 bytes; let the hook return less, or raise --hook-response-limit of the server`,
		"HugeClaim":      `the response is larger than the limit of 33554432 bytes; let the hook return less, or raise --hook-response-limit of the server`,
		"SlowDrip":       `http error: calling URL: the response was not complete within 2s; make the hook faster or its response smaller, or raise its timeout`,
		"Hang":           `http error: calling URL: connected, but no response within 2s; make the hook faster, or raise its timeout`,
		"Closed":         `http error: calling URL: the hook closed the connection before its response was complete; see the log of the hook for a crash`,
		"CutShort":       `http error: calling URL: the hook closed the connection before its response was complete; see the log of the hook for a crash`,
		"NotHTTP":        `http error: calling URL: the response is not HTTP; check the port, and whether the hook wants https`,
		"RedirectLoop":   `http error: calling URL: stopped after 10 redirects; correct the hook's redirects, or use the final address`,
		"RedirectAway": `http error: calling URL: the hook redirects to http://169.254.169.254/latest/meta-data/, which has another scheme, host or port; ` +
			`redirects there are never followed; use the final address in the controller`,
		"EndlessHeaders": `http error: calling URL: the headers of the response exceed 1048576 bytes; let the hook return fewer headers`,
		"BadHeader":      `http error: calling URL: the headers of the response are malformed; correct the headers that the hook returns`,
		"NotFound":       `unsupported status code: 404 body: 404 page not found`,
		"Crash":          "unsupported status code: 500 body: Traceback (most recent call last):\n  KeyError: 'spec'",
		"NoContent":      `unsupported status code: 204 body: `,
		"NotModified":    `unsupported status code: 304 body: `,
	}
	hostile := hooktest.Hostile()
	if len(hostile) != len(wants) {
		t.Errorf("%d hostile responses, %d expectations", len(hostile), len(wants))
	}
	for name, handler := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // Two of them take their time.
			server := hooktest.NewServer(t)
			server.Handle("/sync", handler)
			// Only the responses that hang are limited in time: a slow machine must not turn another fault into a timeout.
			limit := time.Minute
			if name == "Hang" || name == "SlowDrip" {
				limit = 2 * time.Second // Enough to connect on a busy machine.
			}
			client := newClient(t, configure(server.URL("/sync"), withTimeout(limit)))
			response, err := client.Call(t.Context(), fleet, []byte(`{}`))
			if err == nil {
				var decoded wire.Response
				if decoded, err = wire.DecodeComposite(response.Body, wire.ResponseOptions{ContentType: response.ContentType}); err == nil {
					_, err = decoded.Children()
				}
			}
			if err == nil {
				t.Fatal("the response passed")
			}
			if got := strings.ReplaceAll(err.Error(), server.URL("/sync"), "URL"); got != wants[name] {
				t.Errorf("got  %s\nwant %s", got, wants[name])
			}
			_, again := client.Call(t.Context(), fleet, []byte(`{}`))
			if again != nil && !hook.IsRejected(err) && again.Error() != err.Error() {
				t.Errorf("the message differs from call to call, so that events pile up:\n%v\n%v", err, again)
			}
		})
	}
}

func TestUnreachableHooks(t *testing.T) {
	free := freeport.Address(freeport.Find(t))
	plain := hooktest.NewServer(t)
	expired := hooktest.NewServer(t, hooktest.WithExpiredCertificate())
	otherHost := hooktest.NewServer(t, hooktest.WithCertificateFor("hook.shop"))
	secure := hooktest.NewServer(t, hooktest.WithTLS())
	secure.Handle("/sync", hooktest.Body("", `{}`))

	cases := map[string]struct {
		url   string
		trust *hooktest.Server
		want  []string
	}{
		"NothingListens": {"http://" + free + "/sync", nil, []string{"dial " + free + ": connect: connection refused; nothing listens there; start the hook"}},
		"ExpiredCertificate": {expired.URL("/sync"), expired, []string{
			"certificate has expired or is not yet valid: it is valid from ", "renew the certificate of the hook, and compare the clocks",
		}},
		"OtherHost": {otherHost.URL("/sync"), otherHost, []string{
			"cannot validate certificate for 127.0.0.1", "add the host name to the certificate of the hook",
		}},
		"UnknownAuthority": {secure.URL("/sync"), nil, []string{"certificate signed by unknown authority; set caBundle to the certificate authority of the hook"}},
		"TLSToPlain": {"https://" + plain.Host() + "/sync", nil, []string{
			"the hook does not speak TLS; use http, or give it a certificate",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, configure(tc.url, func(c *webhook.Config) {
				if tc.trust != nil {
					c.Webhook.CABundle = &v1alpha1.CABundle{Inline: new(tc.trust.CABundle())}
				}
			}))
			_, err := client.Call(t.Context(), fleet, []byte(`{}`))
			failed, ok := errors.AsType[*webhook.CallError](err)
			if !ok {
				t.Fatalf("got %T %v, want a CallError", err, err)
			}
			if failed.Hook != hook.Sync || failed.Endpoint != tc.url || failed.Advice == "" {
				t.Errorf("got hook %s, endpoint %s, advice %q", failed.Hook, failed.Endpoint, failed.Advice)
			}
			for _, want := range append(tc.want, "http error: calling "+tc.url+": ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q\nis not in %q", want, err)
				}
			}
		})
	}
	// A plain request to a port that wants TLS gets a plain 400 from Go's server.
	_, err := newClient(t, configure("http://"+secure.Host()+"/sync")).Call(t.Context(), fleet, []byte(`{}`))
	if status, ok := errors.AsType[*webhook.StatusError](err); !ok || status.Code != 400 ||
		!strings.HasSuffix(err.Error(), "; the port speaks TLS: use https in the URL, and set caBundle") {
		t.Errorf("plain to TLS: got %v, want the status 400 and what to do", err)
	}
}

func TestBrokenHTTP2ResponsesHaveOneMessage(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithHTTP2())
	server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"children":[`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	client := newClient(t, configure(server.URL("/sync"), trusting(server)))
	want := "http error: calling " + server.URL("/sync") + ": the hook broke off its response (HTTP/2); see the log of the hook for a crash"
	for range 2 {
		if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestHugeResponsesDoNotFillMemory holds the memory of one rejected call to a small multiple of the limit.
func TestHugeResponsesDoNotFillMemory(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Huge(100<<20))
	client := newClient(t, configure(server.URL("/sync"), func(c *webhook.Config) { c.MaxResponseBytes = 1 << 20 }))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); !hook.IsRejected(err) {
		t.Errorf("got %v, want a RejectedError", err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("a rejected response allocated %d MiB", used>>20)
	}
}

// TestARefusedClientHasOneMessage calls often enough to meet both ways in which a refusal can show.
func TestARefusedClientHasOneMessage(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithClientCertificates())
	server.Handle("/sync", hooktest.Body("", `{}`))
	client := newClient(t, configure(server.URL("/sync"), trusting(server)))
	want := "http error: calling " + server.URL("/sync") + ": remote error: tls: certificate required; " +
		"the hook demands a client certificate that it knows; set clientTLS"
	for range 50 {
		if _, err := client.Call(t.Context(), fleet, bytes.Repeat([]byte(" "), 1<<20)); err == nil || err.Error() != want {
			t.Fatalf("got  %v\nwant %s", err, want)
		}
	}
}

// at gives a client a policy.
func at(t *testing.T, o destination.Options) func(*webhook.Config) {
	t.Helper()
	policy, err := destination.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *webhook.Config) { c.Destinations = policy }
}

// TestRedirects calls a hook that redirects. The request, with the parent and all children, reaches nothing but the place that the
// controller names.
func TestRedirects(t *testing.T) {
	const never = ", which has another scheme, host or port; redirects there are never followed; use the final address in the controller"
	for name, tc := range map[string]struct {
		// to is the Location; HOST is the hook's, OTHER another server.
		to     string
		code   int
		change func(*webhook.Config)
		want   string
	}{
		"another path":              {to: "/final", code: http.StatusPermanentRedirect},
		"the same host in full":     {to: "http://HOST/final", code: http.StatusTemporaryRedirect},
		"with a GET":                {to: "/final", code: http.StatusSeeOther},
		"another port":              {to: "http://OTHER/final", code: http.StatusPermanentRedirect, want: "http://OTHER/final" + never},
		"another port with a GET":   {to: "http://OTHER/final", code: http.StatusSeeOther, want: "http://OTHER/final" + never},
		"another scheme":            {to: "https://HOST/final", code: http.StatusPermanentRedirect, want: "https://HOST/final" + never},
		"another name of the host":  {to: "http://localhost:PORT/final", code: http.StatusPermanentRedirect, want: "http://localhost:PORT/final" + never},
		"a metadata service":        {to: "http://169.254.169.254/latest/", code: http.StatusFound, want: "http://169.254.169.254/latest/" + never},
		"what no HTTP client calls": {to: "file:///etc/passwd", code: http.StatusFound, want: "file:///etc/passwd" + never},
		"a user and a query":        {to: "http://me:secret@OTHER/final?token=secret", code: http.StatusFound, want: "http://OTHER/final" + never},
		"away after the second":     {to: "/second", code: http.StatusTemporaryRedirect, want: "http://OTHER/final" + never},
		"none are followed": {
			to: "/final", code: http.StatusPermanentRedirect, change: func(c *webhook.Config) { c.RefuseRedirects = true },
			want: "http://HOST/final; this server follows no redirects (--webhook-redirects=none); use the final address in the controller",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, other := hooktest.NewServer(t), hooktest.NewServer(t)
			places := strings.NewReplacer("HOST", server.Host(), "OTHER", other.Host(), "PORT", server.Host()[strings.LastIndex(server.Host(), ":")+1:])
			server.Handle("/sync", http.RedirectHandler(places.Replace(tc.to), tc.code))
			server.Handle("/second", http.RedirectHandler(other.URL("/final"), http.StatusTemporaryRedirect))
			server.Handle("/final", hooktest.Body("", `{}`))
			other.Handle("/final", hooktest.Body("", `{}`))
			c := configure(server.URL("/sync"))
			if tc.change != nil {
				tc.change(&c)
			}
			_, err := newClient(t, c).Call(t.Context(), fleet, []byte(`{"parent":{}}`))
			if n := len(other.Requests("/final")); n > 0 {
				t.Errorf("another server got %d requests", n)
			}
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want := "http error: calling " + server.URL("/sync") + ": the hook redirects to " + places.Replace(tc.want)
			if _, ok := errors.AsType[*webhook.CallError](err); !ok || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// redirecting is a network in which each URL redirects to another one, or answers.
type redirecting struct {
	to   map[string]string
	sent []string
}

// RoundTrip implements http.RoundTripper.
func (n *redirecting) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	n.sent = append(n.sent, r.Method+" "+r.URL.String()+" "+string(body))
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{}`)), Request: r}
	if to, found := n.to[r.URL.String()]; found {
		response.StatusCode = http.StatusPermanentRedirect
		response.Header.Set("Location", to)
	}
	return response, err
}

// TestRedirectsToHTTPS is about hooks behind ingress controllers, which redirect to https.
func TestRedirectsToHTTPS(t *testing.T) {
	for name, tc := range map[string]struct {
		// hops are the URLs that redirect, each to the next one.
		hops []string
		// refused is the last of them, which is not called, and why; empty: all are called.
		refused string
		change  func(*webhook.Config)
	}{
		"the default ports":    {hops: []string{"http://hook.shop/sync", "https://hook.shop/sync"}},
		"the ports in full":    {hops: []string{"http://hook.shop:80/sync", "https://HOOK.shop:443/final"}},
		"another path then":    {hops: []string{"http://hook.shop/sync", "https://hook.shop/sync", "https://hook.shop/final"}},
		"another path before":  {hops: []string{"http://hook.shop/sync", "http://hook.shop/sync/", "https://hook.shop/sync/"}},
		"an IPv6 address":      {hops: []string{"http://[2001:db8::1]/sync", "https://[2001:db8::1]/sync"}},
		"back again":           {hops: []string{"http://hook.shop/sync", "https://hook.shop/sync", "http://hook.shop/final"}, refused: "which has another scheme"},
		"to http":              {hops: []string{"https://hook.shop/sync", "http://hook.shop/sync"}, refused: "which has another scheme"},
		"from another port":    {hops: []string{"http://hook.shop:8080/sync", "https://hook.shop/sync"}, refused: "which has another scheme"},
		"to another port":      {hops: []string{"http://hook.shop/sync", "https://hook.shop:8443/sync"}, refused: "which has another scheme"},
		"to port 80":           {hops: []string{"http://hook.shop/sync", "https://hook.shop:80/sync"}, refused: "which has another scheme"},
		"http at port 443":     {hops: []string{"http://hook.shop:443/sync", "https://hook.shop/sync"}, refused: "which has another scheme"},
		"to another host":      {hops: []string{"http://hook.shop/sync", "https://other.shop/sync"}, refused: "which has another scheme"},
		"another host by http": {hops: []string{"http://hook.shop/sync", "https://hook.shop/sync", "https://other.shop/sync"}, refused: "which has another scheme"},
		"none are followed": {
			hops:    []string{"http://hook.shop/sync", "https://hook.shop/sync"},
			refused: "this server follows no redirects", change: func(c *webhook.Config) { c.RefuseRedirects = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			network := &redirecting{to: map[string]string{}}
			var want []string
			for i, hop := range tc.hops {
				if i > 0 {
					network.to[tc.hops[i-1]] = hop
				}
				if i == 0 || i < len(tc.hops)-1 || tc.refused == "" {
					want = append(want, "POST "+hop+` {"parent":{}}`)
				}
			}
			c := configure(tc.hops[0], func(c *webhook.Config) { c.Transport = network })
			if tc.change != nil {
				tc.change(&c)
			}
			_, err := newClient(t, c).Call(t.Context(), fleet, []byte(`{"parent":{}}`))
			if tc.refused == "" && err != nil || tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("got %v, want %q", err, tc.refused)
			}
			if !slices.Equal(network.sent, want) {
				t.Errorf("sent %q\nwant %q", network.sent, want)
			}
		})
	}
}

// TestRefusedPlaces calls hooks where none may be.
func TestRefusedPlaces(t *testing.T) {
	plain, secure := hooktest.NewServer(t), hooktest.NewServer(t, hooktest.WithTLS())
	for _, server := range []*hooktest.Server{plain, secure} {
		server.Handle("/sync", hooktest.Body("", `{}`))
	}
	inside := destination.Options{AllowedHosts: []string{"127.0.0.0/8", ".shop"}}
	for name, tc := range map[string]struct {
		url     string
		options destination.Options
		want    string
	}{
		"loopback in a Pod": {
			plain.URL("/sync"),
			destination.Options{},
			"127.0.0.1 is a loopback address, where only this server's own Pod is; run the hook behind a Service, or run this server with --webhook-allow-loopback",
		},
		"loopback over TLS in a Pod": {
			secure.URL("/sync"),
			destination.Options{},
			"127.0.0.1 is a loopback address, where only this server's own Pod is; run the hook behind a Service, or run this server with --webhook-allow-loopback",
		},
		"allowed network in a Pod": {
			plain.URL("/sync"), inside,
			"127.0.0.1 is a loopback address, where only this server's own Pod is; run the hook behind a Service, or run this server with --webhook-allow-loopback",
		},
		"link-local": {
			"https://169.254.169.254/latest?token=secret",
			destination.Options{AllowLoopback: true},
			"169.254.169.254 is a link-local address, where clouds serve credentials of nodes; this server calls no hook there, and no flag allows it",
		},
		"link-local behind a proxy": {
			"http://169.254.169.254/latest",
			destination.Options{AllowLoopback: true},
			"169.254.169.254 is a link-local address, where clouds serve credentials of nodes; this server calls no hook there, and no flag allows it",
		},
		"not allowed behind a proxy": {
			"http://hook.example.com/sync", inside,
			"hook.example.com is not among the allowed hosts; add the host, or a network that it is in, to --webhook-allowed-hosts of this server",
		},
		"not allowed": {
			"https://hook.example.com/sync",
			destination.Options{AllowedHosts: []string{".shop"}},
			"hook.example.com is not among the allowed hosts; add the host, or a network that it is in, to --webhook-allowed-hosts of this server",
		},
		"a Service that a proxy looks up": {
			"http://hook.shop/sync", inside,
			"hook.shop is a name that a proxy may find outside of the cluster; write it as NAME.NAMESPACE.svc, exempt it from the proxy with " +
				"NO_PROXY of this server, or add the host itself to --webhook-allowed-hosts",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, configure(tc.url, at(t, tc.options)))
			_, err := client.Call(t.Context(), fleet, []byte(`{}`))
			want := "http error: calling " + client.Endpoint() + ": " + tc.want
			if refused, ok := errors.AsType[*webhook.CallError](err); !ok || err.Error() != want || refused.Connected {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
	if n := len(plain.Requests("/sync")) + len(secure.Requests("/sync")); n > 0 {
		t.Errorf("%d requests came through", n)
	}
}

// TestAProxyIsNoHook is about a proxy at a loopback address, which an operator has chosen, in a Pod.
func TestAProxyIsNoHook(t *testing.T) {
	client := newClient(t, configure("http://hook.shop.svc/sync", at(t, destination.Options{AllowedHosts: []string{".shop"}})))
	if got := call(t, client); got != `{"finalized":true}` {
		t.Errorf("response %q", got)
	}
}
