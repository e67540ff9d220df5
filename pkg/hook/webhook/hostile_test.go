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
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
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
