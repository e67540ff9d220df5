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

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// retryElsewhere is after how many seconds a client asks again that another replica can answer.
const retryElsewhere = "1"

// leadElsewhere has clients ask again whose request the controllers of another replica can answer. The kube-apiserver keeps its connections, so
// that the same replica would be asked for ever: its connection ends with the response, and the next request may reach the one that leads.
// Clients of client-go, such as kubectl, repeat a request ten times that is refused with Retry-After.
func leadElsewhere(api http.Handler, engine *inspection.Link) http.Handler {
	if engine == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && asksControllers(info) {
			if _, here := engine.Engine(); !here {
				_, anywhere := engine.Absence()
				w = responsewriter.WrapForHTTP1Or2(&elsewhere{w, anywhere})
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
}

// WriteHeader implements http.ResponseWriter.
func (e *elsewhere) WriteHeader(code int) {
	if code == http.StatusServiceUnavailable {
		e.Header().Set("Connection", "close") // In HTTP/2 it is no header, and has the server send GOAWAY.
		if e.anywhere {
			e.Header().Set("Retry-After", retryElsewhere)
		}
	}
	e.ResponseWriter.WriteHeader(code)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (e *elsewhere) Unwrap() http.ResponseWriter { return e.ResponseWriter }
