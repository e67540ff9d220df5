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

package releasefinalizers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/pager"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// object is an object that carries the finalizer of a controller. One that carries several is in the list several times.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	finalizer       string
	controller      controllerobject.Reference
	deleting        bool
}

// String returns resource.group/name, with the namespace if there is one.
func (o *object) String() string {
	s := o.resource.GroupResource().String() + "/" + o.name
	if o.namespace != "" {
		s += " in namespace " + o.namespace
	}
	return s
}

// controllerOf returns the controller that a finalizer belongs to; false if it is none of a controller.
func controllerOf(finalizer string) (controllerobject.Reference, bool) {
	if name, ok := strings.CutPrefix(finalizer, parent.CompositeFinalizer("")); ok && name != "" {
		return controllerobject.Reference{Kind: controllerobject.Composite, Name: name}, true
	}
	if name, ok := strings.CutPrefix(finalizer, parent.DecoratorFinalizer("")); ok && name != "" {
		return controllerobject.Reference{Kind: controllerobject.Decorator, Name: name}, true
	}
	return controllerobject.Reference{}, false
}

// chosen reports whether a controller is one of those that are wanted, of which none is all.
func chosen(wanted []controllerobject.Reference, c controllerobject.Reference) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(w controllerobject.Reference) bool {
		return w.Name == c.Name && (w.Kind == "" || w.Kind == c.Kind)
	})
}

// find returns the objects of the resources that carry the finalizer of a wanted controller, in the order of their names. The error
// says where it could not look; what it found elsewhere is returned nevertheless.
func (c *cluster) find(ctx context.Context, resources []string, wanted []controllerobject.Reference) ([]object, error) {
	served, err := c.resources(ctx, resources)
	errs := []error{err}
	var mu sync.Mutex
	var found []object
	seen := map[string]bool{}
	var group errgroup.Group
	group.SetLimit(c.parallel)
	for _, resource := range served {
		group.Go(func() error {
			list, err := c.list(ctx, resource, wanted)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
			for _, o := range list {
				// Some objects are served in several groups.
				if key := string(o.uid) + " " + o.finalizer; !seen[key] {
					seen[key] = true
					found = append(found, o)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // Its functions keep their errors.
	slices.SortFunc(found, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.finalizer, b.finalizer), cmp.Compare(a.resource.GroupResource().String(), b.resource.GroupResource().String()),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return found, errors.Join(errs...)
}

// resources returns what the cluster serves and objects can be read of and written: all, or those that are named.
func (c *cluster) resources(ctx context.Context, named []string) ([]schema.GroupVersionResource, error) {
	lists, err := c.discovery.ServerPreferredResourcesWithContext(ctx)
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return nil, fmt.Errorf("asking the cluster what it serves: %w", err)
	}
	var errs []error
	for version, err := range failed {
		// It is the group of the server that is gone.
		if version.Group != v1alpha1.GroupName {
			errs = append(errs, fmt.Errorf("could not look in the API group %s: %w", version, err))
		}
	}
	var served []schema.GroupVersionResource
	missing := slices.Clone(named)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group == v1alpha1.GroupName {
			continue // Its objects are no parents of what stores them.
		}
		for _, r := range list.APIResources {
			resource := version.WithResource(r.Name)
			full := resource.GroupResource().String()
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "patch") || len(named) > 0 && !slices.Contains(named, full) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == full })
			served = append(served, resource)
		}
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("the cluster serves no objects of %s that can be written: write resources with their groups, such as "+
			"websites.example.com", strings.Join(missing, ", ")))
	}
	return served, errors.Join(errs...)
}

// list returns those objects of a resource that carry a finalizer of a wanted controller. They are read in pages.
func (c *cluster) list(ctx context.Context, resource schema.GroupVersionResource, wanted []controllerobject.Reference) ([]object, error) {
	var found []object
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.objects.Resource(resource).List(ctx, o)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if read, ok := item.(*metav1.PartialObjectMetadata); ok {
			found = append(found, objectsOf(resource, &read.ObjectMeta, wanted)...)
		}
		return nil
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return found, nil // It went meanwhile, or says that it can be listed and cannot.
	case err != nil:
		return found, fmt.Errorf("could not look at all %s: %w", resource.GroupResource(), err)
	}
	return found, nil
}

// objectsOf returns an object once for each finalizer of a wanted controller.
func objectsOf(resource schema.GroupVersionResource, meta *metav1.ObjectMeta, wanted []controllerobject.Reference) []object {
	var list []object
	for _, finalizer := range meta.Finalizers {
		if controller, ok := controllerOf(finalizer); ok && chosen(wanted, controller) {
			list = append(list, object{
				resource: resource, namespace: meta.Namespace, name: meta.Name, uid: meta.UID, finalizer: finalizer,
				controller: controller, deleting: meta.DeletionTimestamp != nil,
			})
		}
	}
	return list
}
