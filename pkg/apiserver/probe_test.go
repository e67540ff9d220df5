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

package apiserver_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
)

// An oldCluster is as far as a probe sees it. It answers like one that serves the resources given and forbids some.
type oldCluster struct {
	served    map[string][]string
	forbidden map[string]string
	broken    bool
}

func (c oldCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch resources, ok := c.served[r.URL.Path]; {
	case c.broken:
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonServiceUnavailable, Code: http.StatusServiceUnavailable}
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = c.forbidden[asked.Resource] != asked.Verb
		w.WriteHeader(http.StatusCreated)
		answer = review
	case ok:
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
		for _, name := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		answer = list
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	// A client that went away is not interested.
	_ = json.NewEncoder(w).Encode(answer)
}

func TestProbe(t *testing.T) {
	const (
		core      = "/api/v1"
		admission = "/apis/admissionregistration.k8s.io/v1"
		flow      = "/apis/flowcontrol.apiserver.k8s.io/v1"
	)
	webhooks := []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	policies := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	all := append(append([]string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, policies...), webhooks...)
	flows := []string{"flowschemas", "prioritylevelconfigurations"}
	for name, test := range map[string]struct {
		cluster oldCluster
		want    map[string]string
	}{
		"everything is there": {
			oldCluster{served: map[string][]string{core: {"namespaces"}, admission: all, flow: flows}}, map[string]string{},
		},
		"before mutating policies": {
			oldCluster{served: map[string][]string{core: {"namespaces"}, admission: append(policies, webhooks...), flow: flows}},
			map[string]string{
				"MutatingAdmissionPolicy": "the cluster does not serve mutatingadmissionpolicies in admissionregistration.k8s.io/v1; " +
					"the cluster does not serve mutatingadmissionpolicybindings in admissionregistration.k8s.io/v1",
			},
		},
		"before priority and fairness": {
			oldCluster{served: map[string][]string{core: {"namespaces"}, admission: all}},
			map[string]string{
				"APIPriorityAndFairness": "the cluster does not serve flowschemas in flowcontrol.apiserver.k8s.io/v1; " +
					"the cluster does not serve prioritylevelconfigurations in flowcontrol.apiserver.k8s.io/v1",
			},
		},
		"some rights are missing": {
			oldCluster{
				served:    map[string][]string{core: {"namespaces"}, admission: all, flow: flows},
				forbidden: map[string]string{"flowschemas": "list", "validatingwebhookconfigurations": "watch"},
			},
			map[string]string{
				"APIPriorityAndFairness":     "this server may not list flowschemas.flowcontrol.apiserver.k8s.io",
				"ValidatingAdmissionWebhook": "this server may not watch validatingwebhookconfigurations.admissionregistration.k8s.io",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := probe(t, test.cluster)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unusable parts differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A server that does not know must not guess that nothing is there, and serve without admission.
func TestProbeOfAClusterThatDoesNotAnswer(t *testing.T) {
	if got, err := probe(t, oldCluster{broken: true}); err == nil || !strings.Contains(err.Error(), "discovering v1 at the cluster") {
		t.Errorf("got %v, %v", got, err)
	}
}

func probe(t *testing.T, cluster oldCluster) (map[string]string, error) {
	t.Helper()
	s := httptest.NewServer(cluster)
	t.Cleanup(s.Close)
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.Probe(t.Context(), c, apiserver.Parts())
}

// undecided has an authorizer that is down for some reviews of a right.
type undecided struct {
	oldCluster

	reviews  int
	resource string
	// failures are how many reviews fail, and status how; zero: the review has an evaluation error.
	failures, status int
}

func (u *undecided) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.Unmarshal(body, &review); err == nil && review.Spec.ResourceAttributes.Resource == u.resource {
			if u.reviews++; u.reviews <= u.failures {
				w.Header().Set("Content-Type", "application/json")
				if u.status != 0 {
					w.WriteHeader(u.status)
					return
				}
				review.Status.EvaluationError = "webhook: connection refused"
				w.WriteHeader(http.StatusCreated)
				_ = json.NewEncoder(w).Encode(review)
				return
			}
		}
	}
	u.oldCluster.ServeHTTP(w, r)
}

// RoundTrip implements http.RoundTripper, so that nothing waits for a network.
func (u *undecided) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	u.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// What is switched off stays so for the life of the process: a cluster that cannot decide has not said no.
func TestARightThatTheClusterCannotDecideIsAskedForAgain(t *testing.T) {
	const resource = "validatingwebhookconfigurations"
	cluster := oldCluster{served: map[string][]string{
		"/api/v1": {"namespaces"}, "/apis/admissionregistration.k8s.io/v1": {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"mutatingwebhookconfigurations", resource,
		}, "/apis/flowcontrol.apiserver.k8s.io/v1": {"flowschemas", "prioritylevelconfigurations"},
	}}
	denied := cluster
	denied.forbidden = map[string]string{resource: "list"}
	off := map[string]string{"ValidatingAdmissionWebhook": "this server may not list validatingwebhookconfigurations.admissionregistration.k8s.io"}
	for name, test := range map[string]struct {
		cluster undecided
		want    map[string]string
		took    time.Duration
	}{
		"the authorizer is back, and allows": {undecided{oldCluster: cluster, failures: 3}, map[string]string{}, 3 * time.Second},
		"the authorizer is back, and denies": {undecided{oldCluster: denied, failures: 3}, off, 3 * time.Second},
		"a request fails":                    {undecided{oldCluster: denied, failures: 2, status: http.StatusInternalServerError}, off, 2 * time.Second},
		"the authorizer stays away":          {undecided{oldCluster: denied, failures: 1000}, map[string]string{}, 20 * time.Second},
		"nobody may ask":                     {undecided{oldCluster: denied, failures: 1000, status: http.StatusForbidden}, map[string]string{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.cluster.resource = resource
				c, err := kubernetes.NewForConfig(&rest.Config{
					Host: "http://cluster", QPS: -1, Transport: &test.cluster, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
				})
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				got, err := apiserver.Probe(t.Context(), c, apiserver.Parts())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("unusable parts differ (-want +got):\n%s", diff)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
			})
		})
	}
}
