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
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// FieldManager is the name under which plain writes appear in managedFields.
const FieldManager = "metacontroller"

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
	rest    rest.Interface
	parsing object.ParseOptions
}

// Knowing returns a client that returns objects which know what was applied by field managers whose names begin with one of
// managers.
// It shares the connections of c.
func (c *Client) Knowing(managers ...string) *Client {
	return &Client{rest: c.rest, parsing: object.ParseOptions{Managers: managers}}
}

// New returns a client for the cluster of config, whose QPS and burst are used as they are: a negative QPS means no limit.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.ContentConfig = rest.ContentConfig{
		AcceptContentTypes:   runtime.ContentTypeJSON,
		ContentType:          runtime.ContentTypeJSON,
		GroupVersion:         &schema.GroupVersion{Version: "v1"},
		NegotiatedSerializer: statusSerializer(),
	}
	config.APIPath = "/api"
	// Warnings are about what hooks return, and would be logged with every write.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	restClient, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the cluster: %w", err)
	}
	return &Client{rest: restClient}, nil
}

// statusSerializer decodes only metav1.Status, which is all that the REST client itself decodes.
func statusSerializer() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// Get reads an object from the API server.
func (c *Client) Get(ctx context.Context, t Target) (*object.Object, error) {
	return c.do(ctx, c.rest.Get().AbsPath(t.path()...))
}

// GetWhole reads an object with its managedFields.
func (c *Client) GetWhole(ctx context.Context, t Target) (*object.Object, error) {
	whole := Client{rest: c.rest, parsing: object.ParseOptions{KeepManagedFields: true}}
	return whole.Get(ctx, t)
}

// Create creates an object from its JSON and returns it as stored. The error is one of package apierrors.
func (c *Client) Create(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, c.rest.Post().AbsPath(t.path()...).Param("fieldManager", FieldManager).Body(body))
}

// Update replaces an object. A resourceVersion in the body makes the write conditional.
func (c *Client) Update(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, c.rest.Put().AbsPath(t.path()...).Param("fieldManager", FieldManager).Body(body))
}

// Try returns what Update would return, and changes nothing (a dry run).
func (c *Client) Try(ctx context.Context, t Target, body []byte) (*object.Object, error) {
	return c.do(ctx, c.rest.Put().AbsPath(t.path()...).Param("fieldManager", FieldManager).Param("dryRun", metav1.DryRunAll).Body(body))
}

// Patch patches an object with a body of the given type.
func (c *Client) Patch(ctx context.Context, t Target, kind types.PatchType, body []byte) (*object.Object, error) {
	return c.do(ctx, c.rest.Patch(kind).AbsPath(t.path()...).Param("fieldManager", FieldManager).Body(body))
}

// An Application is an object to be applied (server-side apply, KEP 555).
type Application struct {
	// Manager is the field manager that owns the fields of Body afterwards.
	Manager string
	// Force takes fields from other field managers. Without it a field of theirs that Body changes is a conflict.
	Force bool
	// Try asks what would come of it, and changes nothing (a dry run).
	Try bool
	// Body is the object as JSON, with the fields that Manager wants and no others.
	Body []byte
}

// Apply applies an object: it is created if it is not there. A UID in the body makes it fail with a conflict if the object is
// another one or is not there.
func (c *Client) Apply(ctx context.Context, t Target, a Application) (*object.Object, error) {
	request := c.rest.Patch(types.ApplyPatchType).AbsPath(t.path()...).Param("fieldManager", a.Manager).
		Param("force", strconv.FormatBool(a.Force)).Body(a.Body)
	if a.Try {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return c.do(ctx, request)
}

// Delete deletes the object with the given UID, in the background (contract §11). An object of that name with another
// UID is left alone and yields a conflict.
func (c *Client) Delete(ctx context.Context, t Target, uid types.UID) error {
	background := metav1.DeletePropagationBackground
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	})
	if err != nil {
		return fmt.Errorf("encoding delete options: %w", err)
	}
	return c.rest.Delete().AbsPath(t.path()...).Body(body).Do(ctx).Error()
}

func (c *Client) do(ctx context.Context, request *rest.Request) (*object.Object, error) {
	result := request.Do(ctx)
	// Error decodes what the API server says; Raw would not.
	if err := result.Error(); err != nil {
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, err
	}
	written, err := object.Parse(data, c.parsing)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's answer: %w", err)
	}
	return written, nil
}

func (t Target) path() []string {
	segments := make([]string, 0, 8)
	if t.Resource.Group == "" {
		segments = append(segments, "api", t.Resource.Version)
	} else {
		segments = append(segments, "apis", t.Resource.Group, t.Resource.Version)
	}
	if t.Namespace != "" {
		segments = append(segments, "namespaces", t.Namespace)
	}
	segments = append(segments, t.Resource.Resource)
	if t.Name != "" {
		segments = append(segments, t.Name)
	}
	if t.Subresource != "" {
		segments = append(segments, t.Subresource)
	}
	return segments
}

// DeleteCollection deletes all objects of a resource in a namespace, in the background.
func (c *Client) DeleteCollection(ctx context.Context, t Target) error {
	body := []byte(`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`)
	return c.rest.Delete().AbsPath(t.path()...).Body(body).Do(ctx).Error()
}
