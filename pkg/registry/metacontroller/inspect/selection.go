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
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

const (
	// defaultLimit and maxLimit are how many parents a response has at most.
	defaultLimit = 100
	maxLimit     = 500
)

// selected are the parents that a request selects and the caller may see, in order.
type selected struct {
	parents []v1alpha1.ParentReference
	// hidden counts those that he may not see. With labels it counts those alone of which he may get the parent and not the children: else the
	// number would tell what labels there are.
	hidden int64
}

// selectParents returns the parents of a controller that are selected and that the caller sees: he may get them and, if children is set,
// the declared kinds of children beside them. If a name is selected and he sees no parent of that name for want of rights, the error says so.
func selectParents(
	ctx context.Context, who *caller, c inspection.Controller, selection *v1alpha1.ParentSelection, children bool,
) (selected, error) {
	selector, err := selectorOf(selection)
	if err != nil {
		return selected{}, err
	}
	return selectLabeled(ctx, who, c, selection, selector, children)
}

// selectLabeled is selectParents with a selector in place of that of the selection.
func selectLabeled(
	ctx context.Context, who *caller, c inspection.Controller, selection *v1alpha1.ParentSelection, selector labels.Selector, children bool,
) (selected, error) {
	selection = cmp.Or(selection, &v1alpha1.ParentSelection{})
	if err := checkResource(c, selection); err != nil {
		return selected{}, err
	}
	matching := match(c.Parents(), selection, selector)
	var kinds []inspection.Kind
	if children {
		kinds = c.Children()
	}
	var places []inspection.Place
	seen := map[inspection.Place]bool{}
	for _, p := range matching {
		if at := placeOf(p); !seen[at] {
			seen[at] = true
			places = append(places, around(p, kinds)...)
		}
	}
	if err := who.learn(ctx, places); err != nil {
		return selected{}, err
	}
	var s selected
	telling := selection.Name != "" || !selector.Empty()
	for _, p := range matching {
		switch {
		case who.sees(around(p, kinds)...):
			s.parents = append(s.parents, p)
		case !telling || who.sees(placeOf(p)):
			s.hidden++
		}
	}
	if selection.Name != "" && len(s.parents) == 0 {
		return s, refusal(ctx, who, c, selection, matching, kinds)
	}
	return s, nil
}

// refusal returns the error for a caller who sees none of the parents of a name, nil if he would see them. Of parents that he may not get it
// says the same whether they exist or not.
func refusal(
	ctx context.Context, who *caller, c inspection.Controller, s *v1alpha1.ParentSelection, matching []v1alpha1.ParentReference, kinds []inspection.Kind,
) error {
	for _, p := range matching {
		if !who.hides(placeOf(p)) {
			return maySee(ctx, who, around(p, kinds), p)
		}
	}
	var places []inspection.Place
	for _, resource := range resourcesOf(c, s) {
		places = append(places, inspection.Place{GroupResource: resource, Namespace: s.Namespace})
	}
	if err := who.learn(ctx, places); err != nil {
		return err
	}
	if hidden := slices.IndexFunc(places, who.hides); hidden >= 0 {
		at := places[hidden]
		return forbidden(who, at, v1alpha1.ParentReference{Group: at.Group, Resource: at.Resource, Name: s.Name})
	}
	return nil
}

// checkResource returns an error if a selection names a resource of which the controller never has parents: its response would be empty.
func checkResource(c inspection.Controller, selection *v1alpha1.ParentSelection) error {
	if selection.Resource == "" || slices.Contains(c.Resources(), schema.ParseGroupResource(selection.Resource)) {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("resource: the controller has no parents of the resource %q; it has those of %q", selection.Resource, namesOfAll(c.Resources())))
}

func namesOfAll(resources []schema.GroupResource) (names []string) {
	for _, r := range resources {
		names = append(names, r.String())
	}
	return names
}

// match returns the parents that a selection selects, in order.
func match(all []inspection.Parent, selection *v1alpha1.ParentSelection, selector labels.Selector) []v1alpha1.ParentReference {
	resource := schema.ParseGroupResource(selection.Resource)
	var list []v1alpha1.ParentReference
	for _, p := range all {
		if selection.Resource != "" && (resource.Group != p.Group || resource.Resource != p.Resource) ||
			selection.Namespace != "" && selection.Namespace != p.Namespace || selection.Name != "" && selection.Name != p.Name ||
			!selector.Matches(p.Labels) {
			continue
		}
		list = append(list, p.ParentReference)
	}
	slices.SortFunc(list, compare)
	return list
}

// selectorOf selects the labels of a selection, which is nil for all parents.
func selectorOf(selection *v1alpha1.ParentSelection) (labels.Selector, error) {
	if selection == nil || selection.LabelSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(selection.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("parents.labelSelector: %v", err))
	}
	return selector, nil
}

// parseSelector reads the query parameter labelSelector, which is empty for all parents.
func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	return selector, nil
}

func compare(a, b v1alpha1.ParentReference) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name))
}

func placeOf(p v1alpha1.ParentReference) inspection.Place {
	return inspection.Place{GroupResource: p.GroupResource(), Namespace: p.Namespace}
}

// around returns where a parent is, and where its children may be.
func around(p v1alpha1.ParentReference, kinds []inspection.Kind) []inspection.Place {
	places := []inspection.Place{placeOf(p)}
	for _, kind := range kinds {
		at := inspection.Place{GroupResource: kind.GroupResource}
		if kind.Namespaced {
			at.Namespace = p.Namespace
		}
		places = append(places, at)
	}
	return places
}

// from returns the parents behind the one that a token names; all without a token.
func from(list []v1alpha1.ParentReference, token string) ([]v1alpha1.ParentReference, error) {
	if token == "" {
		return list, nil
	}
	var last v1alpha1.ParentReference
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("continue: it is not what a former response returned")
	}
	at, found := slices.BinarySearchFunc(list, last, compare)
	if found {
		at++
	}
	return list[at:], nil
}

// token names a parent for from.
func token(last v1alpha1.ParentReference) (string, error) {
	text, err := json.Marshal(last)
	if err != nil {
		return "", fmt.Errorf("encoding the place in a list: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// limited returns how many parents a response has at most.
func limited(asked int64) int {
	if asked <= 0 {
		return defaultLimit
	}
	return int(min(asked, maxLimit))
}

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
