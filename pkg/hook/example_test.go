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
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// greet is a sync hook: it wants one ConfigMap for each parent, and shows in the parent's status whether it exists.
func greet(request *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	who, _, err := unstructured.NestedString(request.Parent.Object, "spec", "who")
	if err != nil {
		return nil, fmt.Errorf("reading spec.who: %w", err)
	}
	child, err := hook.FromTyped(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: request.Parent.GetName()},
		Data:       map[string]string{"text": "Hello " + who},
	})
	if err != nil {
		return nil, err
	}
	exists := request.Children.Find("v1", "ConfigMap", request.Parent.GetNamespace(), request.Parent.GetName()) != nil
	return &hook.CompositeResponse{Status: map[string]any{"greeted": exists}, Children: []*hook.Object{child}}, nil
}

// A hook is an HTTP handler that decodes a request and encodes a response.
func Example() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request hook.CompositeRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response, err := greet(&request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		encoded, err := json.Marshal(response)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encoded)
	})

	// The server posts such a body.
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/sync", strings.NewReader(`{
		"parent": {"apiVersion":"example.com/v1","kind":"Greeting","metadata":{"namespace":"shop","name":"a"},"spec":{"who":"Ada"}},
		"children": {"ConfigMap.v1": {}}, "related": {}, "finalizing": false
	}`)))
	fmt.Println(recorder.Body)
	// Output: {"status":{"greeted":false},"children":[{"apiVersion":"v1","data":{"text":"Hello Ada"},"kind":"ConfigMap","metadata":{"name":"a"}}]}
}

// Observed objects are found by their kind, and turned into typed ones by the converter of apimachinery.
func ExampleObjectMap_OfType() {
	var request hook.CompositeRequest
	if err := json.Unmarshal([]byte(`{"children": {"ConfigMap.v1": {
		"a": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"text": "Hello Ada"}}
	}}}`), &request); err != nil {
		panic(err)
	}
	for name, object := range request.Children.OfType("v1", "ConfigMap") {
		var configMap corev1.ConfigMap
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configMap); err != nil {
			panic(err)
		}
		fmt.Println(name, configMap.Data["text"])
	}
	// Output: a Hello Ada
}

// A DecoratorController sets labels on its target, and removes those whose value is nil.
func ExampleDecoratorResponse() {
	team := "shop"
	encoded, err := json.Marshal(hook.DecoratorResponse{Labels: map[string]*string{"team": &team, "owner": nil}})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(encoded))
	// Output: {"labels":{"owner":null,"team":"shop"},"status":null,"attachments":null}
}

// A customize hook selects the objects that the other hooks are shown beside the children.
func ExampleRelatedResourceRule() {
	rule := hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps", Namespace: "shop", Names: []string{"settings"}}
	fmt.Println(rule.Validate())
	rule.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	fmt.Println(rule.Validate())
	// Output:
	// <nil>
	// names and labelSelector exclude each other; remove one of them
}
