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

package escalation_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/escalation"
)

// A cluster responds to SubjectAccessReviews.
type cluster struct {
	// may says what the user may do, as in "get pods" or "get secrets ns/name"; nil stands for a cluster that forbids the question.
	may func(right string) bool
	// meet, if set, is called in each review before the response.
	meet func(ctx context.Context)

	mu    sync.Mutex
	asked []string
	user  authorizationv1.SubjectAccessReviewSpec
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || c.may == nil {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(apierrors.NewForbidden(authorizationv1.Resource("subjectaccessreviews"), "", errors.New("not you")).Status())
		return
	}
	if c.meet != nil {
		c.meet(r.Context())
	}
	right := text(*review.Spec.ResourceAttributes)
	review.Status.Allowed = c.may(right)
	// As RBAC says of a binding to a role that is gone, whatever the decision is.
	review.Status.EvaluationError = `clusterrole "gone" not found`
	w.WriteHeader(http.StatusCreated)
	// A client that went away is not interested.
	_ = json.NewEncoder(w).Encode(review)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, right)
	review.Spec.ResourceAttributes = nil
	c.user = review.Spec
}

// questions returns the rights that were asked for, sorted.
func (c *cluster) questions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.asked)
	return c.asked
}

// text writes a right in one line.
func text(a authorizationv1.ResourceAttributes) string {
	line := a.Verb + " " + a.Resource
	if a.Group != "" {
		line += "." + a.Group
	}
	if a.Subresource != "" {
		line += "/" + a.Subresource
	}
	if a.Name != "" {
		line += " " + strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")
	}
	return line
}

// all lets the user do what is in the list.
func all(rights ...string) func(string) bool {
	return func(right string) bool { return slices.Contains(rights, right) }
}

// but lets the user do everything but escalate and what is in the list.
func but(rights ...string) func(string) bool {
	return func(right string) bool {
		return !strings.HasPrefix(right, "escalate ") && !slices.Contains(rights, right)
	}
}

// newPlugin returns the plugin with a client of the cluster.
func newPlugin(t *testing.T, c *cluster) *escalation.Plugin {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := escalation.New()
	if err := p.ValidateInitialization(); err == nil {
		t.Error("it does not miss its client")
	}
	escalation.Initializer{Reviews: client.AuthorizationV1().SubjectAccessReviews()}.Initialize(p)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}
