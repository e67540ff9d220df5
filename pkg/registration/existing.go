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
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/artifacts"
)

// automanagedLabel is on APIServices that kube-apiserver itself makes for CustomResourceDefinitions, and overwrites.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// ByServer reports whether an API server such as this one serves the group, by the resources that the cluster has in it: no definition has the
// subresource plan.
func ByServer(resources []metav1.APIResource) bool {
	return slices.ContainsFunc(resources, func(r metav1.APIResource) bool { return strings.HasSuffix(r.Name, "/plan") })
}

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
		_, err := client.Resource(resources[kindDefinition]).Get(ctx, name, metav1.GetOptions{})
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
	apiService, err := readAPIService(ctx, client)
	if err == nil && apiService != nil {
		err = checkOwn(apiService, namespace, serviceName)
	}
	if err != nil {
		return err
	}
	return checkExistingService(ctx, client)
}

// readAPIService returns the APIService of the group, nil if there is none.
func readAPIService(ctx context.Context, client dynamic.Interface) (*unstructured.Unstructured, error) {
	apiService, err := client.Resource(resources[kindAPIService]).Get(ctx, APIServiceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", APIServiceName, err)
	}
	return apiService, nil
}

// checkExistingService refuses clusters with a Service that is not ours to change.
func checkExistingService(ctx context.Context, client dynamic.Interface) error {
	service, err := client.Resource(resources[kindService]).Namespace(namespace).Get(ctx, serviceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Service %s/%s: %w", namespace, serviceName, err)
	}
	return checkService(service)
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
	apiService, err := readAPIService(ctx, client)
	if err != nil || apiService == nil {
		return e, err
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

// Available reports whether the cluster reaches who serves the group, which is nobody without a registration.
func Available(ctx context.Context, client dynamic.Interface) (bool, error) {
	apiService, err := readAPIService(ctx, client)
	return apiService != nil && conditionOf(apiService).available, err
}

// Kinds that are treated in ways of their own.
const (
	kindNamespace   = "Namespace"
	kindClusterRole = "ClusterRole"
	kindRole        = "Role"
	kindAPIService  = "APIService"
	kindService     = "Service"
	kindDefinition  = "CustomResourceDefinition"
)

// resources are those of a registration. There are so few that they are not looked up in the cluster.
var resources = map[string]schema.GroupVersionResource{
	kindNamespace:   corev1.SchemeGroupVersion.WithResource("namespaces"),
	kindService:     corev1.SchemeGroupVersion.WithResource("services"),
	kindClusterRole: rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
	kindRole:        rbacv1.SchemeGroupVersion.WithResource("roles"),
	kindDefinition:  apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
	kindAPIService:  {Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

// resourceFor returns the client for the kind and namespace of a manifest.
func resourceFor(client dynamic.Interface, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	resource, ok := resources[o.GetKind()]
	if !ok {
		return nil, fmt.Errorf("kind %s is not part of a registration", o.GetKind())
	}
	return client.Resource(resource).Namespace(o.GetNamespace()), nil
}

// files are the manifests of a registration from outside, in the order in which they are applied. The ServiceAccount and its
// bindings are left out: the server acts as the user of its kubeconfig, and rights that are not used are a risk.
func files() []string {
	return []string{
		"namespace.yaml", "clusterrole-apiserver.yaml", "clusterrole-controllers.yaml", "clusterroles-users.yaml",
		"role-leader-election.yaml", "service.yaml", "apiservice.yaml",
	}
}

// manifests returns the objects of a registration.
func manifests(o Options) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range files() {
		read, err := readManifest(name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, read...)
	}
	for _, object := range objects {
		var err error
		switch object.GetKind() {
		case kindService:
			err = pointService(object, o)
		case kindAPIService:
			err = errors.Join(
				unstructured.SetNestedField(object.Object, int64(o.Port), "spec", "service", "port"),
				setBundle(object, o.CABundle),
			)
		}
		if err != nil {
			return nil, fmt.Errorf("preparing %s: %w", describe(object), err)
		}
	}
	return objects, nil
}

// pointService makes the Service a name for the host. The aggregation layer dials that, and the port of the APIService.
func pointService(service *unstructured.Unstructured, o Options) error {
	return unstructured.SetNestedMap(service.Object, map[string]any{
		"type": "ExternalName", "externalName": o.Host,
		"ports": []any{map[string]any{"name": "https", "port": int64(o.Port), "protocol": "TCP"}},
	}, "spec")
}

// setBundle sets the authority of an APIService.
func setBundle(apiService *unstructured.Unstructured, bundle []byte) error {
	return unstructured.SetNestedField(apiService.Object, base64.StdEncoding.EncodeToString(bundle), "spec", "caBundle")
}

// readManifest returns the objects in one file of the base.
func readManifest(name string) ([]*unstructured.Unstructured, error) {
	f, err := artifacts.Base.Open("base/" + name)
	if err != nil {
		return nil, fmt.Errorf("reading manifest: %w", err)
	}
	defer func() { _ = f.Close() }()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading manifest %s: %w", name, err)
		}
		// A comment before the first separator is an empty document.
		if len(raw.Raw) == 0 {
			continue
		}
		object := &unstructured.Unstructured{}
		// Numbers become those that the cluster's objects have, with which they are compared.
		if err := utiljson.Unmarshal(raw.Raw, &object.Object); err != nil {
			return nil, fmt.Errorf("reading manifest %s: %w", name, err)
		}
		objects = append(objects, object)
	}
}

// describe names an object for people.
func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() != "" {
		return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}
