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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Names under which writes that are no server-side apply appear in managedFields.
const (
	// FieldManager writes what is desired of children.
	FieldManager = "metacontroller"
	// PatchManager writes everything else: finalizers, labels, annotations and the status of parents, and owner references. A parent may
	// be a child of another controller. When that one moves to server-side apply, it takes what FieldManager owns, and would
	// remove it.
	PatchManager = "metacontroller-engine"
	// RollbackManager gives parents the fields of a former revision, for a user who asked for it.
	RollbackManager = "metacontroller-rollback"
)

const (
	// plain is the query of a plain write, and dry what makes a write a dry run.
	plain = "fieldManager=" + FieldManager
	dry   = "&dryRun=" + metav1.DryRunAll
)

// A Target names one object, or one subresource of it.
type Target struct {
	// Resource is the object's group, version and resource.
	Resource schema.GroupVersionResource
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	// Name is empty for Create.
	Name string
	// Subresource is empty for the object itself, or for example "status".
	Subresource string
}

// Client talks to one cluster. It is safe for concurrent use; connections are shared by all calls.
type Client struct {
	server  *server
	parsing object.ParseOptions
}

// Knowing returns a client that shares the connections and limits of c. The objects that it returns know what was applied by field
// managers whose names begin with one of managers.
func (c *Client) Knowing(managers ...string) *Client {
	return &Client{server: c.server, parsing: object.ParseOptions{Managers: managers}}
}

// Whole returns a client that returns objects with their managedFields. It shares the connections of c.
func (c *Client) Whole() *Client {
	whole := Client{server: c.server, parsing: c.parsing}
	whole.parsing.KeepManagedFields = true
	return &whole
}

// New returns a client for the cluster of config. Its rate limiter, or else its QPS and burst, limit the requests of the client
// and of those that share its connections; without them there is no limit. Its handler gets the warnings of the API server;
// without one each is logged once.
func New(config *rest.Config) (*Client, error) {
	s, err := newServer(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the cluster: %w", err)
	}
	return &Client{server: s}, nil
}

// Get reads an object from the API server.
func (c *Client) Get(ctx context.Context, t Target) (*object.Object, error) {
	return c.do(ctx, call{method: http.MethodGet, target: t})
}

// Create creates an object from its JSON and returns it as stored. The error is one of package apierrors.
func (c *Client) Create(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, call{method: http.MethodPost, target: t, query: plain, contentType: runtime.ContentTypeJSON, body: body})
}

// TryCreate returns what Create would return, and changes nothing (a dry run).
func (c *Client) TryCreate(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, call{method: http.MethodPost, target: t, query: plain + dry, contentType: runtime.ContentTypeJSON, body: body})
}

// Update replaces an object. A resourceVersion in the body makes the write conditional.
func (c *Client) Update(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, call{method: http.MethodPut, target: t, query: plain, contentType: runtime.ContentTypeJSON, body: body})
}

// Try returns what Update would return, and changes nothing (a dry run).
func (c *Client) Try(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, call{method: http.MethodPut, target: t, query: plain + dry, contentType: runtime.ContentTypeJSON, body: body})
}

// Patch patches an object with a body of the given type, as PatchManager.
func (c *Client) Patch(ctx context.Context, t Target, kind types.PatchType, body []byte) (*object.Object, error) {
	return c.do(ctx, call{method: http.MethodPatch, target: t, query: "fieldManager=" + PatchManager, contentType: string(kind), body: body})
}

// PatchStrictly is Patch, and the API server refuses a body with fields that the kind does not have, which it drops otherwise.
func (c *Client) PatchStrictly(ctx context.Context, t Target, kind types.PatchType, body []byte) (*object.Object, error) {
	query := "fieldManager=" + PatchManager + "&fieldValidation=" + metav1.FieldValidationStrict
	return c.do(ctx, call{method: http.MethodPatch, target: t, query: query, contentType: string(kind), body: body})
}

// Restore patches an object with a JSON patch, as RollbackManager. With try it returns what would come of it, and changes nothing (a dry run).
func (c *Client) Restore(ctx context.Context, t Target, body []byte, try bool) (*object.Object, error) {
	query := "fieldManager=" + RollbackManager
	if try {
		query += dry
	}
	return c.do(ctx, call{method: http.MethodPatch, target: t, query: query, contentType: string(types.JSONPatchType), body: body})
}

// An Application is an object to be applied (server-side apply, KEP 555).
type Application struct {
	// Manager is the field manager that owns the fields of Body afterwards.
	Manager string
	// Force takes fields from other field managers. Without it a field of theirs that Body changes is a conflict.
	Force bool
	// Try returns what would come of it, and changes nothing (a dry run).
	Try bool
	// Body is the object as JSON, with the fields that Manager wants and no others.
	Body []byte
}

// Apply applies an object: it is created if it does not exist. A UID in the body makes it fail with a conflict if the object has
// another one or does not exist.
func (c *Client) Apply(ctx context.Context, t Target, a Application) (*object.Object, error) {
	query := "fieldManager=" + url.QueryEscape(a.Manager) + "&force=" + strconv.FormatBool(a.Force)
	if a.Try {
		query += dry
	}
	return c.do(ctx, call{method: http.MethodPatch, target: t, query: query, contentType: string(types.ApplyPatchType), body: a.Body})
}

// Deletion is what the response to a deletion says. The zero value says nothing: the object may be there still or not.
type Deletion struct {
	// Gone says that the object is gone.
	Gone bool
	// Left is the object as it is while it is being deleted; nil if it is gone, or not known.
	Left *object.Object
}

// Delete deletes the object with the given UID and resourceVersion, in the background (docs/reference/contract.md#s11,
// docs/reference/compatibility.md#d11). Another object of that name, or a later version, is left alone and yields a conflict.
func (c *Client) Delete(ctx context.Context, t Target, uid types.UID, version string) (Deletion, error) {
	background := metav1.DeletePropagationBackground
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &background,
	})
	var deletion Deletion
	if err != nil {
		return deletion, fmt.Errorf("encoding delete options: %w", err)
	}
	err = c.server.do(ctx, call{method: http.MethodDelete, target: t, contentType: runtime.ContentTypeJSON, body: body}, func(body []byte) error {
		deletion = c.deletion(body, uid)
		return nil
	})
	return deletion, err
}

// deletion reads the response to the deletion of an object: a status, or the object. Some API servers return an object that is gone, which is
// not being deleted then.
func (c *Client) deletion(body []byte, uid types.UID) Deletion {
	var status metav1.Status
	if json.Unmarshal(body, &status.TypeMeta) != nil {
		return Deletion{}
	}
	if status.Kind == "Status" && status.APIVersion == "v1" {
		err := json.Unmarshal(body, &status)
		return Deletion{Gone: err == nil && status.Status == metav1.StatusSuccess && (status.Details == nil || status.Details.UID == "" || status.Details.UID == uid)}
	}
	if o, err := object.Parse(body, c.parsing); err == nil && o.UID() == uid && o.Deleting() {
		return Deletion{Left: o}
	}
	return Deletion{}
}

func (c *Client) do(ctx context.Context, request call) (*object.Object, error) {
	var returned *object.Object
	err := c.server.do(ctx, request, func(body []byte) (err error) {
		if returned, err = object.Parse(body, c.parsing); err != nil {
			return fmt.Errorf("%w: %w", ErrUnread, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return returned, nil
}

// path appends the target's path to the path of the server.
func (t Target) path(base string) string {
	var b strings.Builder
	b.Grow(len(base) + len("/apis//namespaces/////") + len(t.Resource.Group) + len(t.Resource.Version) + len(t.Namespace) +
		len(t.Resource.Resource) + len(t.Name) + len(t.Subresource))
	b.WriteString(base)
	segment := func(s string) {
		if s != "" {
			b.WriteByte('/')
			b.WriteString(s)
		}
	}
	if t.Resource.Group == "" {
		segment("api")
	} else {
		segment("apis")
		segment(t.Resource.Group)
	}
	segment(t.Resource.Version)
	if t.Namespace != "" {
		segment("namespaces")
		segment(t.Namespace)
	}
	segment(t.Resource.Resource)
	segment(t.Name)
	segment(t.Subresource)
	return b.String()
}

// ErrUnread marks errors of reading a response: the API server did something, and the response does not tell what.
var ErrUnread = errors.New("reading the API server's response")

// A RepeatedError is the end of a request that was sent more than once, because an API server failed and wanted it to be sent again at
// once. What failed may have been done all the same, so that even a refusal does not say that nothing was.
type RepeatedError struct {
	// Err is the error of the last attempt.
	Err error
}

// Error returns the last error.
func (e *RepeatedError) Error() string { return e.Err.Error() }

// Unwrap returns the last error.
func (e *RepeatedError) Unwrap() error { return e.Err }

// repeated returns the error of a request, of which an earlier attempt has failed or not.
func repeated(failed bool, err error) error {
	if failed && err != nil {
		return &RepeatedError{Err: err}
	}
	return err
}

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
