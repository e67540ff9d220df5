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

package hook

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CustomizeRequest is the body that the customize hook of either kind of controller gets.
type CustomizeRequest struct {
	// Controller is the CompositeController or DecoratorController that calls. Its status is always empty here.
	Controller *Object `json:"controller"`
	// Parent is the observed parent of a CompositeController, or the observed target of a DecoratorController.
	Parent *Object `json:"parent"`
}

// CustomizeResponse is the response of the customize hook.
type CustomizeResponse struct {
	// RelatedResources select the objects that the sync and finalize hooks see besides children. A change of one of them
	// calls the hook again. Absent, null and [] all mean none.
	RelatedResources []RelatedResourceRule `json:"relatedResources"`
}

// RelatedResourceRule selects objects of one type (docs/reference/contract.md#s16.2): by label, by namespace and name, or by the labels of
// their namespace. Names exclude both selectors, and namespace excludes namespaceSelector. A rule without any of them
// selects all objects of the type.
//
// With a namespaced parent, a v1 rule of a namespaced type selects in the parent's namespace, but for one with names and without a namespace,
// which are looked up in all namespaces; a v2 rule is not restricted, and neither are rules of cluster-scoped parents.
type RelatedResourceRule struct {
	// APIVersion of the type, for example v1 or apps/v1. Required.
	APIVersion string `json:"apiVersion"`
	// Resource is the lower-case plural name of the type, for example configmaps. Required.
	Resource string `json:"resource"`
	// LabelSelector selects objects by their labels. Absent or empty, it selects all.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// NamespaceSelector selects objects by the labels of their namespace. The type must be namespaced.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Namespace restricts the rule to one namespace. Empty, it does not restrict. It is ignored for cluster-scoped types.
	Namespace string `json:"namespace,omitempty"`
	// Names restricts the rule to objects of these names. Empty, it does not restrict.
	Names []string `json:"names,omitempty"`
}

// Validate checks what can be checked of a rule without knowing the parent or the cluster: that it names a type and that
// its fields may stand together (docs/reference/contract.md#s16.2). What depends on the version of the hook and on the scopes of the parent
// and the type is up to the caller.
func (r *RelatedResourceRule) Validate() error {
	switch {
	case r.APIVersion == "":
		return errors.New("apiVersion is missing")
	case r.Resource == "":
		return errors.New("resource is missing")
	case len(r.Names) > 0 && r.LabelSelector != nil:
		return errors.New("names and labelSelector exclude each other; remove one of them")
	case len(r.Names) > 0 && r.NamespaceSelector != nil:
		return errors.New("names and namespaceSelector exclude each other; remove one of them")
	case r.Namespace != "" && r.NamespaceSelector != nil:
		return errors.New("namespace and namespaceSelector exclude each other; remove one of them")
	}
	for _, selector := range []*metav1.LabelSelector{r.LabelSelector, r.NamespaceSelector} {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			return err
		}
	}
	return nil
}
