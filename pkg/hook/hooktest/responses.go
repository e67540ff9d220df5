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

package hooktest

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// JSON returns 200 with the encoding of value.
func JSON(value any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { response(w, value) })
}

// Composite handles the requests of a CompositeController's sync or finalize hook with what the function returns. An error
// becomes a 500 with its text.
func Composite(f func(*hook.CompositeRequest) (*hook.CompositeResponse, error)) http.Handler {
	return typed(f)
}

// Decorator is [Composite] for a DecoratorController.
func Decorator(f func(*hook.DecoratorRequest) (*hook.DecoratorResponse, error)) http.Handler {
	return typed(f)
}

// Customize is [Composite] for the customize hook of either kind.
func Customize(f func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error)) http.Handler {
	return typed(f)
}

func typed[Q, R any](f func(*Q) (*R, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := new(Q)
		if err := json.NewDecoder(r.Body).Decode(request); err != nil {
			http.Error(w, "decoding the request: "+err.Error(), http.StatusBadRequest)
			return
		}
		returned, err := f(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		response(w, returned)
	})
}

// Tagged returns value and the entity tag, or with notModified, which is 304 or 412, when the request carries the tag.
func Tagged(tag string, notModified int, value any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(notModified)
			return
		}
		response(w, value)
	})
}

// Body returns 200 with a body as it is. An empty content type sends no such header.
func Body(contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil // nil: do not guess
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = io.WriteString(w, body)
	})
}

// Status returns a status code and a text.
func Status(code int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	})
}

// RetryLater returns a status code, such as 429 or 503, and a Retry-After header unless it is empty.
func RetryLater(code int, retryAfter string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	})
}

// Sequence handles one request with each handler, in their order, and all further ones with the last.
func Sequence(handlers ...http.Handler) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now := handlers[0]
		if len(handlers) > 1 {
			handlers = handlers[1:]
		}
		mu.Unlock()
		now.ServeHTTP(w, r)
	})
}

func response(w http.ResponseWriter, value any) {
	encoded, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "encoding the response: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encoded)
}

func withBody(r *http.Request, body []byte) *http.Request {
	again := r.WithContext(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	return again
}

// Hostile returns a handler for each way in which a hook may misbehave over a good connection, by a name that says it. None
// of their responses may be applied. The handlers that hang do so until the client gives up.
func Hostile() map[string]http.Handler {
	const jsonType = "application/json"
	return map[string]http.Handler{
		"Empty":          Body("", ""),
		"Null":           Body(jsonType, "null"),
		"List":           Body(jsonType, "[]"),
		"Text":           Body("text/plain", "ok"),
		"HTML":           HTML(),
		"Binary":         Body("application/octet-stream", "\x00\x01\xfe\xff"),
		"Truncated":      Body(jsonType, `{"children":[{"apiVersion":"v1","kind":"Pod"`),
		"ChildrenObject": Body(jsonType, `{"children":{},"attachments":{},"relatedResources":{}}`),
		"NullChild":      Body(jsonType, `{"children":[null],"attachments":[null],"relatedResources":[null]}`),
		"TextChild":      Body(jsonType, `{"children":["Pod"],"attachments":["Pod"],"relatedResources":["Pod"]}`),
		"DeepNesting":    Body(jsonType, `{"status":`+strings.Repeat("[", 100_000)),
		"Huge":           Huge(100 << 20),
		"HugeClaim":      HugeClaim(100 << 20),
		"SlowDrip":       SlowDrip(10 * time.Millisecond),
		"Hang":           Hang(),
		"Closed":         Closed(),
		"CutShort":       CutShort(),
		"NotHTTP":        NotHTTP(),
		"RedirectLoop":   RedirectLoop(),
		"RedirectAway":   http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect),
		"EndlessHeaders": EndlessHeaders(),
		"BadHeader":      BadHeader(),
		"NotFound":       http.NotFoundHandler(),
		"Crash":          Status(http.StatusInternalServerError, "Traceback (most recent call last):\n  KeyError: 'spec'"),
		"NoContent":      Status(http.StatusNoContent, ""),
		"NotModified":    Status(http.StatusNotModified, ""),
	}
}

// HTML returns 200 with a page, as a proxy or a login screen in front of a hook does.
func HTML() http.Handler {
	return Body("text/html; charset=utf-8", "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n")
}

// Huge returns 200 with a valid JSON object of at least that many bytes, without saying how many.
func Huge(size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := io.WriteString(w, `{"status":{"text":"`); err != nil {
			return
		}
		block := bytes.Repeat([]byte("x"), 64<<10)
		for sent := 0; sent < size; sent += len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, `"}}`)
	})
}

// HugeClaim claims a body of that many bytes, and sends the beginning of one.
func HugeClaim(size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		if _, err := io.WriteString(w, `{"status":`); err != nil {
			return
		}
		flush(w)
		<-r.Context().Done()
	})
}

// SlowDrip returns 200 with one byte at a time, without end.
func SlowDrip(every time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		if _, err := io.WriteString(w, "{"); err != nil {
			return
		}
		for {
			flush(w)
			select {
			case <-r.Context().Done():
				return
			case <-ticker.C:
			}
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
		}
	})
}

// Hang does not response.
func Hang() http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// Closed closes the connection without a response.
func Closed() http.Handler {
	return hijacked(func(net.Conn) {})
}

// CutShort closes the connection in the middle of a response.
func CutShort() http.Handler {
	return hijacked(func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"children\":[")
	})
}

// NotHTTP responses in another protocol.
func NotHTTP() http.Handler {
	return hijacked(func(c net.Conn) {
		_, _ = io.WriteString(c, "220 mail.example.com ESMTP ready\r\n")
	})
}

// EndlessHeaders begins a response of which the headers do not end.
func EndlessHeaders() http.Handler {
	return hijacked(func(c net.Conn) {
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"); err != nil {
			return
		}
		block := []byte(strings.Repeat("X-Header: "+strings.Repeat("x", 1000)+"\r\n", 64))
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
}

// BadHeader returns a header that has no name.
func BadHeader() http.Handler {
	return hijacked(func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nthis is no header\r\nContent-Length: 2\r\n\r\n{}")
	})
}

// RedirectLoop redirects to its own path without end, keeping method and body.
func RedirectLoop() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "?again")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}

// hijacked takes the connection from the HTTP server, and closes it after f. It needs HTTP/1.
func hijacked(f func(net.Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer connection.Close() //nolint:errcheck // it is meant to break
		f(connection)
	})
}

func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
}
