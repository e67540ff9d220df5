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
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// reviews is an API server that has the account alice, lets her list and not watch, and lets the server act as her.
func reviews(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/serviceaccounts/alice"):
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"alice","namespace":"team","uid":"u"}}`)
	case strings.HasSuffix(path, "/serviceaccounts/bob"):
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"bob"},"code":404}`)
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if json.NewDecoder(r.Body).Decode(&review) == nil {
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = a.Verb == "impersonate" && a.Resource == "serviceaccounts" && a.Namespace == "team" && a.Name == "alice"
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		if json.NewDecoder(r.Body).Decode(&review) == nil {
			s := review.Spec
			review.Status.Allowed = s.User == alice.User() && slices.Equal(s.Groups, alice.Groups()) && s.ResourceAttributes.Verb == rights.List
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

func TestWhatAClusterSays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(reviews))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	authorization, err := authorizationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c := OfCluster(authorization, objects)
	for account, exists := range map[rights.Account]bool{alice: true, bob: false} {
		if got, err := c.Exists(t.Context(), account); err != nil || got != exists {
			t.Errorf("%s exists: %v, %v", account, got, err)
		}
		if got, err := c.Impersonates(t.Context(), account); err != nil || got != exists {
			t.Errorf("%s is impersonated: %v, %v", account, got, err)
		}
	}
	if _, err := c.Exists(t.Context(), rights.Account{Namespace: "team", Name: "carol"}); err == nil {
		t.Error("the server may not read the account, and there is no error")
	}
	for account, want := range map[rights.Account][]rights.Right{alice: {watchPods}, bob: {listPods, watchPods}} {
		got, err := c.Missing(t.Context(), account, []rights.Right{listPods, watchPods})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s lacks %v, %v; want %v", account, got, err, want)
		}
	}
	server.Close()
	if _, err := c.Missing(t.Context(), alice, []rights.Right{listPods}); err == nil || !strings.Contains(err.Error(), "team/alice") {
		t.Errorf("there is no server, and got %v", err)
	}
	if _, err := c.Impersonates(t.Context(), alice); err == nil {
		t.Error("there is no server, and no error")
	}
}
