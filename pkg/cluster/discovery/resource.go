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

package discovery

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a kind of objects that the cluster serves.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind of the objects.
	Kind string
	// Namespaced says whether objects live in namespaces.
	Namespaced bool
	// HasStatus says whether there is a status subresource.
	HasStatus bool
	// Verbs are what may be done with the objects.
	Verbs []string
}

// GroupVersionKind returns the kind in full.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind)
}

// APIVersion returns group and version as in objects.
func (r Resource) APIVersion() string { return r.GroupVersion().String() }

// A NotFoundError says that the cluster does not serve a resource or kind.
type NotFoundError struct {
	// APIVersion is the group and version.
	APIVersion string
	// Resource is the resource that was looked up, empty when Kind was.
	Resource string
	// Kind is the kind that was looked up, empty when Resource was.
	Kind string
}

// Error implements error.
func (e *NotFoundError) Error() string {
	if e.Resource == "" {
		return fmt.Sprintf("discovery: can't find kind %s in apiVersion %s", e.Kind, e.APIVersion)
	}
	return fmt.Sprintf("discovery: can't find resource %s in apiVersion %s", e.Resource, e.APIVersion)
}

// resourcesOf turns the API server's list for one group-version into resources by name.
func resourcesOf(version schema.GroupVersion, list *metav1.APIResourceList) map[string]Resource {
	resources := map[string]Resource{}
	for _, r := range list.APIResources {
		if parent, sub, ok := cutSubresource(r.Name); ok {
			if sub == "status" && slices.Contains(r.Verbs, "patch") {
				entry := resources[parent]
				entry.HasStatus = true
				resources[parent] = entry
			}
			continue
		}
		entry := resources[r.Name]
		entry.GroupVersionResource = version.WithResource(r.Name)
		entry.Kind, entry.Namespaced, entry.Verbs = r.Kind, r.Namespaced, r.Verbs
		resources[r.Name] = entry
	}
	return resources
}
