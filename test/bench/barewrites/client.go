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

package barewrites

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Client reads and writes single objects. It is safe for concurrent use.
type Client struct{ rest rest.Interface }

// New returns a client for the cluster of config.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.ContentConfig = rest.ContentConfig{
		AcceptContentTypes: runtime.ContentTypeJSON, ContentType: runtime.ContentTypeJSON,
		GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the cluster: %w", err)
	}
	return &Client{rest: c}, nil
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, t client.Target) (*object.Object, error) {
	return answer(ctx, c.rest.Get().AbsPath(path(t)...))
}

// Create creates an object from its JSON, and returns it as stored.
func (c *Client) Create(ctx context.Context, t client.Target, body []byte) (*object.Object, error) {
	return answer(ctx, c.rest.Post().AbsPath(path(t)...).Body(body))
}

// Update replaces an object, and returns it as stored.
func (c *Client) Update(ctx context.Context, t client.Target, body []byte) (*object.Object, error) {
	return answer(ctx, c.rest.Put().AbsPath(path(t)...).Body(body))
}

// Patch patches an object with a body of the given type, and returns it as stored.
func (c *Client) Patch(ctx context.Context, t client.Target, kind types.PatchType, body []byte) (*object.Object, error) {
	return answer(ctx, c.rest.Patch(kind).AbsPath(path(t)...).Body(body))
}

// Delete deletes an object in the background, whichever UID it has.
func (c *Client) Delete(ctx context.Context, t client.Target) error {
	return c.rest.Delete().AbsPath(path(t)...).Param("propagationPolicy", "Background").Do(ctx).Error()
}

// Names returns the names of all objects of a resource in a namespace.
func (c *Client) Names(ctx context.Context, t client.Target) ([]string, error) {
	// Without the rest of the objects, of which there may be many.
	const metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	body, err := c.rest.Get().AbsPath(path(t)...).SetHeader("Accept", metadata).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading a list of %s: %w", t.Resource.Resource, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}

func answer(ctx context.Context, request *rest.Request) (*object.Object, error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	return object.Parse(body, object.ParseOptions{})
}

func path(t client.Target) []string {
	segments := []string{"apis", t.Resource.Group, t.Resource.Version}
	if t.Resource.Group == "" {
		segments = []string{"api", t.Resource.Version}
	}
	if t.Namespace != "" {
		segments = append(segments, "namespaces", t.Namespace)
	}
	for _, s := range []string{t.Resource.Resource, t.Name, t.Subresource} {
		if s != "" {
			segments = append(segments, s)
		}
	}
	return segments
}
