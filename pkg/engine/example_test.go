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

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/engine"
)

type museum struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Replicas int32 `json:"replicas"`
	} `json:"spec"`
}

type museumStatus struct {
	Replicas int32 `json:"replicas"`
}

// deploy desires a Deployment for each Museum.
func deploy(_ context.Context, m *museum, request *engine.CompositeRequest) (*engine.Desired[museumStatus], error) {
	var status museumStatus
	observed, err := engine.As[appsv1.Deployment](request.Children.Find("apps/v1", "Deployment", m.Namespace, m.Name))
	if err == nil && observed != nil {
		status.Replicas = observed.Status.Replicas
	}
	labels := map[string]string{"museum": m.Name}
	return &engine.Desired[museumStatus]{Status: status, Children: []runtime.Object{&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &m.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29"}}},
			},
		},
	}}}, err
}

var museums = &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "museums"}, Spec: v1alpha1.CompositeControllerSpec{
	ParentResource: v1alpha1.CompositeControllerParentResourceRule{
		ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "museums"},
	},
	ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{
		ResourceRule:   v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"},
		UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace},
	}},
	GenerateSelector: new(true), // Children are found by a label that the engine gives them.
}}

// This is a whole operator. docs/how-to/in-go.md runs it.
func Example() { //nolint:testableexamples // It needs a cluster, and runs until it is stopped.
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	operator, err := engine.New(config, engine.Options{Composites: []engine.Composite{{Controller: museums, Sync: engine.Typed(deploy)}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := operator.Run(ctx); err != nil {
		log.Print(err)
	}
}

// A hook is a function of its request: a test calls it.
func ExampleTyped() {
	var request engine.CompositeRequest
	if err := json.Unmarshal([]byte(`{
		"parent": {"apiVersion": "example.com/v1", "kind": "Museum", "metadata": {"name": "harbour", "namespace": "default"}, "spec": {"replicas": 3}},
		"children": {"Deployment.apps/v1": {"default/harbour": {
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "harbour", "namespace": "default"}, "status": {"replicas": 2}}}}
	}`), &request); err != nil {
		panic(err)
	}
	response, err := engine.Typed(deploy)(context.Background(), &request)
	fmt.Println(response.Status, len(response.Children), err)
	// Output: map[replicas:2] 1 <nil>
}
