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

package apply

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// merging and applying are how many parents the two controllers have: the children of one are merged, those of the other are applied by the API
// server. Each parent has a Deployment.
const merging, applying = 60, 20

// epochs is a test with two controllers and a webhook that mutates what they write, if it is registered.
type epochs struct {
	*fixture.Test
	merged, applied *fixture.Script
	webhook         *httptest.Server
	// value is what the webhook makes of the empty variable; empty: nothing.
	value atomic.Value
	// calls are those of the hooks, and tries the dry runs, that were looked at.
	mergedCalls, appliedCalls, tries int
}

// TestEpochs has webhooks registered, edited and deleted, and counts what the engine does for children that are not stored as they were sent.
func TestEpochs(t *testing.T) {
	s := newEpochs(t)
	s.start()
	configurations := s.Kube.AdmissionregistrationV1()

	s.T.Log("unrelated webhooks of both kinds come, change and go")
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	unrelated := s.mutating("unrelated", "nobody.example.com", "things")
	for i := range 22 {
		rules := []admissionregistrationv1.RuleWithOperations{rule("nobody.example.com", fmt.Sprint("things", i)), rule("apps", fmt.Sprint("things", i))}
		unrelated.Webhooks[0].Rules = rules
		validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
			Name: "validating.example.com", ClientConfig: s.client(fmt.Sprint(i)), Rules: append(rules, rule("apps", "deployments")),
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}},
		}}
		var errMutating, errValidating error
		switch i {
		case 0:
			unrelated, errMutating = configurations.MutatingWebhookConfigurations().Create(t.Context(), unrelated, metav1.CreateOptions{})
			validating, errValidating = configurations.ValidatingWebhookConfigurations().Create(t.Context(), validating, metav1.CreateOptions{})
		case 21:
			errMutating = configurations.MutatingWebhookConfigurations().Delete(t.Context(), unrelated.Name, metav1.DeleteOptions{})
			errValidating = configurations.ValidatingWebhookConfigurations().Delete(t.Context(), validating.Name, metav1.DeleteOptions{})
		default:
			unrelated, errMutating = configurations.MutatingWebhookConfigurations().Update(t.Context(), unrelated, metav1.UpdateOptions{})
			validating, errValidating = configurations.ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
		}
		if errMutating != nil || errValidating != nil {
			t.Fatal(errMutating, errValidating)
		}
	}

	s.T.Log("a webhook that is called for the children comes, and changes nothing")
	matching := s.mutating("matching", "apps", "deployments")
	matching, err := configurations.MutatingWebhookConfigurations().Create(t.Context(), matching, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations.MutatingWebhookConfigurations().Delete(context.WithoutCancel(t.Context()), matching.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// What comes of the unrelated ones would have come before that.
	s.awaitTries()
	s.hasCalled(0, applying)

	s.T.Log("CA bundles are injected, and then the webhook changes what is stored")
	for i := range 20 {
		bundle := s.bundle()
		for range i % 2 {
			bundle = append(bundle, s.bundle()...)
		}
		matching.Webhooks[0].ClientConfig.CABundle = bundle
		if matching, err = configurations.MutatingWebhookConfigurations().Update(t.Context(), matching, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.value.Store("injected")
	matching.Webhooks[0].ClientConfig.URL = new(s.webhook.URL + "/v2")
	if matching, err = configurations.MutatingWebhookConfigurations().Update(t.Context(), matching, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitTries()
	for i := range merging + applying {
		s.Await(fixture.Deployments, fmt.Sprint("p", i), "to have what the webhook injects", func(o *unstructured.Unstructured) bool {
			return o != nil && strings.Contains(fixture.Value(o, "spec", "template", "spec", "containers"), "injected")
		})
	}
	s.Settle()
	if tries := len(s.dryRuns()); tries > s.tries {
		t.Errorf("%d dry runs more", tries-s.tries)
	}
}

func newEpochs(t *testing.T) *epochs {
	t.Helper()
	e := fixture.SetUp(t, fixture.Options{Resources: []cluster.CustomResource{{Resource: wishes, Kind: "Wish"}}})
	s := &epochs{Test: e.NewTest(t), merged: e.NewScript(fixture.Composite), applied: e.NewScript(fixture.Decorator)}
	s.value.Store("")
	s.webhook = httptest.NewTLSServer(http.HandlerFunc(s.mutate))
	t.Cleanup(s.webhook.Close)
	s.Handle("/merge", s.merged)
	s.Handle("/apply", s.applied)
	for _, script := range []*fixture.Script{s.merged, s.applied} {
		script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
			return &fixture.Reply{Children: []*hook.Object{deployment(c.Parent.GetName())}}, nil
		})
	}
	return s
}

// deployment is not stored as it is sent: the empty value is left out, and the list of tolerations is one whole.
func deployment(name string) *hook.Object {
	labels := map[string]any{"app": name}
	return &hook.Object{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
				"tolerations": []any{map[string]any{"key": "dedicated", "operator": "Exists", "value": ""}},
				"containers": []any{map[string]any{
					"name": "main", "image": "image", "env": []any{map[string]any{"name": "EMPTY", "value": ""}},
					"ports": []any{map[string]any{"containerPort": int64(80)}},
				}},
			}},
		},
	}}
}

// start starts the controllers, and returns when their parents have settled.
func (s *epochs) start() {
	s.T.Helper()
	children := []fixture.Child{{Resource: fixture.Deployments, Method: v1alpha1.ChildUpdateInPlace}}
	s.Run(fixture.Definition{Kind: fixture.Composite, Sync: s.At("/merge"), Children: children})
	s.Run(fixture.Definition{
		Kind: fixture.Decorator, Name: s.Name + "-applied", Sync: s.At("/apply"), Children: children, Parents: []schema.GroupVersionResource{wishes},
		EditDecorator: func(spec *v1alpha1.DecoratorControllerSpec) {
			spec.Attachments[0].UpdateStrategy.Apply = v1alpha1.ChildApplyServerSide
		},
	})
	for i := range merging + applying {
		parents := fixture.Things
		if i >= merging {
			parents = wishes
		}
		s.Selected(parents, fmt.Sprint("p", i), map[string]any{"spec": map[string]any{}})
	}
	for i := range merging + applying {
		s.Await(fixture.Deployments, fmt.Sprint("p", i), "to be observed", func(o *unstructured.Unstructured) bool {
			return o != nil && fixture.Value(o, "status", "observedGeneration") != ""
		})
	}
	s.Settle()
	s.mergedCalls, s.appliedCalls, s.tries = s.merged.All(), s.applied.All(), len(s.dryRuns())
}

// dryRuns returns the requests of the server that try Deployments.
func (s *epochs) dryRuns() []auditv1.Event {
	s.T.Helper()
	return slices.DeleteFunc(s.Audited(s.T, s.Name), func(e auditv1.Event) bool {
		return !strings.HasPrefix(e.UserAgent, "metacontroller-apiserver/") || !strings.Contains(e.RequestURI, "dryRun=All")
	})
}

// awaitTries waits until all children have been tried since it was called last, each once, over some time.
func (s *epochs) awaitTries() {
	s.T.Helper()
	var fresh []auditv1.Event
	cluster.Eventually(s.T, s.Limit, "all children to be tried", func(context.Context) (bool, string) {
		fresh = s.dryRuns()[s.tries:]
		return len(fresh) >= merging+applying, fmt.Sprintf("%d are", len(fresh))
	})
	s.tries += len(fresh)
	tried := map[string]int{}
	first, last := fresh[0].RequestReceivedTimestamp.Time, fresh[0].RequestReceivedTimestamp.Time
	for _, e := range fresh {
		tried[e.ObjectRef.Name]++
		if at := e.RequestReceivedTimestamp.Time; at.Before(first) {
			first = at
		} else if at.After(last) {
			last = at
		}
	}
	if len(fresh) != merging+applying || len(tried) != len(fresh) {
		s.T.Errorf("%d dry runs of %d children, want one for each of %d", len(fresh), len(tried), merging+applying)
	}
	if spread := last.Sub(first); spread < 2*time.Second {
		s.T.Errorf("the dry runs are made within %v", spread)
	} else {
		s.T.Logf("%d dry runs are spread over %v", len(fresh), spread)
	}
}

// hasCalled checks how often the hooks were called since all settled.
func (s *epochs) hasCalled(merged, applied int) {
	s.T.Helper()
	if calls := s.merged.All() - s.mergedCalls; calls != merged {
		s.T.Errorf("the hook is called %d times for children that are merged, want %d", calls, merged)
	}
	if calls := s.applied.All() - s.appliedCalls; calls > applied {
		s.T.Errorf("the hook is called %d times for children that are applied, want %d at most", calls, applied)
	}
}

func rule(group, resource string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}
}

// mutating is a configuration of the webhook, for the objects of a resource in the namespace.
func (s *epochs) mutating(name, group, resource string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name + ".example.com", ClientConfig: s.client("v1"), Rules: []admissionregistrationv1.RuleWithOperations{rule(group, resource)},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.Name}},
		}},
	}
}

func (s *epochs) client(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: new(s.webhook.URL + "/" + path), CABundle: s.bundle()}
}

func (s *epochs) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.webhook.Certificate().Raw})
}

// mutate is the webhook.
func (s *epochs) mutate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if value := s.value.Load(); value != "" && review.Request.SubResource == "" {
		review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/spec/template/spec/containers/0/env/0/value","value":%q}]`, value)
	}
	_ = json.NewEncoder(w).Encode(review)
}
