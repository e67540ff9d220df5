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

package apiserver

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

const (
	// retryElsewhere is after how many seconds a client asks again that another replica can answer.
	retryElsewhere = 2
	// endingPause is the least time between two connections that are ended. It is less than that of a client's repetitions, so that each of ten may
	// reach another replica.
	endingPause = retryElsewhere*time.Second - 100*time.Millisecond
)

// leadElsewhere has clients ask again whose request the controllers of another replica can answer. The kube-apiserver keeps its connections, so
// that the same replica would be asked for ever: its connection ends with the response, and the next request may reach the one that leads.
// Clients of client-go, such as kubectl, repeat a request ten times that is refused with Retry-After, unless its body is a stream, as that of
// kubectl create --raw is.
//
// All clients share that connection. Those whose writes are sent at the moment of its end get 503 from the kube-apiserver, so it is not ended
// where no other replica can answer, nor for each of many requests.
func leadElsewhere(api http.Handler, engine *inspection.Link) http.Handler {
	if engine == nil {
		return api
	}
	ended := &endings{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && asksControllers(info) {
			if _, here := engine.Engine(); !here {
				_, anywhere := engine.Absence()
				w = responsewriter.WrapForHTTP1Or2(&elsewhere{w, anywhere, ended})
			}
		}
		api.ServeHTTP(w, r)
	})
}

// asksControllers reports whether a request is for one of the subresources that only the replica that runs the controllers has.
func asksControllers(i *request.RequestInfo) bool {
	return ofControllers(i) && i.Subresource != "" && i.Subresource != "status"
}

// elsewhere is the response of a replica that does not run the controllers.
type elsewhere struct {
	http.ResponseWriter

	// anywhere says that one does, or will.
	anywhere bool
	ended    *endings
}

// WriteHeader implements http.ResponseWriter.
func (e *elsewhere) WriteHeader(code int) {
	if code == http.StatusServiceUnavailable && e.anywhere {
		e.Header().Set("Retry-After", strconv.Itoa(retryElsewhere))
		if e.ended.due() {
			e.Header().Set("Connection", "close") // In HTTP/2 it is no header, and has the server send GOAWAY.
		}
	}
	e.ResponseWriter.WriteHeader(code)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (e *elsewhere) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// endings are the ends of connections.
type endings struct {
	mu   sync.Mutex
	last time.Time
}

// due reports whether a connection may be ended now, and takes it that it is.
func (e *endings) due() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !e.last.IsZero() && now.Sub(e.last) < endingPause {
		return false
	}
	e.last = now
	return true
}
