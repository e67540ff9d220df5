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

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerPlan is what is posted to the subresource plan: what would syncs of parents do now? Nothing is written, no event is
// recorded, and nothing is remembered of it.
type ControllerPlan struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata, of which nothing is used.
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is asked.
	// +optional
	Spec ControllerPlanSpec `json:"spec,omitempty"`
	// status is the result. It is written by the server.
	// +optional
	Status ControllerPlanStatus `json:"status,omitempty"`
}

// ControllerPlanSpec says for which parents, and with what, a plan is made.
type ControllerPlanSpec struct {
	// parents selects the parents. Absent: all.
	// +optional
	// +k8s:optional
	Parents *ParentSelection `json:"parents,omitempty"`
	// limit is how many parents are planned at most. Default 100, at most 500.
	// +optional
	// +k8s:optional
	Limit int64 `json:"limit,omitempty"`
	// continue is what a plan returned of which this one is the next part.
	// +optional
	// +k8s:optional
	Continue string `json:"continue,omitempty"`
	// candidate is a controller object of the same kind and name in place of the stored one. It has to pass a dry run of its write by
	// the caller, who therefore needs the rights to write it. Absent: the plan is that of the running controller.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	Candidate *runtime.RawExtension `json:"candidate,omitempty"`
	// responses are used in place of calls of hooks. A parent with a response of a hook gets no call of that hook.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=2000
	Responses []GivenResponse `json:"responses,omitempty"`
	// dryRun has every child that would be created or updated checked by a dry run of the API server.
	// +optional
	// +k8s:optional
	DryRun bool `json:"dryRun,omitempty"`
}

// GivenResponse is the response of a hook about one parent.
type GivenResponse struct {
	ParentReference `json:",inline"`
	// hook is sync, finalize or customize.
	Hook string `json:"hook"`
	// revision is that of the request.
	// +optional
	// +k8s:optional
	Revision string `json:"revision,omitempty"`
	// body is the body of the response.
	// +k8s:opaqueType
	Body runtime.RawExtension `json:"body"`
}

// ControllerPlanStatus is what syncs would do.
type ControllerPlanStatus struct {
	// summary counts what is in parents.
	// +optional
	Summary PlanSummary `json:"summary,omitempty"`
	// hidden counts the parents that are left out because the caller may not get them, or children of them.
	// +optional
	// +k8s:optional
	Hidden int64 `json:"hidden,omitempty"`
	// continue is set if there are more parents: those beyond the limit, and those for which there was no time.
	// +optional
	// +k8s:optional
	Continue string `json:"continue,omitempty"`
	// remaining counts the parents that are left.
	// +optional
	// +k8s:optional
	Remaining int64 `json:"remaining,omitempty"`
	// parents are the plans, by resource, namespace and name of the parents.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Parents []ParentPlan `json:"parents,omitempty"`
}

// PlanSummary counts parents, and what is done with children.
type PlanSummary struct {
	// parents counts the parents that were planned, changing those of which something would be written, and failing those whose sync
	// would fail.
	Parents  int64 `json:"parents"`
	Changing int64 `json:"changing"`
	Failing  int64 `json:"failing"`
	// create and the others count children by their action.
	Create   int64 `json:"create"`
	Update   int64 `json:"update"`
	Recreate int64 `json:"recreate"`
	Delete   int64 `json:"delete"`
	Adopt    int64 `json:"adopt"`
	Release  int64 `json:"release"`
	Leave    int64 `json:"leave"`
	Refuse   int64 `json:"refuse"`
}

// ParentPlan is what a sync of one parent would do now.
type ParentPlan struct {
	ParentReference `json:",inline"`
	// error is why the sync would fail, in whole or for some children.
	// +optional
	// +k8s:optional
	Error string `json:"error,omitempty"`
	// message says what keeps the parent from being synced now, such as a pause of the controller.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty"`
	// delete says that the hook has the parent deleted.
	// +optional
	// +k8s:optional
	Delete bool `json:"delete,omitempty"`
	// changes are those of the parent itself: its status, labels, annotations and finalizers.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Changes []FieldChange `json:"changes,omitempty"`
	// children are what is done with each child, in the order in which it is done.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Children []ChildPlan `json:"children,omitempty"`
	// revisions are what is done with the ControllerRevisions of the parent.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Revisions []RevisionPlan `json:"revisions,omitempty"`
}

// ChildAction is what is done with a child.
type ChildAction string

// The actions of a plan.
const (
	// ChildCreate creates a child.
	ChildCreate ChildAction = "Create"
	// ChildUpdate changes a child in place.
	ChildUpdate ChildAction = "Update"
	// ChildRecreate deletes a child, which a later sync creates again.
	ChildRecreate ChildAction = "Recreate"
	// ChildDelete deletes a child that is not desired any more.
	ChildDelete ChildAction = "Delete"
	// ChildAdopt makes the parent the controlling owner of an object.
	ChildAdopt ChildAction = "Adopt"
	// ChildRelease takes the parent off the owners of an object.
	ChildRelease ChildAction = "Release"
	// ChildLeave does nothing.
	ChildLeave ChildAction = "Leave"
	// ChildRefuse says that the child should be changed, and cannot be: reason and message say why.
	ChildRefuse ChildAction = "Refuse"
)

// ChildPlan is what is done with one child.
type ChildPlan struct {
	// apiVersion is the version in which the child is written.
	APIVersion string `json:"apiVersion"`
	// kind is that of the child.
	Kind string `json:"kind"`
	// namespace is that of the child, empty for one that is cluster-scoped.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the child.
	Name string `json:"name"`
	// action is Create, Update, Recreate, Delete, Adopt, Release, Leave or Refuse.
	Action ChildAction `json:"action"`
	// reason says in a word why a child is left or refused, such as Same, OnDelete, Deleting, Flapping, DeletionsHeld, Conflict.
	// +optional
	// +k8s:optional
	Reason string `json:"reason,omitempty"`
	// message says it in a sentence.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty"`
	// fieldManager is that of a child that is written by server-side apply.
	// +optional
	// +k8s:optional
	FieldManager string `json:"fieldManager,omitempty"`
	// changes are the places at which the child differs from what is desired.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Changes []FieldChange `json:"changes,omitempty"`
	// object is what a child is created from. Values of Secrets are not shown.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	Object *runtime.RawExtension `json:"object,omitempty"`
}

// FieldChange is a place at which an object changes.
type FieldChange struct {
	// path is the place, such as spec.ports[53,UDP].name.
	Path string `json:"path"`
	// observed is the value there, as JSON. Absent: there is none.
	// +optional
	// +k8s:optional
	Observed *string `json:"observed,omitempty"`
	// desired is the value wanted, as JSON. Absent: the field is removed.
	// +optional
	// +k8s:optional
	Desired *string `json:"desired,omitempty"`
}

// RevisionPlan is what is done with one ControllerRevision.
type RevisionPlan struct {
	// action is Create, Update or Delete.
	Action string `json:"action"`
	// name is that of the ControllerRevision.
	Name string `json:"name"`
}
