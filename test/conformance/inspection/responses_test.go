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

package inspection

import (
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// responsesAreTheHooks has the hook called with the request that is shown, and nothing done with its response.
func (s *stage) responsesAreTheHooks(synced int) {
	s.T.Helper()
	called, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a", Call: true})
	if err != nil || len(called.Items) != 1 || called.Items[0].Response == nil {
		s.T.Fatalf("the requests are %+v, error %v", called, err)
	}
	if sent := s.Requests("/hook"); len(sent) < synced+2 {
		s.T.Errorf("the hook got %d requests, want %d", len(sent), synced+2)
	} else if diff := cmp.Diff(decode(s.T, sent[len(sent)-1].Body), decode(s.T, called.Items[0].Body.Raw)); diff != "" {
		s.T.Errorf("the request is another one (-sent +shown):\n%s", diff)
	}
	response, ok := decode(s.T, called.Items[0].Response.Raw).(map[string]any)
	if children, _ := response[s.childrenField()].([]any); !ok || len(children) != 1 {
		s.T.Errorf("the response is %s", called.Items[0].Response.Raw)
	}
}

// givenRulesTellNothing has somebody plan with rules of his own: whether there is what they select is not to be seen by whom may not get it, and
// what no hook is shown hides nothing. The hooks are of version v1, in which a parent sees the objects of its namespace.
func (s *stage) givenRulesTellNothing(as typedv1alpha1.MetacontrollerV1alpha1Interface) {
	s.T.Helper()
	ref := v1alpha1.ParentReference{Group: fixture.Group, Resource: "things", Namespace: s.Name, Name: "a"}
	given := func(hook, body string) v1alpha1.GivenResponse {
		return v1alpha1.GivenResponse{ParentReference: ref, Hook: hook, Body: runtime.RawExtension{Raw: []byte(body)}}
	}
	for rule, refused := range map[string]string{
		`{"apiVersion":"rbac.authorization.k8s.io/v1","resource":"clusterroles","names":["cluster-admin"]}`: "may not get clusterroles.rbac.authorization.k8s.io in all namespaces",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","resource":"clusterroles","names":["no-such-role"]}`:  "may not get clusterroles.rbac.authorization.k8s.io in all namespaces",
		`{"apiVersion":"v1","resource":"configmaps","names":["kube-root-ca.crt"]}`:                          "",
	} {
		plan, err := s.plan(as, v1alpha1.ControllerPlanSpec{
			Parents: &v1alpha1.ParentSelection{Namespace: s.Name, Name: "a"},
			Responses: []v1alpha1.GivenResponse{
				given("sync", fmt.Sprintf(`{%q:[]}`, s.childrenField())), given("customize", fmt.Sprintf(`{"relatedResources":[%s]}`, rule)),
			},
		})
		switch {
		case err != nil:
			s.T.Errorf("%s: %v", rule, err)
		case plan.Status.Hidden != 0 || len(plan.Status.Parents) != 1:
			s.T.Errorf("%s: she sees %+v", rule, plan.Status)
		case (plan.Status.Parents[0].Error == "") != (refused == "") || !strings.Contains(plan.Status.Parents[0].Error, refused):
			s.T.Errorf("%s: the error is %q, want %q", rule, plan.Status.Parents[0].Error, refused)
		}
	}
}
