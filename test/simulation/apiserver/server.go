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
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/discovery"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Verbs of authorization.
const (
	verbCreate = "create"
	verbUpdate = "update"
	verbPatch  = "patch"
)

// Fields of objects.
const (
	apiVersionField = "apiVersion"
	kindField       = "kind"
	metadataField   = "metadata"
	statusField     = "status"
)

// isTrue is the value of a parameter that is set.
const isTrue = "true"

// Options configure a server.
type Options struct {
	// Now is the clock. Required.
	Now func() time.Time
	// Admit is asked about every creation, update and deletion before it is checked, as admission webhooks are. Nil: nothing is refused.
	Admit func(Admission) AdmissionResult
	// Authorize reports whether a user may do what he asks for. Nil: everybody may do everything.
	Authorize func(Attributes) bool
	// Policies has admission policies served, which nothing follows.
	Policies bool
}

// Attributes say what a request asks for. Name is empty for lists and creations, Namespace for cluster-scoped kinds.
type Attributes struct {
	User, Verb, Group, Resource, Subresource, Namespace, Name string
}

// Admission is a write that is to be admitted.
type Admission struct {
	Attributes
	// Operation is CREATE, UPDATE or DELETE.
	Operation string
	// Object is what is to be written, in the version of the request, nil for a deletion, and Old the object that exists, nil for a
	// creation. They must not be modified. Sets of fields in managedFields are [value.Encoded].
	Object, Old value.Object
}

// AdmissionResult is an answer about a write. The zero value admits it as it is.
type AdmissionResult struct {
	// Object is the JSON of what replaces what is to be written, unless it is nil.
	Object []byte
	// Name replaces the name of what is created, unless it is empty.
	Name string
	// Denied refuses the write with this message, as a ValidatingAdmissionPolicy does, unless it is empty.
	Denied string
}

// Server is an API server in memory. It is not safe for concurrent use.
type Server struct {
	options Options
	store   *store.Store
	kinds   map[schema.GroupResource]*kinds.Kind
	// published is what discovery says. It is nil after a change of the kinds.
	published *discovery.Published
	watches   map[*Watch]struct{}
	opened    int
	journal   []Write
	// collected is the revision at which the garbage collector had nothing to do.
	collected int64
	uids      int
}

// New returns a server with the built-in resources and no objects but the namespaces that a new cluster has.
func New(o Options) *Server {
	s := &Server{options: o, store: store.New(), kinds: map[schema.GroupResource]*kinds.Kind{}, watches: map[*Watch]struct{}{}}
	for _, k := range kinds.Builtin() {
		s.kinds[k.GroupResource()] = k
	}
	if o.Policies {
		for _, k := range kinds.Policies() {
			s.kinds[k.GroupResource()] = k
		}
	}
	k := s.kinds[namespaces]
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		s.commit(change{
			version: k.Storage, object: s.firstNamespace(name), entry: Write{User: "system:apiserver", Manager: "kube-apiserver", Verb: verbCreate},
		})
	}
	return s
}

// firstNamespace returns a namespace that every cluster has. It does not go through all that a request goes through: servers are made
// by the hundred thousand.
func (s *Server) firstNamespace(name string) value.Object {
	return value.Object{
		apiVersionField: "v1", "kind": "Namespace",
		metadataField: value.Object{
			"name": name, "uid": s.nextUID(), "creationTimestamp": s.now(), "labels": value.Object{"kubernetes.io/metadata.name": name},
		},
		"spec": value.Object{"finalizers": []any{"kubernetes"}}, statusField: value.Object{"phase": "Active"},
	}
}

// Do serves a request.
func (s *Server) Do(r Request) Response {
	t, known, err := s.route(r)
	switch {
	case err != nil:
		return failure(err)
	case !known:
		return s.describe(r)
	case t.version == nil:
		return notThere()
	}
	if err := s.authorize(r, t); err != nil {
		return failure(err)
	}
	return s.serve(r, t)
}

func (s *Server) serve(r Request, t target) Response {
	switch t.verb {
	case "get":
		return s.get(r, t)
	case "list":
		return s.list(r, t)
	case "watch":
		return s.watch(r, t)
	}
	w, err := s.newWrite(r, t)
	if err != nil {
		return failure(err)
	}
	switch t.verb {
	case verbCreate:
		return w.create()
	case verbUpdate:
		return w.put()
	case verbPatch:
		return w.patch()
	}
	return w.delete()
}

// describe serves what says which kinds are served.
func (s *Server) describe(r Request) Response {
	if r.Method != http.MethodGet {
		return notServed()
	}
	if s.published == nil {
		catalog := discovery.Catalog{Ending: map[*kinds.Kind]bool{}}
		for _, k := range s.kinds {
			catalog.Kinds = append(catalog.Kinds, k)
			if k.Custom && s.definitionEnding(k) {
				catalog.Ending[k] = true
			}
		}
		slices.SortFunc(catalog.Kinds, func(a, b *kinds.Kind) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural))
		})
		s.published = catalog.Publish()
	}
	body, found := s.published.Body(r.Path)
	switch {
	case !found && strings.HasPrefix(r.Path, "/openapi/v3/"):
		return Response{Code: http.StatusNotFound, ContentType: "text/plain; charset=utf-8"}
	case !found:
		return notServed()
	}
	return Response{Code: 200, ContentType: jsonType, Body: body}
}

// table returns the objects of a kind.
func (s *Server) table(k *kinds.Kind) *store.Table { return s.store.Table(k.GroupResource()) }

// now returns the time as objects have it.
func (s *Server) now() string { return s.options.Now().UTC().Format(time.RFC3339) }

// nextUID returns a UID that no object has had.
func (s *Server) nextUID() string {
	s.uids++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", s.uids, s.uids)
}

// Write is a write that the server has done.
type Write struct {
	// Revision is the resourceVersion that the write made.
	Revision int64
	// At is the time of the write.
	At time.Time
	// User and Manager are who wrote, Verb what was asked for: create, update, patch, apply, delete, or collect for the garbage collector.
	User, Manager, Verb string
	// Group, Resource, Subresource, Namespace, Name and UID name what was written.
	Group, Resource, Subresource, Namespace, Name, UID string
	// Before and After are the object in its storage version, nil where it did not or does not exist. They must not be modified. Sets of
	// fields in managedFields are [value.Encoded].
	Before, After value.Object
}

// Journal returns all writes that changed something, oldest first. The caller must not modify it.
func (s *Server) Journal() []Write { return s.journal }

// Compact forgets the history: a watch from an older resourceVersion gets 410.
func (s *Server) Compact() { s.store.Compact() }

// text returns a revision as objects have it.
func text(revision int64) string { return strconv.FormatInt(revision, 10) }
