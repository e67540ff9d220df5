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

package children

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// wholeFields are the places, and what is there afterwards, where the API server takes a field for one whole that merging takes
// apart.
var wholeFields = map[string]struct {
	changed string
	there   []string
}{
	"spec.policyTypes":       {"spec.podSelector.matchLabels spec.policyTypes", []string{`"policyTypes":["Ingress","Egress"]`, `"podSelector":{}`}},
	"spec.selector.app":      {"spec.selector.theirs spec.selector.app", []string{`"selector":{"app":"web"}`}},
	"binaryData.blob data.a": {"binaryData.blob data.a", []string{`"a":""`, `"theirs":"x"`, `"blob":"AAECAwQF"`}},
	"spec.limits":            {"spec.limits", []string{`"cpu":"8"`}},
}

// TestDriftOfBuiltInKindsIsPutBack has somebody else change a field that is ours and one that is not, by a patch of the type
// that kubectl uses, and looks at the fields after the next write. What is found is the same for the process that wrote the
// child and for one that started later.
func TestDriftOfBuiltInKindsIsPutBack(t *testing.T) {
	for _, test := range []struct {
		file, patch string
		// changed are the places that are put back, there what the object's JSON has after that.
		changed string
		there   []string
	}{
		{
			"deployment.yaml", `{"spec":{"replicas":5,"paused":true}}`, "spec.replicas",
			[]string{`"replicas":2,`, `"paused":true`},
		},
		{
			"deployment.yaml", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:bad"},{"name":"sidecar","image":"side:1"}]}}}}`,
			"spec.template.spec.containers[web].image",
			[]string{`"image":"nginx:1.29"`, `"image":"side:1"`},
		},
		{
			"deployment.yaml", `{"spec":{"template":{"spec":{"tolerations":[{"key":"theirs","operator":"Exists"}]}}}}`,
			"spec.template.spec.tolerations",
			[]string{`"tolerations":[{"key":"dedicated","operator":"Exists"},{"key":"spot","value":"true","effect":"NoSchedule"}]`},
		},
		{
			"deployment.yaml", `{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"EMPTY","value":"full"},{"name":"THEIRS","value":"1"}]}]}}}}`,
			"spec.template.spec.containers[web].env[EMPTY].value",
			[]string{`{"name":"EMPTY"}`, `{"name":"THEIRS","value":"1"}`},
		},
		{
			"deployment.yaml", `{"spec":{"template":{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"501m","ephemeral-storage":"1Gi"}}}]}}}}`,
			"spec.template.spec.containers[web].resources.requests.cpu",
			[]string{`"cpu":"500m"`, `"ephemeral-storage":"1Gi"`},
		},
		{
			"statefulset.yaml", `{"spec":{"replicas":0,"minReadySeconds":3}}`, "spec.replicas", []string{`"replicas":1,`, `"minReadySeconds":3`},
		},
		{
			"service-dns.yaml", `{"spec":{"ports":[{"port":53,"protocol":"UDP","name":"bad"}],"sessionAffinity":"ClientIP"}}`,
			"spec.ports[53,UDP].name",
			[]string{`"name":"dns","protocol":"UDP"`, `"name":"dns-tcp","protocol":"TCP"`, `"sessionAffinity":"ClientIP"`},
		},
		{
			"service-nodeport.yaml", `{"spec":{"selector":{"app":"bad","theirs":"x"}}}`, "spec.selector.app", []string{`"selector":{"app":"web","theirs":"x"}`},
		},
		{
			"ingress.yaml", `{"spec":{"ingressClassName":"theirs","tls":[]}}`, "spec.tls", []string{`"ingressClassName":"theirs"`, `"tls":[{"hosts":["a.example.com"]`},
		},
		{"hpa.yaml", `{"spec":{"maxReplicas":11}}`, "spec.maxReplicas", []string{`"maxReplicas":10`}},
		{"cronjob.yaml", `{"spec":{"schedule":"1 1 * * *","suspend":true}}`, "spec.schedule", []string{`"schedule":"0 3 * * *"`, `"suspend":true`}},
		{"job.yaml", `{"spec":{"suspend":true,"parallelism":0}}`, "spec.suspend", []string{`"suspend":false`, `"parallelism":0`}},
		{
			"networkpolicy.yaml", `{"spec":{"podSelector":{"matchLabels":{"theirs":"x"}},"policyTypes":["Ingress"]}}`, "spec.policyTypes",
			[]string{`"policyTypes":["Ingress","Egress"]`, `"podSelector":{"matchLabels":{"theirs":"x"}}`},
		},
		{
			"role.yaml", `{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`, "rules",
			[]string{`"resources":["pods"]`, `"resourceNames":["a"]`},
		},
		{"rolebinding.yaml", `{"subjects":[]}`, "subjects", []string{`"name":"somebody"`}},
		{"resourcequota.yaml", `{"spec":{"hard":{"pods":"5","services":"1"}}}`, "spec.hard.pods", []string{`"pods":"100"`, `"services":"1"`}},
		{"limitrange.yaml", `{"spec":{"limits":[]}}`, "spec.limits", []string{`"cpu":"8"`}},
		{"pdb.yaml", `{"spec":{"maxUnavailable":1}}`, "spec.maxUnavailable", []string{`"maxUnavailable":"50%"`}},
		{
			"serviceaccount.yaml", `{"automountServiceAccountToken":true,"secrets":[{"name":"theirs"}]}`, "automountServiceAccountToken",
			[]string{`"automountServiceAccountToken":false`, `{"name":"theirs"}`},
		},
		{"configmap.yaml", `{"data":{"a":null,"theirs":"x"},"binaryData":{"blob":"AAAA"}}`, "binaryData.blob data.a", []string{`"a":""`, `"theirs":"x"`, `"blob":"AAECAwQF"`}},
		{"secret.yaml", `{"data":{"password":"eA==","theirs":"eA=="}}`, "data.password", []string{`"password":"aHVudGVyMg=="`, `"theirs":"eA=="`}},
		{"lease.yaml", `{"spec":{"holderIdentity":"b","leaseTransitions":3}}`, "spec.holderIdentity", []string{`"holderIdentity":"a"`, `"leaseTransitions":3`}},
		{
			"endpointslice.yaml", `{"endpoints":[{"addresses":["10.0.0.1"]}]}`, "endpoints",
			[]string{`"addresses":["10.0.0.9"]`, `"addresses":["10.0.0.1"]`},
		},
		{"storageclass.yaml", `{"allowVolumeExpansion":true}`, "allowVolumeExpansion", []string{`"allowVolumeExpansion":false`}},
		{
			"admissionpolicy.yaml", `{"spec":{"validations":[{"expression":"false"}],"failurePolicy":"Ignore"}}`, "spec.validations",
			[]string{`"expression":"true"`, `"failurePolicy":"Ignore"`},
		},
		{
			"validatingwebhook.yaml", `{"webhooks":[{"name":"a.example.com","failurePolicy":"Fail","timeoutSeconds":3}]}`,
			"webhooks[a.example.com].failurePolicy",
			[]string{`"failurePolicy":"Ignore"`, `"timeoutSeconds":3`},
		},
	} {
		for how, is := range map[string]struct{ restart, serverSide bool }{
			"":                                   {false, false},
			" after a restart":                   {true, false},
			" applied server-side":               {false, true},
			" applied server-side and a restart": {true, true},
		} {
			t.Run(strings.TrimSuffix(test.file, ".yaml")+" at "+test.changed+how, func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				s.serverSide = is.serverSide
				content := s.load(t, test.file, v1alpha1.ChildUpdateInPlace)
				s.gets(t, plan.Create, content)
				s.patchChild(t, content, test.patch)
				if is.restart {
					s.restart()
				}
				outcome := s.gets(t, plan.Update, content)
				want, there := test.changed, test.there
				if whole, ok := wholeFields[want]; ok && is.serverSide {
					want, there = whole.changed, whole.there
				}
				if got := pathsOf(outcome.Changed); got != want {
					t.Errorf("changed %q, want %q", got, want)
				}
				for _, want := range there {
					if !strings.Contains(string(outcome.Written.JSON()), want) {
						t.Errorf("no %s in %s", want, outcome.Written.JSON())
					}
				}
				s.quiet(t, "after the drift", content)
			})
		}
	}
}

// patchChild has somebody else patch a child, as kubectl does.
func (s *scene) patchChild(t *testing.T, content map[string]any, patch string) *object.Object {
	t.Helper()
	in := s.input(t, nil, content)
	rule, _ := in.Rules.For(in.Desired[0].GroupKind())
	key := in.Desired[0].Key
	patched, err := s.client.Patch(t.Context(), client.Target{Resource: rule.Resource, Namespace: key.Namespace, Name: key.Name},
		types.StrategicMergePatchType, []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

// pathsOf returns the places of changes.
func pathsOf(changes []plan.Change) string {
	list := make([]string, len(changes))
	for i := range changes {
		list[i] = changes[i].Path
	}
	return strings.Join(list, " ")
}
