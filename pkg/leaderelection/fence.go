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
		end()
		return nil, reason(ctx, err)
	}
	response.Body = body{response.Body, ctx, end}
	return response, nil
}

// reason returns ErrLost for the error of a request that ended because the Lease was lost: it says more than that the request was canceled.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		return cause
	}
	return err
}

// WrappedRoundTripper lets client-go reach the transport below.
func (f *fenced) WrappedRoundTripper() http.RoundTripper { return f.next }

// body is the body of a response. Closing it ends the context of its request.
type body struct {
	io.ReadCloser

	ctx context.Context //nolint:containedctx // It is that of the request, of which the body is a part.
	end func()
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = reason(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // It is the transport's own.
}
