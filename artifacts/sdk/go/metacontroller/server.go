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

package metacontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"
)

// shutdownTimeout is how long requests under way may take when the server ends.
const shutdownTimeout = 10 * time.Second

// Hook makes an HTTP handler of a function that returns a response for a request, such as
// func(*CompositeRequest) (*CompositeResponse, error). An error is status 500 with its text, which the API server shows in an event.
// A panic is one, too, and its stack is printed. A request other than POST gets status 200, for readiness probes.
func Hook[Request, Response any](respond func(*Request) (*Response, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			ready(w, r)
			return
		}
		var request Request
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, "the request is not JSON of its type: "+err.Error(), http.StatusBadRequest)
			return
		}
		response, err := called(respond, &request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if response == nil {
			http.Error(w, "the hook returned nil and no error: it must return a response, be it an empty one", http.StatusInternalServerError)
			return
		}
		encoded, err := json.Marshal(response)
		if err != nil {
			http.Error(w, "encoding the response: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encoded) // Who does not wait for the response calls again.
	})
}

// called returns what a function responds, and a panic as an error: net/http would close the connection, and its text reach nobody but the log.
func called[Request, Response any](respond func(*Request) (*Response, error), request *Request) (response *Response, err error) {
	defer func() {
		if value := recover(); value != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", value, debug.Stack())
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return respond(request)
}

func ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"ready": true}`)) // A probe that does not wait asks again.
}

// Serve serves hooks by path, such as /sync, and /healthz for readiness probes, until the context ends. The environment variables PORT
// (8080; 0 takes a free one) and HOST (every address) say where.
func Serve(ctx context.Context, hooks map[string]http.Handler) error {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(os.Getenv("HOST"), port))
	if err != nil {
		return fmt.Errorf("listening for hooks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", ready)
	for path, handler := range hooks {
		mux.Handle(path, handler)
	}
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		fmt.Fprintf(os.Stdout, "hook listens on port %d\n", address.Port)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: shutdownTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving hooks: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err = server.Shutdown(grace)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
