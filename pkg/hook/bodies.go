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

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// CompositeRequest is the body that the sync and finalize hooks of a CompositeController get. All its fields are always
// present.
type CompositeRequest struct {
	// Controller is the CompositeController that calls. Its status is always empty here.
	Controller *v1alpha1.CompositeController `json:"controller"`
	// Parent is the observed parent, as the cluster stores it.
	Parent *Object `json:"parent"`
	// Children are the observed children that the parent controls, with an entry for each of spec.childResources that the
	// cluster serves.
	Children ObjectMap `json:"children"`
	// Related are the objects that the customize hook selects, with an entry for each of its rules. Without a customize
	// hook it is empty.
	Related ObjectMap `json:"related"`
	// Finalizing is true when the finalize hook is called, and false for the sync hook.
	Finalizing bool `json:"finalizing"`
}

// CompositeResponse is the response of the sync and finalize hooks of a CompositeController.
type CompositeResponse struct {
	// Status replaces the parent's status as a whole. The server sets observedGeneration in it. Absent, null
	// or {}, the new status holds observedGeneration only; a parent of a kind of Kubernetes' own, such as Deployment, keeps its
	// status then, and also when the status has a field that the kind does not have.
	Status map[string]any `json:"status,omitempty"`
	// Children are all children that shall exist, in their desired state. Observed children that are not listed are deleted:
	// absent, null and [] all mean that none shall exist. Each child needs apiVersion, kind and metadata.name; without
	// metadata.namespace it goes to the parent's namespace. The order matters to rolling updates only. Nil elements and
	// two children of the same kind and name are rejected.
	Children []*Object `json:"children"`
	// ResyncAfterSeconds, when greater than 0, makes the server call again after that many seconds, of which fractions
	// count, even if nothing changed; after a year at the latest. A change calls earlier.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds,omitempty"`
	// Finalized says that nothing is left to clean up. The server then removes the controller's finalizer from the parent.
	// It has no effect when the parent does not carry it.
	Finalized bool `json:"finalized,omitempty"`
}

// DecoratorRequest is the body that the sync and finalize hooks of a DecoratorController get. All its fields are always
// present.
type DecoratorRequest struct {
	// Controller is the DecoratorController that calls. Its status is always empty here.
	Controller *v1alpha1.DecoratorController `json:"controller"`
	// Object is the observed target, as the cluster stores it.
	Object *Object `json:"object"`
	// Attachments are the observed objects that this controller attached to the target, with an entry for each of
	// spec.attachments that the cluster serves.
	Attachments ObjectMap `json:"attachments"`
	// Related are the objects that the customize hook selects, with an entry for each of its rules. Without a customize
	// hook it is empty.
	Related ObjectMap `json:"related"`
	// Finalizing is true when the finalize hook is called, and false for the sync hook.
	Finalizing bool `json:"finalizing"`
}

// DecoratorResponse is the response of the sync and finalize hooks of a DecoratorController.
type DecoratorResponse struct {
	// Labels are set on the target. A null value removes the label; labels that are not mentioned stay as they are.
	Labels map[string]*string `json:"labels,omitempty"`
	// Annotations are set on the target. A null value removes the annotation; annotations that are not mentioned stay as
	// they are.
	Annotations map[string]*string `json:"annotations,omitempty"`
	// Status replaces the target's status as a whole. Absent or null, the status stays as it is; {} empties it, but for
	// kinds of Kubernetes' own, such as Deployment. It is therefore encoded even when it is empty.
	Status map[string]any `json:"status"`
	// Attachments are all attachments that shall exist, in their desired state. Observed attachments that are not listed are
	// deleted: absent, null and [] all mean that none shall exist. Each needs apiVersion, kind and metadata.name; without
	// metadata.namespace it goes to the target's namespace. Nil elements and two attachments of the same kind and name
	// are rejected.
	Attachments []*Object `json:"attachments"`
	// ResyncAfterSeconds, when greater than 0, makes the server call again after that many seconds, of which fractions
	// count, even if nothing changed; after a year at the latest. A change calls earlier.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds,omitempty"`
	// Finalized says that nothing is left to clean up. The server then removes the controller's finalizer from the target.
	// It has no effect when the target does not carry it.
	Finalized bool `json:"finalized,omitempty"`
	// Delete says that the target shall be deleted, after the labels, annotations and status of this response are written.
	// Attachments are left to the garbage collector, or to the finalize hook. It has no effect on a target that is being
	// deleted already.
	Delete bool `json:"delete,omitempty"`
}

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
