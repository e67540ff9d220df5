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

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"sync"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// function is a hook: it takes the body of a request, and returns that of a response.
type function func(ctx context.Context, request []byte) (response []byte, err error)

// functionOf returns a function that decodes and encodes for f: what f is given shares nothing with the engine.
func functionOf[Request, Response any](f func(context.Context, *Request) (*Response, error)) function {
	return recovered(func(ctx context.Context, body []byte) ([]byte, error) {
		var request Request
		if err := json.Unmarshal(body, &request); err != nil {
			return nil, fmt.Errorf("decoding the request: %w", err)
		}
		response, err := f(ctx, &request)
		if err != nil {
			return nil, err
		}
		if response == nil {
			return nil, errors.New("the function returned neither a response nor an error; an empty response says that nothing is desired")
		}
		encoded, err := json.Marshal(response)
		if err != nil {
			return nil, fmt.Errorf("encoding the response: %w", err)
		}
		return encoded, nil
	})
}

// recovered returns a function that makes an error of a panic. Each parent runs into the panic again after each back-off: the log has the stack
// once for each place, and then a line.
func recovered(f function) function {
	const what = "running the function"
	var places sync.Map // It has one element for each way to a panic in the code of the program.
	return func(ctx context.Context, request []byte) (response []byte, err error) {
		err = recovery.CallLogged(what, func(value any) {
			var place [32]uintptr
			runtime.Callers(0, place[:])
			if _, logged := places.LoadOrStore(place, true); logged {
				klog.FromContext(ctx).Error(nil, "Recovered from a panic as before", "what", what, "panic", value)
				return
			}
			recovery.Log(ctx, what, value)
		}, func() (err error) {
			response, err = f(ctx, request)
			return err
		})
		if e, ok := err.(*recovery.PanicError); ok { //nolint:errorlint // CallLogged returns it as it is.
			err = &panicked{e}
		}
		return response, err
	}
}

// panicked says that a function of the program panicked: there is no server whose bug and whose log that is.
type panicked struct{ cause *recovery.PanicError }

// Error implements error.
func (e *panicked) Error() string {
	return fmt.Sprintf("panic while %s: %v; the log says where", e.cause.What, e.cause.Value)
}

// Unwrap returns the panic.
func (e *panicked) Unwrap() error { return e.cause }

// functions are the hooks of all controllers by the paths of their URLs. They carry the calls of webhooks, so that the calls have the limits,
// the statistics and the metrics of webhooks.
type functions map[string]function

// RoundTrip implements http.RoundTripper.
func (f functions) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close() //nolint:errcheck // It is in memory.
	ctx := r.Context()
	call, ok := f[r.URL.Path]
	if !ok || r.URL.Host != webhook.FunctionHost {
		return nil, &webhook.FunctionError{Err: fmt.Errorf("there is no function for %s", r.URL.Redacted())}
	}
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{}) // The request is of this side from now on, and counts in no budget.
	}
	response, err := call(ctx, request)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the function did not return within its timeout; raise it, or let the function do less: %w", context.DeadlineExceeded)
	}
	if err != nil {
		return nil, &webhook.FunctionError{Err: err}
	}
	return &http.Response{
		Status: http.StatusText(http.StatusOK), StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(response)),
		ContentLength: int64(len(response)), Request: r,
	}, nil
}
