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

package hooktest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

// post sends body to url and returns status and body of the response.
func post(t *testing.T, client *http.Client, url, body string) (status int, text string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

func TestTypedHandlers(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/composite", hooktest.Composite(func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Status: map[string]any{"name": r.Parent.GetName(), "pods": len(r.Children.OfType("v1", "Pod"))}}, nil
	}))
	server.Handle("/decorator", hooktest.Decorator(func(r *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		name := r.Object.GetName()
		return &hook.DecoratorResponse{Labels: map[string]*string{"name": &name}}, nil
	}))
	server.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{}, nil
	}))
	server.Handle("/failing", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return nil, errors.New("no idea")
	}))
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`
	for path, tc := range map[string]struct {
		body, want string
		status     int
	}{
		"/composite": {`{"parent":` + pod + `,"children":{"Pod.v1":{"web":` + pod + `}}}`, `{"status":{"name":"web","pods":1},"children":null}`, 200},
		"/decorator": {`{"object":` + pod + `}`, `{"labels":{"name":"web"},"status":null,"attachments":null}`, 200},
		"/customize": {`{"parent":` + pod + `}`, `{"relatedResources":null}`, 200},
		"/failing":   {`{}`, "no idea\n", 500},
		"/unknown":   {`{}`, "404 page not found\n", 404},
	} {
		status, got, err := post(t, http.DefaultClient, server.URL(path), tc.body)
		if err != nil || status != tc.status || got != tc.want {
			t.Errorf("%s: got %d %q, %v, want %d %q", path, status, got, err, tc.status, tc.want)
		}
	}
	if status, _, err := post(t, http.DefaultClient, server.URL("/composite"), "nonsense"); err != nil || status != http.StatusBadRequest {
		t.Errorf("nonsense: got %d, %v, want 400", status, err)
	}
}

func TestRequestsAreRecordedInOrder(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(hooktest.JSON(1), hooktest.JSON(2)))
	var responses, bodies []string
	for _, body := range []string{"a", "b", "c"} {
		_, response, err := post(t, http.DefaultClient, server.URL("/sync"), body)
		if err != nil {
			t.Fatal(err)
		}
		responses = append(responses, response)
	}
	for _, r := range server.Await(t.Context(), "/sync", 3) {
		bodies = append(bodies, string(r.Body))
	}
	if diff := cmp.Diff([]string{"1", "2", "2"}, responses); diff != "" {
		t.Errorf("responses of the sequence (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, bodies); diff != "" {
		t.Errorf("recorded bodies (-want +got):\n%s", diff)
	}
	if n := len(server.Requests("/other")); n != 0 {
		t.Errorf("%d requests of another path", n)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	server := hooktest.NewServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := server.Await(ctx, "/sync", 1); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestCertificates(t *testing.T) {
	trusting := func(s *hooktest.Server, certificates ...tls.Certificate) *http.Client {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(s.CABundle())) {
			t.Fatal("the CA bundle holds no certificate")
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: certificates}}}
	}
	good, expired := hooktest.NewServer(t, hooktest.WithTLS()), hooktest.NewServer(t, hooktest.WithExpiredCertificate())
	other, mutual := hooktest.NewServer(t, hooktest.WithCertificateFor("hook.shop")), hooktest.NewServer(t, hooktest.WithClientCertificates())
	pair, err := tls.X509KeyPair(mutual.ClientCertificate())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		server *hooktest.Server
		client *http.Client
		ok     bool
	}{
		"Trusted":                  {good, trusting(good), true},
		"NotTrusted":               {good, trusting(expired), false},
		"Expired":                  {expired, trusting(expired), false},
		"OtherHost":                {other, trusting(other), false},
		"WithClientCertificate":    {mutual, trusting(mutual, pair), true},
		"WithoutClientCertificate": {mutual, trusting(mutual), false},
	} {
		if _, _, err := post(t, tc.client, tc.server.URL("/"), ""); (err == nil) != tc.ok {
			t.Errorf("%s: got %v, want success: %v", name, err, tc.ok)
		}
	}
}

func TestHugeResponsesAreValid(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Huge(1<<20))
	_, response, err := post(t, http.DefaultClient, server.URL("/sync"), "")
	if err != nil || len(response) < 1<<20 || !json.Valid([]byte(response)) {
		t.Errorf("got %d bytes, valid: %v, %v", len(response), json.Valid([]byte(response)), err)
	}
}

// firstUID is that of the first object in a trial, which is the parent.
const firstUID = "00000000-0000-4000-8000-000000000001"

// declared are the kinds of children, to a trial and to the server.
func declared() ([]v1alpha1.ResourceRule, children.Rules) {
	scaler := schema.GroupVersion{Group: "autoscaling", Version: "v1"}
	rules := []v1alpha1.ResourceRule{
		{APIVersion: "v1", Resource: "configmaps"},
		{APIVersion: "v1", Resource: "namespaces"},
		{APIVersion: "autoscaling/v1", Resource: "horizontalpodautoscalers"},
	}
	return rules, children.NewRules([]children.Rule{
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespaced: true},
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}},
		{Kind: scaler.WithKind("HorizontalPodAutoscaler"), Resource: scaler.WithResource("horizontalpodautoscalers"), Namespaced: true},
	})
}

// trialOf is a trial of a controller of these kinds, whose hook returns some children.
func trialOf(decorator bool, namespace, selector, list string) hooktest.Trial {
	rules, _ := declared()
	tr := hooktest.Trial{
		Kinds: map[string]string{
			"configmaps": "ConfigMap", "namespaces": "Namespace", "horizontalpodautoscalers": "HorizontalPodAutoscaler",
		},
		Namespaced: map[string]bool{"configmaps": true, "namespaces": false, "horizontalpodautoscalers": true},
		Parent:     object(map[string]any{"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": map[string]any{"namespace": namespace, "name": "a"}}),
	}
	if decorator {
		tr.Sync = hooktest.Body("application/json", `{"attachments":[`+list+`]}`)
		tr.Decorator = &v1alpha1.DecoratorController{}
		for _, rule := range rules {
			tr.Decorator.Spec.Attachments = append(tr.Decorator.Spec.Attachments, v1alpha1.DecoratorControllerAttachmentRule{ResourceRule: rule})
		}
		return tr
	}
	tr.Sync = hooktest.Body("application/json", `{"children":[`+list+`]}`)
	tr.Composite = &v1alpha1.CompositeController{Spec: v1alpha1.CompositeControllerSpec{GenerateSelector: new(selector == "")}}
	for _, rule := range rules {
		tr.Composite.Spec.ChildResources = append(tr.Composite.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule})
	}
	if selector != "" {
		tr.Parent.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": selector}}}
	}
	return tr
}

// scopeOf is what the server knows of the same parent.
func scopeOf(decorator bool, namespace, selector string) children.Scope {
	scope := children.Scope{Namespace: namespace}
	switch {
	case decorator:
	case selector != "":
		scope.Selector = labels.SelectorFromSet(labels.Set{"app": selector})
	default:
		scope.Labels = map[string]string{"controller-uid": firstUID}
		scope.Selector = labels.SelectorFromSet(scope.Labels)
	}
	return scope
}

// TestTrialAcceptsWhatTheServerAccepts holds what a trial says of children against what the server does.
func TestTrialAcceptsWhatTheServerAccepts(t *testing.T) {
	t.Parallel()
	configMap := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `}}`
	}
	for name, tc := range map[string]struct {
		decorator           bool
		namespace, selector string
		list                string
		// want is in the error, empty if there is none.
		want string
	}{
		"a child":                              {false, "sea", "", configMap(`"name":"a"`), ""},
		"a label that is a number":             {false, "sea", "", configMap(`"name":"a","labels":{"replicas":3}`), `the value 3 of "replicas" in its labels is not a string`},
		"a label that is null":                 {false, "sea", "", configMap(`"name":"a","labels":{"a":null}`), "in its labels is not a string"},
		"labels that are a list":               {false, "sea", "", configMap(`"name":"a","labels":[]`), "labels are not an object"},
		"a label of an attachment is a number": {true, "sea", "", configMap(`"name":"a","labels":{"replicas":3}`), "in its labels is not a string"},
		"a label of an attachment is null":     {true, "sea", "", configMap(`"name":"a","labels":{"a":null}`), ""},
		"an annotation that is a number":       {true, "sea", "", configMap(`"name":"a","annotations":{"a":1}`), "in its annotations is not a string"},
		"an annotation that is null":           {false, "sea", "", configMap(`"name":"a","annotations":{"a":null}`), ""},
		"the label of another parent":          {false, "sea", "", configMap(`"name":"a","labels":{"controller-uid":"other"}`), "do not match the parent's selector"},
		"its label":                            {false, "sea", "", configMap(`"name":"a","labels":{"controller-uid":"` + firstUID + `"}`), ""},
		"labels of the selector":               {false, "sea", "x", configMap(`"name":"a","labels":{"app":"x","b":"c"}`), ""},
		"no labels of the selector":            {false, "sea", "x", configMap(`"name":"a"`), "do not match the parent's selector"},
		"a name with a slash":                  {false, "sea", "", configMap(`"name":"a/b"`), `has the name "a/b", which may not contain '/'`},
		"no name":                              {false, "sea", "", configMap(`"generateName":"a"`), "has no name"},
		"no metadata":                          {false, "sea", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":1}`, "has no name"},
		"no apiVersion":                        {false, "sea", "", `{"kind":"ConfigMap","metadata":{"name":"a"}}`, "is not group/version"},
		"no version":                           {false, "sea", "", `{"apiVersion":"autoscaling/","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`, "is not group/version"},
		"another version of the kind":          {false, "sea", "", `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`, ""},
		"a kind of another group":              {false, "sea", "", `{"apiVersion":"example.com/v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "which the controller does not declare"},
		"the same in two versions": {
			false, "sea", "", `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}},{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`,
			"is there twice",
		},
		"a cluster-scoped child of a namespaced parent":     {false, "sea", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "is cluster-scoped"},
		"a cluster-scoped child of a cluster-scoped parent": {false, "", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, ""},
		"a child without namespace of such a parent":        {false, "", "", configMap(`"name":"a"`), "has no namespace, and neither has its parent"},
		"a child in a namespace of such a parent":           {false, "", "", configMap(`"name":"a","namespace":"sea"`), ""},
		"a child in another namespace":                      {false, "sea", "", configMap(`"name":"a","namespace":"land"`), "in another namespace"},
		"a namespace that is a number":                      {false, "sea", "", configMap(`"name":"a","namespace":1`), "a namespace that is not a string"},
		"a namespace with a slash":                          {false, "", "", configMap(`"name":"a","namespace":"a/b"`), `has the namespace "a/b"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := trialOf(tc.decorator, tc.namespace, tc.selector, tc.list).Play(t.Context(), []hooktest.Step{{Do: hooktest.Call}})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the trial says %v, want %q", err, tc.want)
			}
			var list []map[string]any
			if err := json.Unmarshal([]byte("["+tc.list+"]"), &list); err != nil {
				t.Fatal(err)
			}
			_, rules := declared()
			if _, _, err := children.Validate(scopeOf(tc.decorator, tc.namespace, tc.selector), rules, list); (err == nil) != (tc.want == "") {
				t.Errorf("the server says %v, want an error: %v", err, tc.want != "")
			}
		})
	}
}

// A child is shown under the key of its rule, in whichever version the hook returns it.
func TestAChildInAnotherVersionThanThatOfItsRuleIsShown(t *testing.T) {
	t.Parallel()
	tr := trialOf(false, "sea", "", "")
	seen := 0
	tr.Sync = hooktest.Composite(func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		seen = len(r.Children.OfType("autoscaling/v1", "HorizontalPodAutoscaler"))
		return &hook.CompositeResponse{Children: []*hook.Object{object(map[string]any{
			"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "a"},
		})}}, nil
	})
	if err := tr.Play(t.Context(), []hooktest.Step{{Do: hooktest.Rest}}); err != nil || seen != 1 {
		t.Errorf("error %v, and the hook has seen %d children, want 1", err, seen)
	}
}
