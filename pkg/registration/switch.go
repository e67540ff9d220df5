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
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// Target is a server to which a registration leads.
type Target struct {
	// Service is that of the server, and Port its port.
	Service types.NamespacedName
	Port    int
	// CABundle is the authority of the server's certificate, PEM.
	CABundle []byte
}

// set has an APIService lead to the target.
func (t Target) set(apiService *unstructured.Unstructured) error {
	return errors.Join(
		setService(apiService, t.Service.Namespace, t.Service.Name),
		unstructured.SetNestedField(apiService.Object, int64(t.Port), "spec", "service", "port"),
		setBundle(apiService, t.CABundle),
	)
}

// setService has an APIService lead to a Service.
func setService(apiService *unstructured.Unstructured, namespace, name string) error {
	return errors.Join(
		unstructured.SetNestedField(apiService.Object, namespace, "spec", "service", "namespace"),
		unstructured.SetNestedField(apiService.Object, name, "spec", "service", "name"),
	)
}

// RegisterOther registers the server for a group and version of its own, beside the one that CustomResourceDefinitions may serve.
func RegisterOther(ctx context.Context, config *rest.Config, group, version string, t Target) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	objects, err := readManifest("apiservice.yaml")
	if err != nil {
		return err
	}
	other := objects[0]
	other.SetName(version + "." + group)
	err = errors.Join(
		t.set(other),
		unstructured.SetNestedField(other.Object, group, "spec", "group"),
		unstructured.SetNestedField(other.Object, version, "spec", "version"),
		// Nobody who looks for a kind by its name shall find it here.
		unstructured.SetNestedField(other.Object, int64(1), "spec", "groupPriorityMinimum"),
	)
	if err != nil {
		return fmt.Errorf("preparing %s: %w", describe(other), err)
	}
	return apply(ctx, client, other, FieldManager)
}

// UnregisterOther deletes what RegisterOther made. It is no error if that is not there.
func UnregisterOther(ctx context.Context, config *rest.Config, group, version string) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	err = client.Resource(resources[kindAPIService]).Delete(ctx, version+"."+group, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting APIService %s.%s: %w", version, group, err)
	}
	return nil
}

// TakeOver has the server serve the group in place of CustomResourceDefinitions, by one update. These stay, with their objects, hidden. It is no
// error if the registration is the server's already; one of another server is an *OccupiedError.
func TakeOver(ctx context.Context, config *rest.Config, t Target) error {
	// The cluster writes its status, which is a conflict.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return takeOver(ctx, config, t) })
}

func takeOver(ctx context.Context, config *rest.Config, t Target) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	existing, err := client.Resource(resources[kindAPIService]).Get(ctx, APIServiceName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading APIService %s: %w", APIServiceName, err)
	}
	if existing.GetLabels()[automanagedLabel] == "" {
		return checkOwn(existing, t.Service.Namespace, t.Service.Name)
	}
	objects, err := readManifest("apiservice.yaml")
	if err != nil {
		return err
	}
	wanted := objects[0]
	if err := t.set(wanted); err != nil {
		return fmt.Errorf("preparing %s: %w", describe(wanted), err)
	}
	return replace(ctx, client, existing, wanted)
}

// GiveBack has CustomResourceDefinitions serve the group in place of a server, by one update. The kube-apiserver manages the registration from then
// on. It is no error if it does already.
func GiveBack(ctx context.Context, config *rest.Config, service types.NamespacedName) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return giveBack(ctx, config, service) })
}

func giveBack(ctx context.Context, config *rest.Config, service types.NamespacedName) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	existing, err := readAPIService(ctx, client)
	if err != nil || existing == nil || existing.GetLabels()[automanagedLabel] != "" {
		return err // If there is none, the kube-apiserver makes it.
	}
	if err := checkOwn(existing, service.Namespace, service.Name); err != nil {
		return err
	}
	// These are the values that the kube-apiserver gives it.
	wanted := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": group, "version": version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(100),
	}}}
	wanted.SetLabels(map[string]string{automanagedLabel: "true"})
	return replace(ctx, client, existing, wanted)
}

// replace gives an APIService the labels and the spec of another one. What changed it meanwhile is a conflict.
func replace(ctx context.Context, client dynamic.Interface, existing, wanted *unstructured.Unstructured) error {
	existing.SetLabels(wanted.GetLabels())
	existing.SetOwnerReferences(nil)
	existing.Object["spec"] = wanted.Object["spec"]
	_, err := client.Resource(resources[kindAPIService]).Update(ctx, existing, metav1.UpdateOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("updating APIService %s: %w", APIServiceName, err)
	}
	return nil
}
