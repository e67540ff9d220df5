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

package manager

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

// slow is an API server that takes some time.
type slow time.Duration

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(s)):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("done"))}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestWritesFinishWhenTheirContextEnds stops the caller some time after the request.
func TestWritesFinishWhenTheirContextEnds(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		stops  time.Duration
		takes  time.Duration
		want   time.Duration
		fails  bool
	}{
		"a write":                     {http.MethodPatch, time.Second, 2 * time.Second, 2 * time.Second, false},
		"a write that takes too long": {http.MethodPatch, time.Second, time.Hour, time.Second + writeGrace, true},
		"a write that never ends":     {http.MethodPatch, time.Hour, 2 * time.Hour, writeLimit, true},
		"a read":                      {http.MethodGet, time.Second, 2 * time.Second, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.stops)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, test.method, "http://own.example", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				response, err := finishing{slow(test.takes)}.RoundTrip(request)
				if (err != nil) != test.fails || time.Since(start) != test.want {
					t.Errorf("after %s: %v; want it after %s", time.Since(start), err, test.want)
				}
				if err == nil {
					err = errors.Join(err, response.Body.Close())
				}
				if err != nil && !test.fails {
					t.Error(err)
				}
			})
		})
	}
}
