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
	"k8s.io/apiserver/pkg/warning"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// warnOfOldStatus warns those who read controllers when no engine runs: nobody else writes their status, and a condition Ready that was True
// says nothing any more. kubectl prints the warning.
func warnOfOldStatus(api http.Handler, engine *inspection.Link) http.Handler {
	if engine == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && readsControllers(info) {
			if why, anywhere := engine.Absence(); !anywhere {
				warning.AddWarning(r.Context(), "", "the status of controllers may be from before: "+why)
			}
		}
		api.ServeHTTP(w, r)
	})
}

func readsControllers(i *request.RequestInfo) bool {
	return ofControllers(i) && i.Subresource == "" && (i.Verb == "get" || i.Verb == "list")
}

// ofControllers reports whether a request is about CompositeControllers or DecoratorControllers, or about a subresource of one.
func ofControllers(i *request.RequestInfo) bool {
	return i.IsResourceRequest && i.APIGroup == v1alpha1.GroupName && (i.Resource == "compositecontrollers" || i.Resource == "decoratorcontrollers")
}
