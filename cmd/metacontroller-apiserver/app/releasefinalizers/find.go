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
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
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

// runners says who runs controllers.
type runners struct {
	// served are the controllers that an available server has, of those that were asked for.
	served map[controllerobject.Reference]bool
	// hidden is a server that the cluster does not reach and that renews its Lease: it may run any controller. Empty: there is none.
	hidden string
	// lease is the Lease that was looked at, and unknown says why it is not known whether it is renewed; nil if it is.
	lease   string
	unknown error
}

// run reports whether somebody runs a controller, or may run it.
func (r *runners) run(c controllerobject.Reference) bool { return r.served[c] || r.hidden != "" }

// running looks who runs the controllers of the objects: those that the cluster serves are run by somebody. While no server is available, one
// may run nevertheless, which its Lease tells. It is an error when it is not known what the cluster serves.
func (c *cluster) running(ctx context.Context, found []object, lease string, out io.Writer) (runners, error) {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return runners{}, fmt.Errorf("making a client: %w", err)
	}
	available, err := registration.Available(ctx, client)
	if err != nil {
		return runners{}, err
	}
	if !available {
		if lease == "" || len(found) == 0 {
			return runners{}, nil
		}
		return c.leading(ctx, lease, out)
	}
	there := map[controllerobject.Reference]bool{}
	for i := range found {
		controller := found[i].controller
		if _, asked := there[controller]; asked {
			continue
		}
		resource := v1alpha1.SchemeGroupVersion.WithResource(string(controller.Kind) + "s")
		_, err := client.Resource(resource).Get(ctx, controller.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return runners{}, fmt.Errorf("looking whether %s/%s exists: %w", controller.Kind, controller.Name, err)
		}
		there[controller] = err == nil
	}
	return runners{served: there}, nil
}

// leading looks whether a server renews its Lease, given as NAMESPACE/NAME.
func (c *cluster) leading(ctx context.Context, lease string, out io.Writer) (runners, error) {
	client, err := coordinationclient.NewForConfig(c.config)
	if err != nil {
		return runners{}, fmt.Errorf("making a client: %w", err)
	}
	namespace, name, _ := strings.Cut(lease, "/")
	holder, err := renewing(ctx, client.Leases(namespace), name, func(holder string, limit time.Duration) {
		fmt.Fprintf(out, "%s was the last to hold the Lease %s. Looking for up to %s whether it still renews it.\n", holder, lease, limit)
	})
	if ctx.Err() != nil {
		return runners{}, context.Cause(ctx)
	}
	return runners{hidden: holder, lease: lease, unknown: err}, nil
}

const (
	// leaseInterval is the pause between two looks at a Lease: servers renew it as often, unless --leader-elect-retry-period says otherwise.
	leaseInterval = 2 * time.Second
	// leaseDuration is for Leases that do not say after which time another server may take them.
	leaseDuration = 15 * time.Second
)

// renewing returns who renews a Lease, empty if nobody does. It does not compare clocks: a Lease that somebody holds is renewed if it changes within
// the time after which another server may take it. Waits is told when that has to be waited for. A Lease that is not there is an error: its server
// may be gone with its namespace, or have another Lease.
func renewing(
	ctx context.Context, leases coordinationclient.LeaseInterface, name string, waits func(holder string, limit time.Duration),
) (string, error) {
	read := func() (*coordinationv1.LeaseSpec, error) {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading Lease %s: %w", name, err)
		}
		return &lease.Spec, nil
	}
	first, err := read()
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no Lease %s; --lease names that of the server", name)
	}
	if err != nil || ptr.Deref(first.HolderIdentity, "") == "" {
		return "", err
	}
	limit := leaseDuration
	if seconds := ptr.Deref(first.LeaseDurationSeconds, 0); seconds > 0 {
		limit = time.Duration(seconds) * time.Second
	}
	waits(*first.HolderIdentity, limit)
	// The last look comes after the whole time.
	timeout, ticks := time.After(limit+leaseInterval), time.Tick(leaseInterval)
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-timeout:
			return "", nil
		case <-ticks:
		}
		now, err := read()
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		holder := ptr.Deref(now.HolderIdentity, "")
		if holder == "" || holder != *first.HolderIdentity || !now.RenewTime.Equal(first.RenewTime) {
			return holder, nil
		}
	}
}
