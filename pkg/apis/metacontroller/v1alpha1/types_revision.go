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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerRevision records one revision of a parent of a CompositeController during a rolling update: the parent's
// fields that make up the revision, and the children that are still on it. The server writes these objects; they are
// not meant to be edited.
type ControllerRevision struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The parent is the controlling owner.
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// parentPatch is an object that holds only the parent's fields named by revisionHistory.fieldPaths, with their values
	// in this revision. Required.
	// +k8s:opaqueType
	ParentPatch runtime.RawExtension `json:"parentPatch"`
	// children are the children that are on this revision, by kind.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	Children []ControllerRevisionChildren `json:"children,omitempty"`
}

// ControllerRevisionChildren are the children of one kind that are on a revision.
type ControllerRevisionChildren struct {
	// apiGroup is the API group of the children; empty for the core group.
	APIGroup string `json:"apiGroup"`
	// kind is the kind of the children.
	// +required
	// +k8s:required
	Kind string `json:"kind"`
	// names are the children's names, relative to the parent: the bare name for a child in the parent's own scope,
	// namespace/name for a namespaced child of a cluster-scoped parent. Required; it may be an empty list.
	// +listType=atomic
	// +k8s:optional
	// +k8s:listType=atomic
	Names []string `json:"names"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerRevisionList is a list of ControllerRevisions.
type ControllerRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the ControllerRevisions.
	Items []ControllerRevision `json:"items"`
}

// AnnotationSuperseded is on ControllerRevisions that are not the latest one of their parent, which still have children on them.
const AnnotationSuperseded = "metacontroller.k8s.io/superseded"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerRollback is what is posted to the subresource rollback: one parent gets the fields of a former revision back. It needs the
// right to update that parent.
type ControllerRollback struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata, of which nothing is used.
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which parent, and to which revision.
	// +optional
	Spec ControllerRollbackSpec `json:"spec,omitempty"`
	// status says what was done. It is written by the server.
	// +optional
	Status ControllerRollbackStatus `json:"status,omitempty"`
}

// RevisionPrevious stands for the newest revision of a parent that is not its present one.
const RevisionPrevious = "previous"

// ControllerRollbackSpec says which parent gets the fields of which revision.
type ControllerRollbackSpec struct {
	// namespace is that of the parent. Empty for one that is cluster-scoped.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the parent. Required.
	// +optional
	// +k8s:optional
	Name string `json:"name,omitempty"`
	// revision is the name of a ControllerRevision of the parent, or previous, which is the default: the newest one that is not that of
	// the parent as it is.
	// +optional
	// +k8s:optional
	Revision string `json:"revision,omitempty"`
	// resourceVersion is the one that the parent must have. Absent: any; it must not change while it is rolled back.
	// +optional
	// +k8s:optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ControllerRollbackStatus is what a rollback did, or would do if it is a dry run.
type ControllerRollbackStatus struct {
	// revision is the name of the ControllerRevision whose fields the parent has now.
	// +optional
	// +k8s:optional
	Revision string `json:"revision,omitempty"`
	// from is the name of the revision of the parent as it was.
	// +optional
	// +k8s:optional
	From string `json:"from,omitempty"`
	// changes are those of the parent. Absent: nothing was changed, because it had these fields already, or because what admits it changed
	// all of them back.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Changes []FieldChange `json:"changes,omitempty"`
	// resourceVersion is that of the parent as it is now.
	// +optional
	// +k8s:optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}
