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

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/jsonpath"
)

// reader finds objects by the names that kinds have for kubectl.
type reader struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (c *Cluster) newReader() (*reader, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the dynamic client: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of discovery: %w", err)
	}
	return &reader{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}, nil
}

// Field returns what `kubectl get OBJECT -o jsonpath=PATH` prints, without the time that a program takes to start and to find out what there
// is. The object is of the form kind/name, or a kind alone for all of the namespace, which does not matter to kinds that are in none.
func (c *Cluster) Field(ctx context.Context, namespace, object, path string) (string, error) {
	r, err := c.reader()
	if err != nil {
		return "", err
	}
	kind, name, one := strings.Cut(object, "/")
	mapping, err := r.mapping(kind)
	if err != nil {
		return "", fmt.Errorf("finding the kind %s: %w", kind, err)
	}
	resource := dynamic.ResourceInterface(r.client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = r.client.Resource(mapping.Resource).Namespace(namespace)
	}
	var found interface{ UnstructuredContent() map[string]any }
	if one {
		found, err = resource.Get(ctx, name, metav1.GetOptions{})
	} else {
		found, err = resource.List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", object, err)
	}
	return printed(found.UnstructuredContent(), path)
}

// mapping finds a kind by its plural or singular name, which may be followed by a point and the group.
func (r *reader) mapping(name string) (*meta.RESTMapping, error) {
	resource := schema.ParseGroupResource(name).WithVersion("")
	kind, err := r.mapper.KindFor(resource)
	if meta.IsNoMatchError(err) {
		// It may have been defined since.
		r.mapper.Reset()
		kind, err = r.mapper.KindFor(resource)
	}
	if err != nil {
		return nil, err
	}
	return r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// printed prints what is at a path of an object.
func printed(object map[string]any, path string) (string, error) {
	parsed := jsonpath.New("path").AllowMissingKeys(true)
	if err := parsed.Parse(path); err != nil {
		return "", fmt.Errorf("reading the path %s: %w", path, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, object); err != nil {
		return "", fmt.Errorf("following the path %s: %w", path, err)
	}
	return out.String(), nil
}
