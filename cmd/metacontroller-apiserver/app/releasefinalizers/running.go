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

package releasefinalizers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// running returns the controllers of the objects that the cluster serves, so that somebody runs them. There are none while no server is
// available, and it is an error when that is not known.
func (c *cluster) running(ctx context.Context, found []object) (map[controllerobject.Reference]bool, error) {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	available, err := available(ctx, client)
	if err != nil || !available {
		return nil, err
	}
	there := map[controllerobject.Reference]bool{}
	for i := range found {
		controller := found[i].controller
		if _, asked := there[controller]; asked {
			continue
		}
		resource := v1alpha1.SchemeGroupVersion.WithResource(string(controller.Kind) + "s")
		_, err := client.Resource(resource).Get(ctx, controller.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("looking whether %s/%s exists: %w", controller.Kind, controller.Name, err)
		}
		there[controller] = err == nil
	}
	return there, nil
}

// available reports whether the cluster reaches a server of the group, or serves it by CustomResourceDefinitions.
func available(ctx context.Context, client dynamic.Interface) (bool, error) {
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	service, err := client.Resource(services).Get(ctx, registration.APIServiceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading APIService %s: %w", registration.APIServiceName, err)
	}
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Available" {
			return fields["status"] == "True", nil
		}
	}
	return false, nil
}
