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
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// transport answers requests, unless it is told to wait for the end of their contexts, before its response or within.
type transport struct{ waits, stalls bool }

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case f.waits:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case f.stalls:
		return &http.Response{StatusCode: http.StatusOK, Body: stalled{r.Context()}}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// stalled is the body of a response of which nothing comes.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (stalled) Close() error { return nil }

// send sends a request through a fence, and reads the response.
func send(ctx context.Context, f *Fence, next http.RoundTripper, method string) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://cluster/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := f.Wrap(next).RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func TestAFenceLetsWritesThroughDuringATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Fence
		expect := func(when string, want error) {
			t.Helper()
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				if err := send(t.Context(), &f, transport{}, method); !errors.Is(err, want) {
					t.Errorf("%s, %s: %v", when, method, err)
				}
			}
			if err := send(t.Context(), &f, transport{}, http.MethodGet); err != nil {
				t.Errorf("%s, a read: %v", when, err)
			}
		}
		expect("before an election", ErrNotLeading)
		term := newTerm(t.Context(), 10*time.Second)
		shut := f.open(term)
		expect("before the Lease is held", ErrNotLeading)
		term.renew(time.Now(), 3)
		expect("while it is held", nil)
		time.Sleep(6 * time.Second) //nolint:forbidigo // It is the time of a bubble.
		term.renew(time.Now(), 3)
		time.Sleep(9 * time.Second) //nolint:forbidigo // It is the time of a bubble.
		expect("after a renewal", nil)
		time.Sleep(time.Second) //nolint:forbidigo // It is the time of a bubble.
		expect("at the deadline", ErrNotLeading)
		term.renew(time.Now(), 3)
		expect("after a renewal that was late", ErrNotLeading)
		if cause := context.Cause(term.over); !errors.Is(cause, ErrLost) {
			t.Errorf("the term ended with %v", cause)
		}
		shut()
	})
}

func TestAFenceEndsWritesUnderWay(t *testing.T) {
	for name, next := range map[string]transport{"BeforeTheResponse": {waits: true}, "WithinTheResponse": {stalls: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f Fence
				term := newTerm(t.Context(), 10*time.Second)
				defer f.open(term)()
				term.renew(time.Now(), 0)
				began := time.Now()
				if err := send(t.Context(), &f, next, http.MethodPatch); !errors.Is(err, ErrLost) || time.Since(began) != 10*time.Second {
					t.Errorf("it ended after %s with %v", time.Since(began), err)
				}
			})
		})
	}
}

func TestATermEnds(t *testing.T) {
	for name, test := range map[string]struct {
		renew func(*term)
		want  error
	}{
		"not while it is renewed": {func(t *term) { t.renew(time.Now(), 1) }, nil},
		"with one of another":     {func(t *term) { t.renew(time.Now(), 2) }, ErrLost},
		"by the time of requests": {func(t *term) { t.renew(time.Now().Add(-10*time.Second), 1) }, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				term := newTerm(t.Context(), 10*time.Second)
				term.renew(time.Now(), 1)
				time.Sleep(5 * time.Second) //nolint:forbidigo // It is the time of a bubble.
				test.renew(term)
				synctest.Wait()
				if held := term.holds(); held != (test.want == nil) || !errors.Is(context.Cause(term.over), test.want) {
					t.Errorf("held: %t, the end: %v", held, context.Cause(term.over))
				}
				term.end(nil)
			})
		})
	}
}
