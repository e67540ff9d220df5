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

package rbac

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// look asks the cluster what it serves of the controller's kinds. Rights on status subresources that are not there are taken off, and
// kinds that are not served are noted.
func (c *controller) look(ctx context.Context, client discovery.DiscoveryInterfaceWithContext, explain Explain) error {
	served := map[schema.GroupResource]bool{}
	for _, version := range c.versions {
		parsed, err := schema.ParseGroupVersion(version)
		if err != nil {
			return fmt.Errorf("reading the definition of %s: %w", c, err)
		}
		list, err := client.ServerResourcesForGroupVersionWithContext(ctx, version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return explain(parsed.Group, fmt.Errorf("asking what the cluster serves in %s: %w", version, err))
		}
		for i := range list.APIResources {
			served[schema.GroupResource{Group: parsed.Group, Resource: list.APIResources[i].Name}] = true
		}
	}
	c.serve(served)
	return nil
}

// serve fits the rights to the resources and subresources that are served.
func (c *controller) serve(served map[schema.GroupResource]bool) {
	c.needs.Kinds = slices.DeleteFunc(slices.Clone(c.needs.Kinds), func(r rights.Right) bool {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		if !served[resource] {
			if note := fmt.Sprintf("The cluster does not serve %s at present.", resource); !slices.Contains(c.notes, note) && !rights.Guards(r) {
				c.notes = append(c.notes, note)
			}
			return false
		}
		status := schema.GroupResource{Group: r.Group, Resource: r.Resource + "/" + rights.SubresourceStatus}
		return r.Subresource == rights.SubresourceStatus && !served[status]
	})
}
