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

package clusterwarnings

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// declared returns the resources that a CustomResourceDefinition is about to add to a version: who applies a definition and a
// controller together is heard before discovery names the new kind. Nothing if there is no such definition, its names are taken, or it may
// not be read.
func (s *served) declared(ctx context.Context, gv schema.GroupVersion, resource string) (map[string]metav1.APIResource, error) {
	if !strings.Contains(gv.Group, ".") {
		return nil, nil // It is one of Kubernetes.
	}
	name := schema.GroupResource{Group: gv.Group, Resource: resource}.String()
	body, err := s.client.RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(body, &crd); err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == gv.Version && v.Served
	})
	refused := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse
	})
	if i < 0 || refused || crd.DeletionTimestamp != nil {
		return nil, nil
	}
	resources := map[string]metav1.APIResource{
		resource: {Name: resource, Kind: crd.Spec.Names.Kind, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped},
	}
	if sub := crd.Spec.Versions[i].Subresources; sub != nil && sub.Status != nil {
		resources[resource+"/status"] = metav1.APIResource{Name: resource + "/status"}
	}
	return resources, nil
}
