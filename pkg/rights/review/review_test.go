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

package review_test

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// fragile allows everything but what concerns Secrets: there it panics.
type fragile struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (fragile) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	if r.Spec.ResourceAttributes.Resource == "secrets" {
		panic("boom")
	}
	r.Status.Allowed = true
	return r, nil
}

// What is unknown is no right that is missing, and no right that is there.
func TestAReviewThatPanicsIsUnknown(t *testing.T) {
	reviewer := review.New(fragile{}, 1)
	wanted := []rights.Right{{Verb: rights.Get, Resource: "pods"}, {Verb: rights.Get, Resource: "secrets"}, {Verb: rights.Get, Resource: "services"}}
	var panicked *recovery.PanicError
	if missing, err := reviewer.Missing(t.Context(), review.Subject{User: "jane"}, wanted); missing != nil || !errors.As(err, &panicked) {
		t.Errorf("got %v, %v", missing, err)
	}
	// The one slot is free again.
	if missing, err := reviewer.Missing(t.Context(), review.Subject{User: "jane"}, wanted[:1]); missing != nil || err != nil {
		t.Errorf("after the panic: got %v, %v", missing, err)
	}
}
