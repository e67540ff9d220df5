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

package tree

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// kinds has, for each resource of parents, the resources of children that they may have.
type kinds map[schema.GroupResource][]schema.GroupVersionResource

// kindsOf joins what controllers declare with what Kubernetes' own controllers create.
func kindsOf(controllers []controllerobject.Object) kinds {
	k := kinds{}
	for parent, children := range map[schema.GroupResource][]schema.GroupVersionResource{
		{Group: "apps", Resource: "deployments"}:  {{Group: "apps", Version: "v1", Resource: "replicasets"}},
		{Group: "apps", Resource: "replicasets"}:  {{Version: "v1", Resource: "pods"}},
		{Group: "apps", Resource: "statefulsets"}: {{Version: "v1", Resource: "pods"}},
		{Group: "apps", Resource: "daemonsets"}:   {{Version: "v1", Resource: "pods"}},
		{Group: "batch", Resource: "cronjobs"}:    {{Group: "batch", Version: "v1", Resource: "jobs"}},
		{Group: "batch", Resource: "jobs"}:        {{Version: "v1", Resource: "pods"}},
		{Resource: "replicationcontrollers"}:      {{Version: "v1", Resource: "pods"}},
		{Resource: "services"}:                    {{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}},
	} {
		k.add(parent, children...)
	}
	for _, object := range controllers {
		for _, parent := range object.Parents() {
			if resource, ok := resourceOf(parent); ok {
				if object.Composite != nil {
					k.add(resource.GroupResource(), v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions"))
				}
				for _, child := range object.Children() {
					if r, ok := resourceOf(child); ok {
						k.add(resource.GroupResource(), r)
					}
				}
			}
		}
	}
	return k
}

// add adds children of a parent, each resource once.
func (k kinds) add(parent schema.GroupResource, children ...schema.GroupVersionResource) {
	for _, child := range children {
		if !slices.ContainsFunc(k[parent], func(r schema.GroupVersionResource) bool { return r.GroupResource() == child.GroupResource() }) {
			k[parent] = append(k[parent], child)
		}
	}
}

// resourceOf is false for a rule that names no API version.
func resourceOf(rule v1alpha1.ResourceRule) (schema.GroupVersionResource, bool) {
	version, err := schema.ParseGroupVersion(rule.APIVersion)
	return version.WithResource(rule.Resource), err == nil
}

// resolve finds the resource and the name that the arguments say, as KIND[.GROUP]/NAME or RESOURCE NAME.
func resolve(mapper meta.RESTMapper, args []string) (*meta.RESTMapping, string, error) {
	kind, name, both := strings.Cut(args[0], "/")
	if both == (len(args) == 2) || both && name == "" {
		return nil, "", fmt.Errorf("name one object, as KIND.GROUP/NAME or RESOURCE NAME: for example '%s' or '%s'",
			"kubectl metacontroller tree Website.example.com/shop", "kubectl metacontroller tree deployment web")
	}
	if len(args) == 2 {
		name = args[1] //nolint:gosec // There are two of them, as the condition says.
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
	mapping, err := mappingOf(mapper, resource)
	return mapping, name, err
}

// split splits a name that may have a namespace, as NAMESPACE/NAME, which is empty if it has none.
func split(mapping *meta.RESTMapping, name string) (namespace, single string, err error) {
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

// mappingOf returns the kind and scope of a resource.
func mappingOf(mapper meta.RESTMapper, resource schema.GroupVersionResource) (*meta.RESTMapping, error) {
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
