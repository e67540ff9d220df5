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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

// finalize is a finalize hook that is done when no child is left.
func finalize(request *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	return &hook.CompositeResponse{Finalized: len(request.Children.OfType("v1", "Pod")) == 0}, nil
}

// A hook is tested without a cluster: Composite makes a handler of a function, and a test posts what the server would.
func ExampleComposite() {
	handler := hooktest.Composite(finalize)
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	for _, pods := range []map[string]*hook.Object{{"web": pod}, {}} {
		body, err := json.Marshal(hook.CompositeRequest{Children: hook.ObjectMap{"Pod.v1": pods}, Finalizing: true})
		if err != nil {
			panic(err)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/finalize", bytes.NewReader(body)))
		fmt.Println(recorder.Code, recorder.Body)
	}
	// Output:
	// 200 {"children":null}
	// 200 {"children":null,"finalized":true}
}

// A server stands in for a hook in the test of a controller, and records the requests.
func ExampleServer() { //nolint:testableexamples // What it shows needs a test and a controller.
	test := func(t *testing.T) {
		server := hooktest.NewServer(t)
		server.Handle("/sync", hooktest.Sequence(
			hooktest.Status(http.StatusInternalServerError, "not yet"), // the first call
			hooktest.JSON(hook.CompositeResponse{}),                    // all further ones
		))
		// Create a CompositeController whose sync hook is at server.URL("/sync"), and a parent. Then:
		for _, request := range server.Await(t.Context(), "/sync", 2) {
			t.Logf("%s %s", request.Method, request.Body)
		}
	}
	_ = test // go test runs it as TestController.
}

// A trial plays histories to a hook: random ones with Run, which tests use, or a given one with Play. [hooktest.Remote] makes a handler
// of a hook that runs somewhere.
func ExampleTrial() {
	greeting := &hook.Object{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": map[string]any{"namespace": "shop", "name": "a"},
	}}
	trial := hooktest.Trial{
		Composite: &v1alpha1.CompositeController{Spec: v1alpha1.CompositeControllerSpec{
			GenerateSelector: new(true),
			ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}},
			},
		}},
		Kinds:  map[string]string{"configmaps": "ConfigMap"},
		Parent: greeting,
		// This hook wants a child as long as there is none.
		Sync: hooktest.Composite(func(request *hook.CompositeRequest) (*hook.CompositeResponse, error) {
			if len(request.Children.OfType("v1", "ConfigMap")) > 0 {
				return &hook.CompositeResponse{}, nil
			}
			child := &hook.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}
			return &hook.CompositeResponse{Children: []*hook.Object{child}}, nil
		}),
		Rounds: 10,
	}
	fmt.Println(trial.Play(context.Background(), []hooktest.Step{{Do: hooktest.Rest}}))
	// Output: rest: the hook does not come to rest within 10 calls; the last one still changes that ConfigMap shop/a exists
}

// Decorator makes a handler of the function of a DecoratorController's hook. A test of the handler sees what the server would.
func ExampleDecorator() {
	handler := hooktest.Decorator(func(request *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		team := request.Object.GetNamespace()
		return &hook.DecoratorResponse{Labels: map[string]*string{"team": &team}}, nil
	})
	body := `{"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web"}}}`
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/sync", bytes.NewBufferString(body)))
	fmt.Println(recorder.Body)
	// Output: {"labels":{"team":"shop"},"status":null,"attachments":null}
}
