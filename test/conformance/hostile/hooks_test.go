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

package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// hostileHook is a hook that does what it must not do.
type hostileHook struct {
	// name is a part of the controller's.
	name string
	// copies is how many controllers have such a hook.
	copies int
	// serves is what the hook does. Nil: the URL is somewhere else.
	serves http.Handler
	// url is where the hook is, if it is not served over plain HTTP.
	url string
	// login is the Secret with the token that the hook is sent. Empty: that of the others.
	login string
	// hangs says that only the timeout ends a call.
	hangs bool
	// want is in the condition or the last error of the controller.
	want string
}

const (
	// tooLarge is what is said of a response above the limit.
	tooLarge = "the response is larger than the limit of 33554432 bytes"
	// away is what is said of a redirect to another place.
	away = "which has another scheme, host or port; redirects there are never followed"
	// nowhere is what is said of a place where no flag allows a hook.
	nowhere = "this server calls no hook there, and no flag allows it"
	// endless is more than any server takes.
	endless = 33 << 20
)

// hostileHooks are fifty of them. The other server is one that no request may reach.
func hostileHooks(t *testing.T, server int, other *hooktest.Server) []hostileHook {
	t.Helper()
	expired := hooktest.NewServer(t, hooktest.WithExpiredCertificate())
	stranger := hooktest.NewServer(t, hooktest.WithCertificateFor("hook.example.com"))
	demanding := hooktest.NewServer(t, hooktest.WithClientCertificates())
	http2 := hooktest.NewServer(t, hooktest.WithHTTP2())
	plain := hooktest.NewServer(t)
	return []hostileHook{
		{name: "huge", copies: 2, serves: slowly(hooktest.Huge(endless)), want: tooLarge},
		{name: "claim", copies: 2, serves: hooktest.HugeClaim(endless), want: tooLarge},
		{name: "bomb", copies: 1, serves: slowly(bomb()), want: tooLarge},
		{name: "full", copies: 1, serves: slowly(hooktest.Huge(4 << 20)), want: "too large"},
		{name: "drip", hangs: true, copies: 4, serves: hooktest.SlowDrip(10 * time.Millisecond), want: "the response was not complete within 1s"},
		{name: "hang", hangs: true, copies: 5, serves: hooktest.Hang(), want: "connected, but no response within 1s"},
		{name: "headers", copies: 2, serves: slowly(hooktest.EndlessHeaders()), want: "the headers of the response exceed 1048576 bytes"},
		{name: "slow-headers", hangs: true, copies: 3, serves: slowHeaders(), want: "the response was not complete within 1s"},
		{name: "metadata", copies: 6, serves: http.RedirectHandler("http://169.254.169.254/latest/", http.StatusTemporaryRedirect), want: away},
		{name: "elsewhere", copies: 2, serves: http.RedirectHandler(other.URL("/sync"), http.StatusPermanentRedirect), want: away},
		{name: "elsewhere-get", copies: 2, serves: http.RedirectHandler(other.URL("/sync"), http.StatusSeeOther), want: away},
		{name: "loop", copies: 1, serves: hooktest.RedirectLoop(), want: "stopped after 10 redirects"},
		{name: "link-local", copies: 1, url: "https://169.254.169.254/latest/", want: nowhere},
		{name: "mapped", copies: 1, url: "https://[::ffff:169.254.169.254]/latest/", want: nowhere},
		{name: "unspecified", copies: 1, url: "https://0.0.0.0/sync", want: nowhere},
		{name: "itself", copies: 1, url: fmt.Sprintf("https://127.0.0.1:%d/sync", server), want: "is this server itself; " + nowhere},
		{name: "expired", copies: 1, url: expired.URL("/sync"), want: "certificate has expired or is not yet valid"},
		{name: "stranger", copies: 1, url: stranger.URL("/sync"), want: "cannot validate certificate"},
		{name: "demanding", copies: 1, url: demanding.URL("/sync"), want: "certificate signed by unknown authority"},
		{name: "http2", copies: 1, url: http2.URL("/sync"), want: "certificate signed by unknown authority"},
		{name: "no-tls", copies: 1, url: "https://" + plain.Host() + "/sync", want: "the hook does not speak TLS"},
		{name: "tls", copies: 1, url: "http://" + http2.Host() + "/sync", want: "the port speaks TLS"},
		{name: "closed", copies: 1, serves: hooktest.Closed(), want: "closed the connection before its response was complete"},
		{name: "not-http", copies: 1, serves: hooktest.NotHTTP(), want: "the response is not HTTP"},
		{name: "binary", copies: 1, serves: binary(), want: `500 body: (not shown, since its Content-Type is "image/png")`},
		{name: "echo", copies: 2, serves: echo(http.StatusInternalServerError), want: "500 body: Bearer (hidden)"},
		{name: "echo-page", copies: 1, serves: echo(http.StatusOK), want: `it begins with "Bearer (hidden)`},
		{name: "echo-after", copies: 1, serves: echoAfter(), want: "unsupported status code: 500 body:"},
		{name: "deep", copies: 1, serves: hooktest.Hostile()["DeepNesting"], want: "exceeded max depth"},
		{name: "smuggle", copies: 1, serves: hooktest.Body("", "{}"), login: "smuggled", want: "key token holds characters that no header may hold"},
	}
}

// at returns the URL of a hook, which the case serves if it is not anywhere else.
func (h *hostileHook) at(test *fixture.Test) string {
	if h.serves == nil {
		return h.url
	}
	test.Hook.Handle("/"+h.name, h.serves)
	return test.Hook.URL("/" + h.name)
}

// slowly lets a hook that costs much be called no more often than it needs to be seen.
func slowly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(3 * time.Second)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
		case <-timer.C:
			handler.ServeHTTP(w, r)
		}
	})
}

// bomb returns a small body that becomes a large one.
func bomb() http.Handler {
	// To pack it costs more than to call all other hooks.
	packed := sync.OnceValues(func() ([]byte, error) {
		var body bytes.Buffer
		packing := gzip.NewWriter(&body)
		block := []byte(strings.Repeat(" ", 64<<10))
		for sent := 0; sent < endless; sent += len(block) {
			if _, err := packing.Write(block); err != nil {
				return nil, err
			}
		}
		return body.Bytes(), packing.Close()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := packed()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(body) // The client may go away before.
	})
}

// taken calls f with the connection of a request, and closes it afterwards.
func taken(f func(connection net.Conn, request *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer connection.Close() //nolint:errcheck // it is meant to break
		f(connection, r)
	})
}

// slowHeaders returns one header after the other, until the client goes away.
func slowHeaders() http.Handler {
	return taken(func(connection net.Conn, _ *http.Request) {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		_, err := io.WriteString(connection, "HTTP/1.1 200 OK\r\n")
		for ; err == nil; <-ticker.C {
			_, err = io.WriteString(connection, "X-Header: x\r\n")
		}
	})
}

// binary returns an error that is no text.
func binary() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "\x89PNG\x1b[31m")
	})
}

// echo returns the credentials that it was sent.
func echo(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	})
}

// echoAfter returns them after its response.
func echoAfter() http.Handler {
	return taken(func(connection net.Conn, r *http.Request) {
		_, _ = io.WriteString(connection, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"+r.Header.Get("Authorization"))
	})
}
