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
	"net/http"
	"sync"

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
