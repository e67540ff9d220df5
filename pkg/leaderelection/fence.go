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

package leaderelection

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// ErrNotLeading is why a request was not sent.
var ErrNotLeading = errors.New("this process does not lead: it does not hold the Lease, or has not renewed it in time")

// Fence lets requests that write through while this process leads, and ends those under way when the Lease is lost. Requests that read
// always pass. It is safe for concurrent use; the zero value lets nothing through that writes.
type Fence struct{ term atomic.Pointer[term] }

// Wrap puts the fence in front of a transport, as the configurations of clients want it.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return &fenced{fence: f, next: next} }

// open lets writes through while a term lasts, until shut is called.
func (f *Fence) open(t *term) (shut func()) {
	f.term.Store(t)
	return func() { f.term.CompareAndSwap(t, nil) }
}

type fenced struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f *fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return f.next.RoundTrip(r) //nolint:wrapcheck // A RoundTripper passes errors on as they are.
	}
	t := f.fence.term.Load()
	if t == nil || !t.holds() {
		if r.Body != nil {
			_ = r.Body.Close() // As a RoundTripper must.
		}
		return nil, ErrNotLeading
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	ignore := context.AfterFunc(t.over, func() { cancel(context.Cause(t.over)) }) //nolint:contextcheck // The term has a context of its own.
	end := func() {
		ignore()
		cancel(nil)
	}
	response, err := f.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
			err = cause // It says more than that the request was canceled.
		}
		end()
		return nil, err //nolint:wrapcheck // As above.
	}
	response.Body = body{response.Body, end}
	return response, nil
}

// WrappedRoundTripper lets client-go reach the transport below.
func (f *fenced) WrappedRoundTripper() http.RoundTripper { return f.next }

// body ends the context of its request when it is closed.
type body struct {
	io.ReadCloser

	end func()
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // It is the transport's own.
}
