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
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definitions are the CustomResourceDefinitions.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// CustomResource is a kind whose objects may have any fields.
type CustomResource struct {
	// Resource is where the API server serves it, at its only version.
	Resource schema.GroupVersionResource
	// Kind is what its objects say that they are.
	Kind string
	// ClusterScoped takes its objects out of namespaces.
	ClusterScoped bool
	// WithoutStatus has the status written with the rest of the object, and not as a subresource.
	WithoutStatus bool
}

// Define makes the CustomResourceDefinitions of kinds and returns when the kinds are served. They stay when the test ends.
func (c *Cluster) Define(t testing.TB, resources ...CustomResource) {
	t.Helper()
	var manifests strings.Builder
	for _, r := range resources {
		manifests.WriteString(r.manifest())
	}
	c.DefineManifests(t, manifests.String())
}

// DefineManifests is Define for CustomResourceDefinitions that are given in YAML, for kinds with a schema of their own.
func (c *Cluster) DefineManifests(t testing.TB, manifests string) {
	t.Helper()
	objects := NewClients(t, c.Config(t)).Objects(t, "", Limit)
	for _, definition := range c.Apply(t, manifests) {
		objects.Await(definitions, definition.GetName(), "to be established", established)
	}
}

// established reports whether a CustomResourceDefinition has that condition.
func established(definition *unstructured.Unstructured) bool {
	if definition == nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == "Established" && fields["status"] == "True"
	})
}

func (r CustomResource) manifest() string {
	scope, subresources := "Namespaced", "{status: {}}"
	if r.ClusterScoped {
		scope = "Cluster"
	}
	if r.WithoutStatus {
		subresources = "{}"
	}
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  names: {kind: %[4]s, plural: %[2]s}
  scope: %[5]s
  versions:
  - name: %[3]s
    served: true
    storage: true
    subresources: %[6]s
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`, r.Resource.Group, r.Resource.Resource, r.Resource.Version, r.Kind, scope, subresources)
}

// aggregated asks for the discovery of all groups at once, as kubectl does.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// AwaitServed waits until the cluster tells kubectl of a version of a group: a kube-apiserver takes over what an aggregated server serves
// some time after it has found that server available.
func (c *Cluster) AwaitServed(t testing.TB, limit time.Duration, version schema.GroupVersion) {
	t.Helper()
	client := NewClients(t, c.Config(t)).Kube.Discovery().RESTClient()
	Eventually(t, limit, fmt.Sprintf("the discovery of %s", version), func(ctx context.Context) (bool, string) {
		text, err := client.Get().AbsPath("/apis").SetHeader("Accept", aggregated).DoRaw(ctx)
		if err != nil {
			return false, err.Error()
		}
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(text, &list); err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			if list.Items[i].Name != version.Group {
				continue
			}
			for _, v := range list.Items[i].Versions {
				if v.Version == version.Version {
					return v.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && len(v.Resources) > 0, fmt.Sprintf("it is %s, with %d resources", v.Freshness, len(v.Resources))
				}
			}
		}
		return false, "it is not listed"
	})
}
