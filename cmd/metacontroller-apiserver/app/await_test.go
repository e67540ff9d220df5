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

package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

func TestTheServerWaitsForTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		answers []int
	}{
		"one that serves":             {"It is there.", []int{http.StatusOK}},
		"one that refuses":            {"What it refuses is said by who needs it.", []int{http.StatusForbidden}},
		"one that is starting":        {"It responds before it serves.", []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK}},
		"one that has too much to do": {"It is not said how it would answer.", []int{http.StatusTooManyRequests, http.StatusOK}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := int(asked.Add(1))
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.answers[min(n, len(c.answers))-1])
			}))
			defer cluster.Close()
			// The default transport is shared, and each test server that closes ends what is on its way there.
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			if err := awaitCluster(t.Context(), &rest.Config{Host: cluster.URL, Transport: transport}); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
			if n := int(asked.Load()); n != len(c.answers) {
				t.Errorf("%s: asked %d times, want %d", c.reason, n, len(c.answers))
			}
		})
	}
}

func TestWaitingForTheClusterEndsWithTheProcess(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- awaitCluster(ctx, &rest.Config{Host: gone.URL}) }()
	cancel(errBroken)
	if err := <-asked; !errors.Is(err, errBroken) {
		t.Errorf("got %v, want the cause", err)
	}
}
