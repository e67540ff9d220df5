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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
)

// Request is a request as the server sees it after authentication.
type Request struct {
	// User sends it.
	User string
	// UserAgent names the field manager of writes that name none, as in kube-apiserver: what stands before its first slash.
	UserAgent string
	// Method is that of HTTP.
	Method string
	// Path begins with a slash.
	Path string
	// Query has the parameters.
	Query url.Values
	// ContentType and Accept are the headers of these names.
	ContentType, Accept string
	// Body is empty for a request without one.
	Body []byte
}

// Response is the server's response.
type Response struct {
	// Code is the HTTP status.
	Code int
	// ContentType is the header of that name.
	ContentType string
	// RetryAfter is the header of that name. Empty: there is none.
	RetryAfter string
	// Warnings are the texts of the headers of that name.
	Warnings []string
	// Body is complete, unless the request is a watch that was accepted.
	Body []byte
	// Watch has the events of a watch that was accepted, else it is nil.
	Watch *Watch
}

const jsonType = "application/json"

// failure is the response to a request that failed.
func failure(err error) Response {
	var known apierrors.APIStatus
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	r := Response{Code: int(status.Code), ContentType: jsonType, Body: statusBody(&status)}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		r.RetryAfter = strconv.Itoa(int(status.Details.RetryAfterSeconds))
	}
	return r
}

func statusBody(status *metav1.Status) []byte {
	body, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("encoding a status: %v", err)) //nolint:forbidigo // It is an error of the program.
	}
	return body
}

// notThere is the response to a request for a resource that a group of the server's own does not have.
func notThere() Response {
	return failure(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}})
}

// notServed is the response to a request for a path that is not served.
func notServed() Response {
	return Response{Code: http.StatusNotFound, ContentType: "text/plain; charset=utf-8", Body: []byte("404 page not found\n")}
}

// TooManyRequests is the response of an overloaded server, which wants the request to be sent again after some seconds.
func TooManyRequests(seconds int) Response {
	return Response{
		Code: http.StatusTooManyRequests, ContentType: "text/plain; charset=utf-8", RetryAfter: strconv.Itoa(seconds),
		Body: []byte("Too many requests, please try again later.\n"),
	}
}

// InternalError is the response of a server that failed.
func InternalError(message string) Response {
	return failure(apierrors.NewInternalError(errors.New(message)))
}

// ServiceUnavailable is the response of a proxy or a server that cannot serve now.
func ServiceUnavailable() Response {
	return failure(apierrors.NewServiceUnavailable("the server is currently unable to handle the request"))
}

// Forbidden is the response to a request that may not be made, for the reason given.
func Forbidden(group, resource, name, reason string) Response {
	return failure(apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, name, errors.New(reason)))
}

// Conflict is the response to a write that is refused for the state of the cluster, for the reason given.
func Conflict(group, resource, name, reason string) Response {
	return failure(apierrors.NewConflict(schema.GroupResource{Group: group, Resource: resource}, name, errors.New(reason)))
}

// Expired is the response to a request for a version that is known no more, for the reason given.
func Expired(reason string) Response { return failure(apierrors.NewResourceExpired(reason)) }

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
