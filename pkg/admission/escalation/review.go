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

package escalation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

const (
	// patience is how long all reviews of one write may take together.
	patience = 10 * time.Second
	// parallel is how many reviews of one write are made at the same time.
	parallel = 16
	// maxReviews is how many reviews one write may need: those of 256 kinds of children and as many other rights.
	maxReviews = 2048
)

// A reviewer asks the cluster what one user may do.
type reviewer struct {
	client authorizationclient.SubjectAccessReviewInterface
	user   user.Info
}

// missing returns which of the wanted rights the user lacks, in their order. The error says that it could not be found out.
func (r reviewer) missing(ctx context.Context, wanted []right) ([]right, error) {
	if len(wanted) > maxReviews {
		return nil, fmt.Errorf("it needs %d rights, more than the %d that are looked up", len(wanted), maxReviews)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	denied := make([]bool, len(wanted))
	next := make(chan int)
	var running sync.WaitGroup
	for range min(parallel, len(wanted)) {
		running.Go(func() {
			for i := range next {
				allowed, err := r.allowed(ctx, wanted[i])
				if err != nil {
					cancel(err)
				}
				denied[i] = !allowed
			}
		})
	}
	for i := range wanted {
		next <- i
	}
	close(next)
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var missing []right
	for i, right := range wanted {
		if denied[i] {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

// allowed asks for one right. It does not ask when ctx has ended.
func (r reviewer) allowed(ctx context.Context, wanted right) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(r.user.GetExtra()))
	for key, values := range r.user.GetExtra() {
		extra[key] = slices.Clone(values)
	}
	review, err := r.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.user.GetName(), UID: r.user.GetUID(), Groups: r.user.GetGroups(), Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: wanted.Verb, Group: wanted.Group, Version: "*", Resource: wanted.Resource, Subresource: wanted.Subresource,
			Namespace: wanted.Namespace, Name: wanted.Name,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("creating a SubjectAccessReview: %w", err)
	}
	// An evaluation error is that of one rule, such as a binding to a role that is gone; the others were evaluated.
	return review.Status.Allowed && !review.Status.Denied, nil
}
