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

package reconciler_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// apiServer is an API server that takes its time for patches.
type apiServer struct {
	patched chan struct{}
	respond chan string
}

// RoundTrip implements http.RoundTripper.
func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)),
	}
	if r.Method != http.MethodPatch {
		return response, nil
	}
	close(a.patched)
	select {
	case body := <-a.respond:
		response.StatusCode, response.Body = http.StatusOK, io.NopCloser(strings.NewReader(body))
		return response, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

func TestAControllerEndsWhenItIsKnownWhereItsFinalizerIs(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		cause  error
		// shutdown is how long after that the process is to end, zero for never, and after is when it is looked whether the controller has.
		shutdown, after time.Duration
		ends            bool
	}{
		"replaced": {
			"Who releases the parents next would miss one that gets the finalizer after that.", reconciler.ErrReplaced, 0, 24 * time.Second, false,
		},
		"replaced, without a response": {
			"The next one finds what is later still.", reconciler.ErrReplaced, 0, 26 * time.Second, true,
		},
		"shutdown": {
			"The process does not wait for ever: the controller runs again, in another one.", context.Canceled, 0, 6 * time.Second, true,
		},
		"shutdown after a replacement": {
			"The process does not wait, although the context ended before it was to end.", reconciler.ErrReplaced, 10 * time.Second, 11 * time.Second, true,
		},
		"shutdown soon after a replacement": {
			"The write has its grace.", reconciler.ErrReplaced, time.Second, 4 * time.Second, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &apiServer{patched: make(chan struct{}), respond: make(chan string)}
				s := newSceneWith(t, &rest.Config{Host: "http://api", Transport: api})
				shuttingDown := make(chan struct{})
				s.shared.ShuttingDown = shuttingDown
				s.exist(thing(t, "a", 1, "", ""))
				c := s.build(&kind{}, finalizes)
				ctx, stop := context.WithCancelCause(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.Run(ctx)
				}()
				<-api.patched
				stop(tc.cause)
				if tc.shutdown > 0 {
					<-time.After(tc.shutdown)
					close(shuttingDown)
				}
				<-time.After(tc.after - tc.shutdown)
				synctest.Wait()
				select {
				case <-ended:
					if !tc.ends {
						t.Error("the controller has ended while its finalizer was being written. " + tc.reason)
					}
				default:
					if tc.ends {
						t.Error("the controller waits. " + tc.reason)
					}
					api.respond <- `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"uid-a","resourceVersion":"2"}}`
				}
				<-ended
			})
		})
	}
}
