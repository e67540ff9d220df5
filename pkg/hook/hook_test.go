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

package hook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func object(apiVersion, kind, namespace, name string) *hook.Object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func TestTypeKey(t *testing.T) {
	for _, tc := range []struct{ apiVersion, kind, want string }{
		{"v1", "Pod", "Pod.v1"},
		{"apps/v1", "Deployment", "Deployment.apps/v1"},
		{"networking.k8s.io/v1", "Ingress", "Ingress.networking.k8s.io/v1"},
	} {
		if got := hook.TypeKey(tc.apiVersion, tc.kind); got != tc.want {
			t.Errorf("TypeKey(%q, %q) = %q, want %q", tc.apiVersion, tc.kind, got, tc.want)
		}
	}
}

func TestFindWorksInBothVersions(t *testing.T) {
	pod, role := object("v1", "Pod", "shop", "web"), object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "view")
	v1 := hook.ObjectMap{"Pod.v1": {"web": pod}, "Service.v1": {}}
	v2 := hook.ObjectMap{"Pod.v1": {"shop/web": pod}, "ClusterRole.rbac.authorization.k8s.io/v1": {"view": role}}
	for name, tc := range map[string]struct {
		in                                hook.ObjectMap
		apiVersion, kind, namespace, name string
		want                              *hook.Object
	}{
		"V1Name":             {v1, "v1", "Pod", "shop", "web", pod},
		"V2NamespaceAndName": {v2, "v1", "Pod", "shop", "web", pod},
		"ClusterScoped":      {v2, "rbac.authorization.k8s.io/v1", "ClusterRole", "", "view", role},
		"OtherNamespace":     {v1, "v1", "Pod", "base", "web", nil},
		"TypeNotAskedFor":    {v1, "v1", "Secret", "shop", "web", nil},
		"EmptyType":          {v1, "v1", "Service", "shop", "web", nil},
		"NilMap":             {nil, "v1", "Pod", "shop", "web", nil},
	} {
		if got := tc.in.Find(tc.apiVersion, tc.kind, tc.namespace, tc.name); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestResponsesEncodeAsTheProtocolWants(t *testing.T) {
	value := "x"
	for name, tc := range map[string]struct {
		reason   string
		response any
		want     string
	}{
		"CompositeEmpty": {
			"No children is a statement, an absent status is not.",
			hook.CompositeResponse{},
			`{"children":null}`,
		},
		"DecoratorEmpty": {
			"A nil status leaves the target's alone.",
			hook.DecoratorResponse{},
			`{"status":null,"attachments":null}`,
		},
		"DecoratorEmptyStatus": {
			"An empty status empties the target's, so it must not be left out.",
			hook.DecoratorResponse{Status: map[string]any{}, Labels: map[string]*string{"a": nil, "b": &value}},
			`{"labels":{"a":null,"b":"x"},"status":{},"attachments":null}`,
		},
		"Customize": {
			"Absent fields of a rule are left out.",
			hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{{APIVersion: "v1", Resource: "pods"}}},
			`{"relatedResources":[{"apiVersion":"v1","resource":"pods"}]}`,
		},
	} {
		got, err := json.Marshal(tc.response)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, string(got)); diff != "" {
			t.Errorf("%s: %s\n(-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestRelatedResourceRuleValidate(t *testing.T) {
	all := &metav1.LabelSelector{}
	for name, tc := range map[string]struct {
		rule hook.RelatedResourceRule
		want string
	}{
		"TypeOnly":                {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods"}, ""},
		"NamespaceAndNames":       {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", Namespace: "a", Names: []string{"b"}}, ""},
		"NamespaceAndLabels":      {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", Namespace: "a", LabelSelector: all}, ""},
		"BothSelectors":           {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", NamespaceSelector: all, LabelSelector: all}, ""},
		"NoAPIVersion":            {hook.RelatedResourceRule{Resource: "pods"}, "apiVersion is missing"},
		"NoResource":              {hook.RelatedResourceRule{APIVersion: "v1"}, "resource is missing"},
		"NamesAndLabels":          {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", Names: []string{"b"}, LabelSelector: all}, "names and labelSelector exclude each other; remove one of them"},
		"NamesAndNamespaceLabels": {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", Names: []string{"b"}, NamespaceSelector: all}, "names and namespaceSelector exclude each other; remove one of them"},
		"NamespaceTwice":          {hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", Namespace: "a", NamespaceSelector: all}, "namespace and namespaceSelector exclude each other; remove one of them"},
		"BadSelector": {
			hook.RelatedResourceRule{APIVersion: "v1", Resource: "pods", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Has"}}}},
			`"Has" is not a valid label selector operator`,
		},
	} {
		got := ""
		if err := tc.rule.Validate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestFromTypedLeavesOutFieldsThatWereNeverSet(t *testing.T) {
	got, err := hook.FromTyped(&v1alpha1.CompositeController{
		TypeMeta:   metav1.TypeMeta{APIVersion: "metacontroller.k8s.io/v1alpha1", Kind: "CompositeController"},
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: v1alpha1.CompositeControllerSpec{
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
		"metadata": map[string]any{"name": "c"},
		"spec":     map[string]any{"parentResource": map[string]any{"apiVersion": "v1", "resource": "pods"}},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"spec": map[string]any{"templates": []any{map[string]any{"metadata": map[string]any{"creationTimestamp": nil, "name": "t"}}}},
	}}
	got, err = hook.FromTyped(template)
	if err != nil {
		t.Fatal(err)
	}
	wantTemplates := []any{map[string]any{"metadata": map[string]any{"name": "t"}}}
	if diff := cmp.Diff(wantTemplates, got.Object["spec"].(map[string]any)["templates"]); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
}

func TestFromTypedLeavesItsArgumentAsItIs(t *testing.T) {
	content := func() map[string]any {
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "creationTimestamp": nil},
			"spec":   map[string]any{"replicas": 3, "templates": []any{map[string]any{"metadata": map[string]any{"creationTimestamp": nil}}}},
			"status": map[string]any{"readyReplicas": int64(1)},
		}
	}
	argument := &unstructured.Unstructured{Object: content()}
	got, err := hook.FromTyped(argument)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"replicas": int64(3), "templates": []any{map[string]any{"metadata": map[string]any{}}}},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("child (-want +got):\n%s", diff)
	}
	got.SetName("other")
	if diff := cmp.Diff(content(), argument.Object); diff != "" {
		t.Errorf("argument (-want +got):\n%s", diff)
	}
}

func TestFromTypedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		typed runtime.Object
		want  string
	}{
		"Nil":                     {nil, "there is no object to convert: it is nil"},
		"NilPointer":              {(*v1alpha1.CompositeController)(nil), "there is no object to convert: it is nil"},
		"NilUnstructured":         {(*unstructured.Unstructured)(nil), "there is no object to convert: it is nil"},
		"NoKind":                  {&v1alpha1.CompositeController{}, "the object has no apiVersion or no kind; set its TypeMeta"},
		"EmptyUnstructured":       {&unstructured.Unstructured{}, "the object has no apiVersion or no kind; set its TypeMeta"},
		"WhatHasNoEncodingInJSON": {&unstructured.Unstructured{Object: map[string]any{"spec": func() {}}}, "converting *unstructured.Unstructured: json: unsupported type: func()"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := hook.FromTyped(tc.typed); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, error %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestIsRejected(t *testing.T) {
	rejected := &hook.RejectedError{Field: "children[0]", Detail: "has no kind"}
	if got := rejected.Error(); got != "children[0]: has no kind" {
		t.Errorf("message %q", got)
	}
	if !hook.IsRejected(fmt.Errorf("sync hook failed: %w", rejected)) {
		t.Error("a wrapped RejectedError is not recognized")
	}
	if hook.IsRejected(errors.New("other")) || hook.IsRejected(nil) {
		t.Error("another error is taken for a RejectedError")
	}
}
