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

package subresource

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/scheme"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
)

// Client asks the subresources of one controller. It is safe for concurrent use.
type Client struct {
	api    rest.Interface
	reads  typedv1alpha1.ControllerSubresources
	object controllerobject.Object
}

// New returns a client for a controller object.
func New(c *connection.Connection, object controllerobject.Object) (*Client, error) {
	client, err := c.Controllers()
	if err != nil {
		return nil, err
	}
	v1 := client.MetacontrollerV1alpha1()
	reads := typedv1alpha1.ControllerSubresources(v1.DecoratorControllers())
	if object.Composite != nil {
		reads = v1.CompositeControllers()
	}
	return &Client{api: v1.RESTClient(), reads: reads, object: object}, nil
}

// resource is the plural name of the controller object's resource.
func (c *Client) resource() string { return strings.ToLower(c.object.Kind()) + "s" }

// MostParents is how many parents the server puts into a page at most. For each page it looks at all of them.
const MostParents = 500

// ParentPage returns one page of the parents that the options select.
func (c *Client) ParentPage(ctx context.Context, o v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error) {
	list, err := c.reads.GetParents(ctx, c.object.Name(), o)
	return list, c.explain(ctx, err, "get", "parents")
}

// EachPage calls f with all parents that the options select, page by page.
func (c *Client) EachPage(ctx context.Context, o v1alpha1.ControllerParentOptions, f func(*v1alpha1.ControllerParentList) error) error {
	if o.Limit == 0 {
		o.Limit = MostParents
	}
	for {
		list, err := c.ParentPage(ctx, o)
		if err != nil {
			return err
		}
		if err := f(list); err != nil {
			return err
		}
		if list.Continue == "" {
			return nil
		}
		o.Continue = list.Continue
	}
}

// Parents returns all parents that the options select, and how many more there are that the caller may not see.
func (c *Client) Parents(ctx context.Context, o v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error) {
	all := &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{}}
	all.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ControllerParentList"))
	err := c.EachPage(ctx, o, func(page *v1alpha1.ControllerParentList) error {
		all.Items = append(all.Items, page.Items...)
		all.Hidden = page.Hidden // Each page counts those of all.
		return nil
	})
	return all, err
}

// Missing reports whether a selection names a parent that does not exist. One that the caller may not see may exist.
func (c *Client) Missing(ctx context.Context, s Selected) (bool, error) {
	if s.Name == "" {
		return false, nil
	}
	list, err := c.Parents(ctx, s.ParentOptions())
	return err == nil && len(list.Items) == 0 && list.Hidden == 0, err
}

// Syncs returns recent syncs of the parents that the options select, the latest first.
func (c *Client) Syncs(ctx context.Context, o v1alpha1.ControllerSyncOptions) (*v1alpha1.ControllerSyncList, error) {
	list, err := c.reads.GetSyncs(ctx, c.object.Name(), o)
	return list, c.explain(ctx, err, "get", "syncs")
}

// RequestOptions say which requests are wanted.
type RequestOptions struct {
	// Hook is the only one whose requests are wanted. Empty: all that a sync would call.
	Hook string
	// Call has the server call the hooks for their responses.
	Call bool
}

// Requests returns what the hooks would be sent about a parent now.
func (c *Client) Requests(ctx context.Context, p v1alpha1.ParentReference, o RequestOptions) (*v1alpha1.HookRequestList, error) {
	asked := v1alpha1.HookRequestOptions{Resource: p.GroupResource().String(), Namespace: p.Namespace, Name: p.Name, Hook: o.Hook, Call: o.Call}
	list, err := c.reads.GetRequest(ctx, c.object.Name(), asked)
	return list, c.explain(ctx, err, "get", "request")
}

// EachPlan asks for plans until there is one for every parent that the spec selects, and calls f with each part.
func (c *Client) EachPlan(ctx context.Context, spec v1alpha1.ControllerPlanSpec, f func(*v1alpha1.ControllerPlanStatus) error) error {
	for {
		plan := &v1alpha1.ControllerPlan{}
		if err := c.post(ctx, "plan", false, &v1alpha1.ControllerPlan{Spec: spec}, plan); err != nil {
			return err
		}
		if err := f(&plan.Status); err != nil {
			return err
		}
		if plan.Status.Continue == "" {
			return nil
		}
		spec.Continue = plan.Status.Continue
	}
}

// Resync has parents synced now.
func (c *Client) Resync(ctx context.Context, selection *v1alpha1.ParentSelection) (*v1alpha1.ControllerResync, error) {
	done := &v1alpha1.ControllerResync{}
	return done, c.post(ctx, "resync", false, &v1alpha1.ControllerResync{Spec: v1alpha1.ControllerResyncSpec{Parents: selection}}, done)
}

// Rollback gives a parent the fields of a former revision back. A dry run says what would change.
func (c *Client) Rollback(ctx context.Context, spec v1alpha1.ControllerRollbackSpec, dryRun bool) (*v1alpha1.ControllerRollbackStatus, error) {
	done := &v1alpha1.ControllerRollback{}
	return &done.Status, c.post(ctx, "rollback", dryRun, &v1alpha1.ControllerRollback{Spec: spec}, done)
}

func (c *Client) post(ctx context.Context, subresource string, dryRun bool, body, into runtime.Object) error {
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := c.api.Post().Resource(c.resource()).Name(c.object.Name()).SubResource(subresource).
		VersionedParams(&options, scheme.ParameterCodec).Body(body).Do(ctx).Into(into)
	return c.explain(ctx, err, "create", subresource)
}

// NameOf is a parent as it is printed and, without the resource, named on command lines: RESOURCE.GROUP/NAMESPACE/NAME.
func NameOf(p v1alpha1.ParentReference) string {
	return p.GroupResource().String() + "/" + p.FullName()
}
