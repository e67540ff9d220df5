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

package registration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// automanagedLabel is on APIServices that kube-apiserver itself makes for CustomResourceDefinitions, and overwrites.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// checkDefinitions refuses clusters in which CustomResourceDefinitions serve the group.
func checkDefinitions(ctx context.Context, client dynamic.Interface) error {
	found, err := findDefinitions(ctx, client)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return &ServedByDefinitionsError{Definitions: found}
	}
	return nil
}

// findDefinitions returns the names of the CustomResourceDefinitions that serve the group.
func findDefinitions(ctx context.Context, client dynamic.Interface) ([]string, error) {
	var found []string
	for _, plural := range []string{"compositecontrollers", "controllerrevisions", "decoratorcontrollers"} {
		name := plural + "." + group
		_, err := client.Resource(definitions()).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("looking for CustomResourceDefinition %s: %w", name, err)
		default:
			found = append(found, name)
		}
	}
	return found, nil
}

// checkExisting refuses clusters with a registration that is not ours to change.
func checkExisting(ctx context.Context, client dynamic.Interface) error {
	apiService, err := client.Resource(apiServices()).Get(ctx, APIServiceName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading APIService %s: %w", APIServiceName, err)
	default:
		if err := checkAPIService(apiService); err != nil {
			return err
		}
	}
	service, err := client.Resource(services()).Namespace(namespace).Get(ctx, serviceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Service %s/%s: %w", namespace, serviceName, err)
	}
	return checkService(service)
}

// checkAPIService refuses an APIService that is not that of Register.
func checkAPIService(apiService *unstructured.Unstructured) error {
	return checkOwn(apiService, namespace, serviceName)
}

// checkOwn refuses an APIService that does not point to a Service.
func checkOwn(apiService *unstructured.Unstructured, namespace, name string) error {
	if apiService.GetLabels()[automanagedLabel] != "" {
		// The definitions are gone by now or were never among the known three; the cluster removes the object with the last one.
		return &ServedByDefinitionsError{}
	}
	foundNamespace, foundName := serviceOf(apiService)
	if foundNamespace != namespace || foundName != name {
		return &OccupiedError{
			Object: "APIService " + APIServiceName,
			Detail: fmt.Sprintf("it points to Service %q in namespace %q; delete it if that server is not wanted any more",
				foundName, foundNamespace),
		}
	}
	return nil
}

// serviceOf returns the Service to which an APIService points.
func serviceOf(apiService *unstructured.Unstructured) (namespace, name string) {
	namespace, _, _ = unstructured.NestedString(apiService.Object, "spec", "service", "namespace")
	name, _, _ = unstructured.NestedString(apiService.Object, "spec", "service", "name")
	return namespace, name
}

func checkService(service *unstructured.Unstructured) error {
	if kind, _, _ := unstructured.NestedString(service.Object, "spec", "type"); kind != "ExternalName" {
		return &OccupiedError{
			Object: describe(service),
			Detail: fmt.Sprintf("it is of type %s and belongs to a server inside of the cluster, which registers itself when it starts: restart its Pod; "+
				"if you want another server in its place, remove that installation first", kind),
		}
	}
	return nil
}

// Existing is what a cluster has for the group, whoever made it.
type Existing struct {
	// Definitions are the names of the CustomResourceDefinitions that serve the group. Empty: there are none.
	Definitions []string
	// Registered says that there is an APIService; the fields below are empty without one.
	Registered bool
	// ByDefinitions says that the kube-apiserver made the APIService for CustomResourceDefinitions.
	ByDefinitions bool
	// ServiceNamespace and ServiceName are those of the Service at which the APIService has the server.
	ServiceNamespace, ServiceName string
	// CABundle is the authority that the APIService trusts, PEM. Empty: those of the kube-apiserver's machine.
	CABundle []byte
	// Available says that the cluster reaches the server. Reason and Message are the cluster's own.
	Available       bool
	Reason, Message string
}

// Inspect returns what a cluster has for the group. It changes nothing.
func Inspect(ctx context.Context, config *rest.Config) (*Existing, error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	e := &Existing{}
	if e.Definitions, err = findDefinitions(ctx, client); err != nil {
		return nil, err
	}
	apiService, err := client.Resource(apiServices()).Get(ctx, APIServiceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return e, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", APIServiceName, err)
	}
	e.Registered = true
	e.ByDefinitions = apiService.GetLabels()[automanagedLabel] != ""
	e.ServiceNamespace, e.ServiceName = serviceOf(apiService)
	if e.CABundle, err = bundleOf(apiService); err != nil {
		return nil, err
	}
	now := conditionOf(apiService)
	e.Available, e.Reason, e.Message = now.available, now.reason, now.message
	return e, nil
}
