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
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

const (
	// patience is how long all reviews of one request may take together.
	patience = 10 * time.Second
	// parallelReviews is how many reviews of all requests are made at the same time.
	parallelReviews = 16
	// maxReviews is how many reviews one request may need.
	maxReviews = 2048
)

// caller is who makes a request, and what is known of his rights. It is used by one goroutine.
type caller struct {
	reviewer *review.Reviewer
	subject  review.Subject
	// everything says that he may do everything.
	everything bool
	// lacks are the rights that were asked for, and whether he lacks them.
	lacks map[rights.Right]bool
}

// caller returns who makes the request of a context.
func (s *subresource) caller(ctx context.Context) (*caller, error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("it is not known who asks")
	}
	c := &caller{
		reviewer: s.reviewer, subject: review.OfUser(u), everything: slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup),
		lacks: map[rights.Right]bool{},
	}
	if c.reviewer == nil && !c.everything {
		return nil, apierrors.NewServiceUnavailable("this server has no cluster to ask what callers may see")
	}
	return c, nil
}

// get is the right to read the objects of a place; those of all namespaces if it has none.
func get(p inspection.Place) rights.Right {
	return rights.Right{Verb: rights.Get, Group: p.Group, Resource: p.Resource, Namespace: p.Namespace}
}

// learn asks which of the places the caller may read, first in all namespaces, then in each.
func (c *caller) learn(ctx context.Context, places []inspection.Place) error {
	if c.everything {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the cluster did not respond within %s", patience))
	defer cancel()
	var everywhere, single []rights.Right
	for _, p := range places {
		everywhere = append(everywhere, get(inspection.Place{GroupResource: p.GroupResource}))
	}
	if err := c.ask(ctx, everywhere); err != nil {
		return err
	}
	for _, p := range places {
		if c.lacks[get(inspection.Place{GroupResource: p.GroupResource})] {
			single = append(single, get(p))
		}
	}
	return c.ask(ctx, single)
}

// lacking returns the first of some rights that the caller does not have, nil if he has all of them.
func (c *caller) lacking(ctx context.Context, wanted ...rights.Right) (*rights.Right, error) {
	if c.everything {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the cluster did not respond within %s", patience))
	defer cancel()
	if err := c.ask(ctx, wanted); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(wanted, func(r rights.Right) bool { return c.lacks[r] }); i >= 0 {
		return &wanted[i], nil
	}
	return nil, nil
}

// lackingSomewhere is lacking for rights in namespaces. Those that the caller has in all namespaces are asked for once.
func (c *caller) lackingSomewhere(ctx context.Context, wanted []rights.Right) (*rights.Right, error) {
	everywhere := slices.Clone(wanted)
	for i := range everywhere {
		everywhere[i].Namespace = ""
	}
	if lacking, err := c.lacking(ctx, everywhere...); err != nil || lacking == nil {
		return nil, err
	}
	return c.lacking(ctx, slices.DeleteFunc(slices.Clone(wanted), func(r rights.Right) bool {
		r.Namespace = ""
		return !c.lacks[r]
	})...)
}

// ask asks for the rights that are not known yet.
func (c *caller) ask(ctx context.Context, wanted []rights.Right) error {
	unknown := slices.Clone(wanted)
	slices.SortFunc(unknown, rights.Right.Compare)
	unknown = slices.DeleteFunc(slices.Compact(unknown), func(r rights.Right) bool { _, known := c.lacks[r]; return known })
	if len(c.lacks)+len(unknown) > maxReviews {
		return apierrors.NewBadRequest(fmt.Sprintf("it would take more than %d reviews to find out what you may see; name a namespace", maxReviews))
	}
	missing, err := c.reviewer.Missing(ctx, c.subject, unknown)
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the cluster did not say what user %q may do: %v", c.subject.User, err))
	}
	for _, r := range unknown {
		c.lacks[r] = slices.Contains(missing, r)
	}
	return nil
}

// sees reports whether the caller may read the objects of all places, of which learn was told.
func (c *caller) sees(places ...inspection.Place) bool {
	return !slices.ContainsFunc(places, func(p inspection.Place) bool { return c.hides(p) })
}

// hides reports whether the caller may not read the objects of a place.
func (c *caller) hides(p inspection.Place) bool {
	if c.everything {
		return false
	}
	everywhere, known := c.lacks[get(inspection.Place{GroupResource: p.GroupResource})]
	if known && !everywhere {
		return false
	}
	lacks, known := c.lacks[get(p)]
	return lacks || !known
}
