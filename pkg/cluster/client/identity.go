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

package client

import (
	"context"
	"maps"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Identity is as whom a client acts.
type Identity struct {
	// User is the name of the user who is impersonated. No groups are sent: for a service account the API server adds its groups by
	// itself, and who sends them needs the right to impersonate each.
	User string
	// Observe, if not nil, is told how each request ended: the error is nil or that of the client. It is called by the goroutine that
	// makes the request, and must not block.
	Observe func(ctx context.Context, r Request, err error)
}

// Request is a request of which an API server decides whether it is allowed.
type Request struct {
	// Verbs are those of RBAC: one, and for an application a second one, because it may create the object.
	Verbs []string
	// Target is what the request is about.
	Target Target
}

// verbs by method. A write with several of them needs all.
var verbs = map[string][]string{
	http.MethodGet: {"get"}, http.MethodPost: {"create"}, http.MethodPut: {"update"}, http.MethodPatch: {"patch"},
	http.MethodDelete: {"delete"},
}

// applies are the verbs of server-side apply.
var applies = []string{"patch", "create"}

// As returns a client that acts as somebody else. It shares the connections and limits of c.
func (c *Client) As(i Identity) *Client {
	as := *c.server
	as.observe = i.Observe
	as.headers = make(map[string]http.Header, len(c.server.headers))
	for contentType, header := range c.server.headers {
		header = maps.Clone(header)
		header.Set(authenticationv1.ImpersonateUserHeader, i.User)
		as.headers[contentType] = header
	}
	return &Client{server: &as, parsing: c.parsing}
}

// unobserved is the key of what Unobserved puts into a context.
type unobserved struct{}

// Unobserved returns a context for requests of which no observer is told: those that say nothing about what the identity needs, such as
// those of a preview.
func Unobserved(ctx context.Context) context.Context {
	return context.WithValue(ctx, unobserved{}, true)
}

// observed tells the identity's observer how a request ended. A request that was broken off says nothing.
func (s *server) observed(ctx context.Context, c call, err error) {
	if s.observe == nil || ctx.Err() != nil || ctx.Value(unobserved{}) != nil {
		return
	}
	request := Request{Verbs: verbs[c.method], Target: c.target}
	if c.applies() {
		request.Verbs = applies
	}
	s.observe(ctx, request, err)
}
