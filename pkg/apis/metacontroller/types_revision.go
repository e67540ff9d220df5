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

package metacontroller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerRevision records one revision of a parent of a CompositeController during a rolling update: the parent's
// fields that make up the revision, and the children that are still on it. The server writes these objects; they are
// not meant to be edited.
type ControllerRevision struct {
	metav1.TypeMeta
	// Standard object metadata. The parent is the controlling owner.
	metav1.ObjectMeta

	// parentPatch is an object that holds only the parent's fields named by revisionHistory.fieldPaths, with their values
	// in this revision. Required.
	ParentPatch runtime.RawExtension
	// children are the children that are on this revision, by kind.
	Children []ControllerRevisionChildren
}

// ControllerRevisionChildren are the children of one kind that are on a revision.
type ControllerRevisionChildren struct {
	// apiGroup is the API group of the children; empty for the core group.
	APIGroup string
	// kind is the kind of the children.
	Kind string
	// names are the children's names, relative to the parent: the bare name for a child in the parent's own scope,
	// namespace/name for a namespaced child of a cluster-scoped parent. Required; it may be an empty list.
	Names []string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerRevisionList is a list of ControllerRevisions.
type ControllerRevisionList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta
	// items are the ControllerRevisions.
	Items []ControllerRevision
}
