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
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
)

// target is what a request is about.
type target struct {
	version *kinds.Version
	// verb is that of authorization.
	verb string
	// namespace is empty for a cluster-scoped kind and for all namespaces, name for a list and a creation.
	namespace, name, subresource string
}

func (t target) kind() *kinds.Kind { return t.version.Kind }

// route finds what a request is about. It returns false for a path that names no resource.
func (s *Server) route(r Request) (target, bool, error) {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	var group string
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[1:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = parts[1], parts[2:]
	default:
		return target{}, false, nil
	}
	version, parts := parts[0], parts[1:]
	t := target{}
	if parts[0] == "namespaces" && len(parts) > 2 && (group != "" || !namespaceSubresource(parts[2])) {
		t.namespace, parts = parts[1], parts[2:]
	}
	k := s.kinds[schema.GroupResource{Group: group, Resource: parts[0]}]
	if k == nil {
		return target{}, s.isBuiltin(group), nil
	}
	t.version = k.Version(version)
	if t.version == nil || !t.version.Served || k.Namespaced != (t.namespace != "") && (!k.Namespaced || len(parts) > 1) {
		return target{}, false, nil
	}
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
		if len(parts) > 3 || !t.version.HasSubresource(t.subresource) {
			if k.Custom {
				return target{}, true, s.notFound(t)
			}
			return target{}, true, nil
		}
	}
	return t.withVerb(r)
}

// isBuiltin reports whether a group is one that no definition adds to.
func (s *Server) isBuiltin(group string) bool {
	for _, k := range kinds.Builtin() {
		if k.Group == group {
			return true
		}
	}
	return false
}

func namespaceSubresource(name string) bool { return name == statusField || name == "finalize" }

func (t target) withVerb(r Request) (target, bool, error) {
	switch {
	case r.Method == http.MethodGet && t.name != "":
		t.verb = "get"
	case r.Method == http.MethodGet:
		t.verb = "list"
		if watching := r.Query.Get("watch"); watching == isTrue || watching == "1" {
			t.verb = "watch"
		}
	case r.Method == http.MethodPost && t.name == "":
		t.verb = verbCreate
	case r.Method == http.MethodPut && t.name != "":
		t.verb = verbUpdate
	case r.Method == http.MethodPatch && t.name != "":
		t.verb = verbPatch
	case r.Method == http.MethodDelete && t.name != "":
		t.verb = "delete"
	case r.Method == http.MethodDelete:
		t.verb = "deletecollection"
	}
	if t.kind().Custom && t.name == "" && (r.Method == http.MethodPut || r.Method == http.MethodPatch) {
		return t, true, apierrors.NewBadRequest("name must be provided")
	}
	allNamespaces := t.kind().Namespaced && t.namespace == "" && t.verb != "list" && t.verb != "watch"
	if t.verb == "" || allNamespaces || t.subresource != "" && t.verb != "get" && t.verb != "update" && t.verb != "patch" {
		verb := map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
		return t, true, apierrors.NewMethodNotSupported(t.kind().GroupResource(), verb)
	}
	return t, true, nil
}

// attributes say what a request asks for.
func (t target) attributes(userName string) Attributes {
	return Attributes{
		User: userName, Verb: t.verb, Group: t.kind().Group, Resource: t.kind().Plural, Subresource: t.subresource,
		Namespace: t.namespace, Name: t.name,
	}
}

func (s *Server) authorize(r Request, t target) error {
	a := t.attributes(r.User)
	if t.kind().GroupResource() == namespaces {
		a.Namespace = a.Name
	}
	if s.options.Authorize == nil || s.options.Authorize(a) {
		return nil
	}
	return responsewriters.ForbiddenStatusError(authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: a.User}, Verb: a.Verb, APIGroup: a.Group, APIVersion: t.version.Name, Resource: a.Resource,
		Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name, ResourceRequest: true, Path: r.Path,
	}, "")
}
