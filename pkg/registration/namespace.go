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
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// podSecurityLabel was put on the namespace by earlier versions, and keeps out the Pods of others.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// ensureNamespace creates the namespace. One that exists may be that of others too, and is not changed.
func ensureNamespace(ctx context.Context, client dynamic.Interface, namespace *unstructured.Unstructured, progress io.Writer) error {
	_, err := client.Resource(namespaces()).Create(ctx, namespace, metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case err == nil:
		progressf(progress, "created %s", describe(namespace))
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating %s: %w", describe(namespace), err)
	}
	existing, err := client.Resource(namespaces()).Get(ctx, namespace.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading %s: %w", describe(namespace), err)
	}
	progressf(progress, "%s exists and is not changed", describe(namespace))
	if level := existing.GetLabels()[podSecurityLabel]; level != "" && appliedHere(existing) {
		progressf(progress, "its label %s=%s is that of an earlier register, and keeps Pods out that need more; take it off with\n"+
			"  kubectl label namespace %s %s-", podSecurityLabel, level, namespace.GetName(), podSecurityLabel)
	}
	return nil
}

// releaseNamespace takes off the namespace what earlier versions applied to it: their labels. The namespace stays, because others
// may use it.
func releaseNamespace(ctx context.Context, client dynamic.Interface, name string, out io.Writer) error {
	existing, err := client.Resource(namespaces()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	if !appliedHere(existing) {
		return nil
	}
	nothing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kindNamespace,
		// With the uid nothing is created, should the namespace be deleted meanwhile.
		"metadata": map[string]any{"name": name, "uid": string(existing.GetUID())},
	}}
	if err := apply(ctx, client, nothing, FieldManager); err != nil {
		return err
	}
	progressf(out, "took the labels of register off Namespace %s", name)
	return nil
}

// appliedHere reports whether this package owns fields of an object by server-side apply.
func appliedHere(o *unstructured.Unstructured) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return true
		}
	}
	return false
}
