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
	"io"
	"net/http"
	"time"
)

// writeGrace is how long a write may take after its context has ended. It is shorter than the grace of a shutdown.
const writeGrace = 3 * time.Second

// finishing is a transport to the server's own API that lets writes finish whose context ends meanwhile, as that of a controller
// does that is stopped. The API server would log an error for each that is broken off.
type finishing struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (f finishing) RoundTrip(r *http.Request) (*http.Response, error) {
	outer := r.Context()
	if r.Method == http.MethodGet || outer.Err() != nil {
		return f.next.RoundTrip(r) //nolint:wrapcheck // A RoundTripper passes errors on as they are.
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(outer))
	stop := context.AfterFunc(outer, func() { time.AfterFunc(writeGrace, cancel) })
	end := func() {
		stop()
		cancel()
	}
	response, err := f.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err //nolint:wrapcheck // As above.
	}
	response.Body = body{response.Body, end}
	return response, nil
}

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
