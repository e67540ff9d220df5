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

package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// workLimit is how long a request may take that calls hooks. The generic server ends requests after 34 s.
const workLimit = 25 * time.Second

// hooks are the names of all hooks.
var hooks = []string{"sync", "finalize", hookCustomize}

const hookCustomize = "customize"

// RequestREST shows what hooks would be sent.
type RequestREST struct{ *subresource }

var _ rest.GetterWithOptions = &RequestREST{}

// New returns an empty list.
func (*RequestREST) New() runtime.Object { return &v1alpha1.HookRequestList{} }

// NewGetOptions returns the query parameters.
func (*RequestREST) NewGetOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return &v1alpha1.HookRequestOptions{}, false, ""
}

// Get returns the requests about one parent.
func (r *RequestREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*v1alpha1.HookRequestOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the options are a %T", options))
	}
	if o.Name == "" {
		return nil, apierrors.NewBadRequest("name: name the parent, and its namespace unless it is cluster-scoped")
	}
	if o.Hook != "" && !slices.Contains(hooks, o.Hook) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("hook: %q is none of %q", o.Hook, hooks))
	}
	ctx, leave, err := r.requests.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	who, err := r.caller(ctx)
	if err != nil {
		return nil, err
	}
	if o.Call {
		if err := r.mayCall(ctx, who, name); err != nil {
			return nil, err
		}
	}
	c, err := r.controller(ctx, name)
	if err != nil {
		return nil, err
	}
	p, err := r.one(ctx, who, c, o)
	if err != nil {
		return nil, err
	}
	return requestsOf(ctx, who, c, p, o)
}

// requestsOf returns the requests about a parent, if the caller sees all that they show. Before he is known to, no hook is called for him.
func requestsOf(
	ctx context.Context, who *caller, c inspection.Controller, p v1alpha1.ParentReference, o *v1alpha1.HookRequestOptions,
) (*v1alpha1.HookRequestList, error) {
	var refused error
	wanted := inspection.RequestOptions{Hook: o.Hook}
	if o.Call {
		wanted.Call = func(shown []inspection.Place) error {
			refused = maySee(ctx, who, shown, p)
			return refused
		}
	}
	requests, shown, err := c.Requests(ctx, p, wanted)
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, requestError(ctx, err, p, o.Hook)
	}
	if err := maySee(ctx, who, shown, p); err != nil {
		return nil, err
	}
	return &v1alpha1.HookRequestList{Parent: p, Items: requests}, nil
}

// requestError is the error of requests as callers get it. Nobody is asked to repeat what took too long: it would take as long again.
func requestError(ctx context.Context, err error, p v1alpha1.ParentReference, hook string) error {
	resource := p.GroupResource()
	if errors.Is(err, inspection.ErrTooLarge) {
		large := apierrors.NewRequestEntityTooLargeError("")
		large.ErrStatus.Message = fmt.Sprintf("the requests about %s %q cannot be shown: %v", resource, p.Name, err)
		if hook == "" {
			large.ErrStatus.Message += fmt.Sprintf("; ask for those of one hook: hook= one of %q", hooks)
		}
		return large
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("the requests about %s %q were not known within %s; is a hook slow? %v", resource, p.Name, workLimit, err), 0)
	}
	return apierrors.NewConflict(resource, p.Name, err)
}

// mayCall returns an error if the caller may not have hooks called, which takes the right to plan.
func (r *RequestREST) mayCall(ctx context.Context, who *caller, name string) error {
	plan := rights.Right{Verb: rights.Create, Group: v1alpha1.GroupName, Resource: r.resource, Subresource: "plan", Name: name}
	lacking, err := who.lacking(ctx, plan)
	if err != nil || lacking == nil {
		return err
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupName, Resource: r.resource}, name, fmt.Errorf(
		"call=true has the server call hooks, as a plan does: user %q may not create %s/plan in API group %s", who.subject.User, r.resource,
		v1alpha1.GroupName))
}

// one returns the parent that the options name, if the caller sees it and the kinds of its children.
func (r *RequestREST) one(
	ctx context.Context, who *caller, c inspection.Controller, o *v1alpha1.HookRequestOptions,
) (v1alpha1.ParentReference, error) {
	p, err := find(ctx, who, c, &v1alpha1.ParentSelection{Resource: o.Resource, Namespace: o.Namespace, Name: o.Name})
	if err != nil {
		return p, err
	}
	return p, maySee(ctx, who, around(p, c.Children()), p)
}

// find returns the parent that a selection names, if the caller may get it. Who may not learns nothing of whether it exists.
func find(ctx context.Context, who *caller, c inspection.Controller, s *v1alpha1.ParentSelection) (p v1alpha1.ParentReference, err error) {
	all, err := selectParents(ctx, who, c, s, false)
	if err != nil {
		return p, err
	}
	found := slices.DeleteFunc(all.parents, func(p v1alpha1.ParentReference) bool { return p.Namespace != s.Namespace })
	switch len(found) {
	case 0:
		return p, notFound(c, s)
	case 1:
		return found[0], nil
	}
	return p, apierrors.NewBadRequest("resource: the controller has parents of several resources with this name; name one, as in things.example.com")
}

// resourcesOf are the resources of the parents that a selection may be about.
func resourcesOf(c inspection.Controller, s *v1alpha1.ParentSelection) []schema.GroupResource {
	if s.Resource != "" {
		return []schema.GroupResource{schema.ParseGroupResource(s.Resource)}
	}
	return c.Resources()
}

// notFound says that there is no parent of a name, and of which resources it could be.
func notFound(c inspection.Controller, s *v1alpha1.ParentSelection) error {
	resources := resourcesOf(c, s)
	var about schema.GroupResource
	if len(resources) == 1 {
		about = resources[0]
	}
	name := v1alpha1.ParentReference{Namespace: s.Namespace, Name: s.Name}.FullName()
	status := apierrors.NewNotFound(about, s.Name)
	status.ErrStatus.Message = fmt.Sprintf("the controller has no parent %q among %s", name, strings.Join(namesOfAll(resources), ", "))
	return status
}

// maySee returns an error if the caller may not read the objects of all places, which requests about a parent show.
func maySee(ctx context.Context, who *caller, places []inspection.Place, p v1alpha1.ParentReference) error {
	if err := who.learn(ctx, places); err != nil {
		return err
	}
	if hidden := slices.IndexFunc(places, who.hides); hidden >= 0 {
		return forbidden(who, places[hidden], p)
	}
	return nil
}

// forbidden says what the caller would have to be allowed.
func forbidden(who *caller, at inspection.Place, p v1alpha1.ParentReference) error {
	return apierrors.NewForbidden(p.GroupResource(), p.Name,
		fmt.Errorf("user %q may not get %s %s, which would be shown", who.subject.User, at.GroupResource, where(at)))
}

func where(at inspection.Place) string {
	if at.Namespace == "" {
		return "in all namespaces"
	}
	return "in namespace " + at.Namespace
}
