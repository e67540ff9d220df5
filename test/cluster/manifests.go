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

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// manager is who applies manifests.
const manager = "tests"

// Apply applies manifests as `kubectl apply --server-side` does, in a tenth of its time, and returns the objects. It is for kinds whose
// plural is an ordinary one.
func (c *Cluster) Apply(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	client := NewClients(t, c.Config(t)).Dynamic
	objects, err := decode(manifests)
	if err != nil {
		t.Fatalf("reading manifests: %v\n%s", err, manifests)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: manager, Force: &force, FieldValidation: metav1.FieldValidationStrict}
	for i, o := range objects {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatalf("writing %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if objects[i], err = resourceOf(client, o).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text, options); err != nil {
			t.Fatalf("applying %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	return objects
}

// ApplyForTest is [Cluster.Apply] for what goes with the test, if it is there until then.
func (c *Cluster) ApplyForTest(t testing.TB, manifests string) {
	t.Helper()
	objects := c.Apply(t, manifests)
	client := NewClients(t, c.Config(t)).Dynamic
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Limit)
		defer cancel()
		for _, o := range objects {
			if err := resourceOf(client, o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("deleting %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	})
}

// decode returns the objects of manifests in YAML.
func decode(manifests string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding the object after %d others: %w", len(objects), err)
		}
		// What is before the first separator may be a comment alone.
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// resourceOf returns the client of an object.
func resourceOf(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return client.Resource(resource).Namespace(o.GetNamespace())
}
