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

package connection

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Resolve finds the resource and the name that the arguments of a command say, as KIND[.GROUP]/NAME or RESOURCE NAME.
func Resolve(mapper meta.RESTMapper, command string, args []string) (*meta.RESTMapping, string, error) {
	kind, name, both := strings.Cut(args[0], "/")
	if both == (len(args) == 2) || both && name == "" {
		return nil, "", fmt.Errorf("name one object, as KIND.GROUP/NAME or RESOURCE NAME: for example '%[1]s %[2]s Website.example.com/shop' or "+
			"'%[1]s %[2]s deployment web'", Program, command)
	}
	if len(args) == 2 {
		name = args[1]
	}
	// A kind in lower case is the singular name of its resource.
	kind = strings.ToLower(kind)
	full, group := schema.ParseResourceArg(kind)
	var resource schema.GroupVersionResource
	err := error(&meta.NoResourceMatchError{})
	if full != nil {
		resource, err = mapper.ResourceFor(*full)
	}
	if meta.IsNoMatchError(err) {
		resource, err = mapper.ResourceFor(group.WithVersion(""))
	}
	if meta.IsNoMatchError(err) {
		return nil, "", fmt.Errorf("the cluster serves no kind %q: list them with 'kubectl api-resources'", kind)
	}
	if err != nil {
		return nil, "", fmt.Errorf("looking up the kind %s: %w", kind, err)
	}
	mapping, err := MappingOf(mapper, resource)
	return mapping, name, err
}

// Split splits a name that may have a namespace, as NAMESPACE/NAME, which is empty if it has none.
func Split(mapping *meta.RESTMapping, name string) (namespace, single string, err error) {
	namespace, single, given := strings.Cut(name, "/")
	switch {
	case !given:
		return "", name, nil
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return "", "", fmt.Errorf("%q is no name: objects of %s are in no namespace", name, mapping.Resource.GroupResource())
	case namespace == "" || single == "" || strings.Contains(single, "/"):
		return "", "", fmt.Errorf("%q is no name: write NAME or NAMESPACE/NAME", name)
	}
	return namespace, single, nil
}

// MappingOf returns the kind and scope of a resource.
func MappingOf(mapper meta.RESTMapper, resource schema.GroupVersionResource) (*meta.RESTMapping, error) {
	kind, err := mapper.KindFor(resource)
	if err != nil {
		return nil, fmt.Errorf("looking up the kind of %s: %w", resource.GroupResource(), err)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("looking up the resource of %s: %w", kind, err)
	}
	return mapping, nil
}

// Object returns the objects among which one is that a command names, as [Resolve] has found it, and its own name. The namespace
// is empty for objects in none.
func (c *Connection) Object(client dynamic.Interface, mapping *meta.RESTMapping, name string) (objects dynamic.ResourceInterface, namespace, own string, err error) {
	namespace, own, err = Split(mapping, name)
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource), "", own, err
	}
	if namespace == "" {
		if namespace, err = c.Namespace(); err != nil {
			return nil, "", "", err
		}
	}
	return client.Resource(mapping.Resource).Namespace(namespace), namespace, own, nil
}
