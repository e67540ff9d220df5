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

package review

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// Subject is the user of whom it is asked what he may do.
type Subject struct {
	// User is the name. Groups and UID are empty where there are none, and Extra is nil.
	User   string
	Groups []string
	UID    string
	Extra  map[string]authorizationv1.ExtraValue
}

// OfAccount returns a service account as the subject.
func OfAccount(a rights.Account) Subject { return Subject{User: a.User(), Groups: a.Groups()} }

// User is who makes a request, as API servers know him.
type User interface {
	GetName() string
	GetUID() string
	GetGroups() []string
	GetExtra() map[string][]string
}

// OfUser returns who makes a request as the subject.
func OfUser(u User) Subject {
	extra := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for key, values := range u.GetExtra() {
		extra[key] = slices.Clone(values)
	}
	return Subject{User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// Reviewer asks the cluster what users may do. It is safe for concurrent use.
type Reviewer struct {
	client authorizationclient.SubjectAccessReviewInterface
	slots  chan struct{}
}

// New returns a reviewer that makes so many reviews at the same time, for all its callers together.
func New(client authorizationclient.SubjectAccessReviewInterface, parallel int) *Reviewer {
	return &Reviewer{client: client, slots: make(chan struct{}, parallel)}
}

// Missing returns which of the wanted rights the subject lacks, in their order. The error says that it could not be found out for one
// of them at least; the others are not asked for then.
func (r *Reviewer) Missing(ctx context.Context, subject Subject, wanted []rights.Right) ([]rights.Right, error) {
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(cap(r.slots))
	denied := make([]bool, len(wanted))
	for i := range wanted {
		asking.Go(func() error {
			return recovery.Call(ctx, "reviewing a right", func() error {
				allowed, err := r.allowed(ctx, subject, wanted[i])
				denied[i] = !allowed
				return err
			})
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	var missing []rights.Right
	for i, right := range wanted {
		if denied[i] {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

// allowed asks for one right. It does not ask when ctx has ended.
func (r *Reviewer) allowed(ctx context.Context, subject Subject, wanted rights.Right) (bool, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	review, err := r.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: subject.User, UID: subject.UID, Groups: subject.Groups, Extra: subject.Extra, ResourceAttributes: attributes(wanted),
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("creating a SubjectAccessReview: %w", err)
	}
	return decided(review.Status), nil
}

// Own reports whether the server itself, as the user of the client, has a right.
func Own(ctx context.Context, client authorizationclient.SelfSubjectAccessReviewInterface, wanted rights.Right) (bool, error) {
	review, err := client.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: attributes(wanted),
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("creating a SelfSubjectAccessReview: %w", err)
	}
	return decided(review.Status), nil
}

// decided reads a decision. An evaluation error is that of one rule, such as a binding to a role that is gone; the others were evaluated.
func decided(s authorizationv1.SubjectAccessReviewStatus) bool { return s.Allowed && !s.Denied }

func attributes(r rights.Right) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Version: "*", Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
	}
}
