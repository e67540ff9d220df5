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

package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ResourceRule names a kind of objects by API version and resource.
type ResourceRule struct {
	// apiVersion is the group and version in which objects are read and sent to hooks, for example apps/v1, or v1 for the
	// core group. Required.
	// +required
	// +k8s:required
	APIVersion string `json:"apiVersion"`
	// resource is the plural name of the resource in lower case, for example deployments, without a subresource. Required.
	// +required
	// +k8s:required
	Resource string `json:"resource"`
}

// GroupVersionResource is what the rule names. The error is that of an API version that cannot be read, and what is returned has none then.
func (r ResourceRule) GroupVersionResource() (schema.GroupVersionResource, error) {
	version, err := schema.ParseGroupVersion(r.APIVersion)
	return version.WithResource(r.Resource), err
}

// ParentCondition is the type of a condition that the server keeps in the status of each parent.
// +enum
// +k8s:enum
type ParentCondition string

const (
	// ParentConditionSynced is True while the last sync of the parent ended well, and nothing holds it back.
	ParentConditionSynced ParentCondition = "Synced"
)

// ChildUpdateMethod says how an existing child is brought to a changed desired state.
// +enum
// +k8s:enum
type ChildUpdateMethod string

const (
	// ChildUpdateOnDelete leaves an existing child alone; the new desired state is used when the child is deleted.
	ChildUpdateOnDelete ChildUpdateMethod = "OnDelete"
	// ChildUpdateRecreate deletes the child and creates it anew.
	ChildUpdateRecreate ChildUpdateMethod = "Recreate"
	// ChildUpdateInPlace updates the child.
	ChildUpdateInPlace ChildUpdateMethod = "InPlace"
	// ChildUpdateRollingRecreate deletes and creates anew, a few children at a time.
	ChildUpdateRollingRecreate ChildUpdateMethod = "RollingRecreate"
	// ChildUpdateRollingInPlace updates, a few children at a time.
	ChildUpdateRollingInPlace ChildUpdateMethod = "RollingInPlace"
)

// ParentDeletion says what becomes of a child when its parent is deleted.
// +enum
// +k8s:enum
type ParentDeletion string

const (
	// ParentDeletionDelete has the garbage collector delete the child.
	ParentDeletionDelete ParentDeletion = "Delete"
	// ParentDeletionRetain takes the parent off the owners of the child, which stays.
	ParentDeletionRetain ParentDeletion = "Retain"
)

// ChildApplyStrategy says who works out what an existing child becomes.
// +enum
// +k8s:enum
type ChildApplyStrategy string

// The apply strategies.
const (
	// ChildApplyMerge merges what the hook returned into the child, with what it returned before, as kubectl apply did.
	ChildApplyMerge ChildApplyStrategy = "Merge"
	// ChildApplyServerSide leaves the merge to the API server (server-side apply): the controller owns the fields that the hook
	// returned, and no others.
	ChildApplyServerSide ChildApplyStrategy = "ServerSide"
)

// ServiceAccountReference names a service account.
type ServiceAccountReference struct {
	// namespace of the service account. Required.
	// +required
	// +k8s:required
	Namespace string `json:"namespace"`
	// name of the service account. Required.
	// +required
	// +k8s:required
	Name string `json:"name"`
}

// ParentReference names a parent of a controller: an object that a CompositeController or DecoratorController handles.
type ParentReference struct {
	// group is the API group of the parent, empty for the core group.
	// +optional
	// +k8s:optional
	Group string `json:"group,omitempty"`
	// resource is the plural name of the parent's resource.
	Resource string `json:"resource"`
	// namespace is that of the parent, empty for one that is cluster-scoped.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the parent.
	Name string `json:"name"`
}

// GroupResource is the resource of the parent.
func (p ParentReference) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: p.Group, Resource: p.Resource}
}

// FullName is the name of the parent with its namespace, as in shop/example; for one that is cluster-scoped, the name alone.
func (p ParentReference) FullName() string { return strings.TrimPrefix(p.Namespace+"/"+p.Name, "/") }

// ParentSelection selects parents of a controller. What is empty selects all of them.
type ParentSelection struct {
	// resource is the resource of the parents, as in things.example.com, for a controller that has parents of several.
	// +optional
	// +k8s:optional
	Resource string `json:"resource,omitempty"`
	// namespace is that of the parents.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the parent.
	// +optional
	// +k8s:optional
	Name string `json:"name,omitempty"`
	// labelSelector selects parents by their labels.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// DeletionGuard bounds how many children of a controller its hooks may have deleted within a minute.
type DeletionGuard struct {
	// maxDeletions is the largest number of children of all parents together that may be deleted within a minute: a number, or a
	// percentage of the children that there were before (rounded down, but at least 1 unless it is 0%). Children that are deleted to
	// be created again count; those that the garbage collector deletes do not. A sync that would pass the limit deletes nothing, and
	// from then on no sync of the controller does, until the annotation metacontroller.k8s.io/confirm-deletions confirms the
	// deletions or no hook wants those that are held. 0: each deletion has to be confirmed. Required.
	// +required
	// +k8s:required
	// +k8s:opaqueType
	MaxDeletions *intstr.IntOrString `json:"maxDeletions"`
}

// AnnotationConfirmDeletions confirms, on a controller object, the deletions that its spec.deletionGuard holds. The value is the one that
// the condition DeletionsHeld names. It confirms that one hold, for ten minutes.
const AnnotationConfirmDeletions = "metacontroller.k8s.io/confirm-deletions"

// AnnotationPaused pauses, on a parent or target, its syncs by all controllers: for "true" until it is taken off, for a time as in RFC 3339 until
// then at the latest. What changes meanwhile is synced after that.
const AnnotationPaused = "metacontroller.k8s.io/paused"

// FinalizerParents is the finalizer by which the server keeps a controller object until the controller's own finalizer is off all parents
// (docs/reference/compatibility.md#d15).
const FinalizerParents = "metacontroller.k8s.io/parents"

// Retains reports whether children of a rule stay when their parent is deleted, so that parents need a finalizer.
func (s *CompositeControllerSpec) Retains() bool {
	return slices.ContainsFunc(s.ChildResources, func(r CompositeControllerChildResourceRule) bool { return r.OnParentDeletion == ParentDeletionRetain })
}

// Retains reports whether attachments of a rule stay when their target is deleted, so that targets need a finalizer.
func (s *DecoratorControllerSpec) Retains() bool {
	return slices.ContainsFunc(s.Attachments, func(r DecoratorControllerAttachmentRule) bool { return r.OnParentDeletion == ParentDeletionRetain })
}
