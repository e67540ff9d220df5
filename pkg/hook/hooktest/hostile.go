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
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
