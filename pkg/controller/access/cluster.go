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

package access

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// parallel is how many reviews are made at the same time, for all controllers of the process together.
const parallel = 8

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// asked implements Cluster with requests in the server's own name.
type asked struct {
	reviewer *review.Reviewer
	self     authorizationclient.SelfSubjectAccessReviewInterface
	objects  *client.Client
}

// OfCluster returns what asks a cluster, for all controllers.
func OfCluster(reviews authorizationclient.AuthorizationV1Interface, objects *client.Client) Cluster {
	return &asked{
		reviewer: review.New(reviews.SubjectAccessReviews(), parallel), self: reviews.SelfSubjectAccessReviews(), objects: objects,
	}
}

// Exists implements Cluster. API servers authorize and impersonate accounts that do not exist, as long as roles are bound to them.
func (c *asked) Exists(ctx context.Context, a rights.Account) (bool, error) {
	_, err := c.objects.Get(ctx, client.Target{Resource: serviceAccounts, Namespace: a.Namespace, Name: a.Name})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the service account %s: %w", a, err)
	}
	return true, nil
}

// Impersonates implements Cluster.
func (c *asked) Impersonates(ctx context.Context, a rights.Account) (bool, error) {
	allowed, err := review.Own(ctx, c.self, a.Impersonate())
	if err != nil {
		return false, fmt.Errorf("asking whether the server may impersonate the service account %s: %w", a, err)
	}
	return allowed, nil
}

// Missing implements Cluster.
func (c *asked) Missing(ctx context.Context, a rights.Account, wanted []rights.Right) ([]rights.Right, error) {
	missing, err := c.reviewer.Missing(ctx, review.OfAccount(a), wanted)
	if err != nil {
		return nil, fmt.Errorf("asking what the service account %s may do: %w", a, err)
	}
	return missing, nil
}
