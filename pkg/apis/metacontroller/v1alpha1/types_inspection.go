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
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:conversion-gen:explicit-from=net/url.Values

// ControllerParentOptions are the query parameters of the subresource parents.
type ControllerParentOptions struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// resource is the resource of the parents, as in things.example.com. Empty: all.
	// +optional
	// +k8s:optional
	Resource string `json:"resource,omitempty"`
	// namespace is that of the parents. Empty: all.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the parent. Empty: all.
	// +optional
	// +k8s:optional
	Name string `json:"name,omitempty"`
	// state is the state of the parents, such as Failing. Empty: all.
	// +optional
	// +k8s:optional
	State string `json:"state,omitempty"`
	// labelSelector selects parents by their labels, as in app=web,tier!=cache. Empty: all.
	// +optional
	// +k8s:optional
	LabelSelector string `json:"labelSelector,omitempty"`
	// limit is how many parents are returned at most. Default 100, at most 500.
	// +optional
	// +k8s:optional
	Limit int64 `json:"limit,omitempty"`
	// continue is what a list returned of which this one is the next part.
	// +optional
	// +k8s:optional
	Continue string `json:"continue,omitempty"`
}

// ParentState is how a controller is doing with a parent.
type ParentState string

// The states of a parent.
const (
	// ParentSynced says that the last sync succeeded, and that nothing is to be done.
	ParentSynced ParentState = "Synced"
	// ParentPending says that the parent is in the queue, or was not synced since the controller started.
	ParentPending ParentState = "Pending"
	// ParentSyncing says that the parent is being synced.
	ParentSyncing ParentState = "Syncing"
	// ParentFailing says that the last sync failed; it is tried again at the time of the next sync.
	ParentFailing ParentState = "Failing"
	// ParentWaiting says that the parent is synced when what it waits for is there, which the message names.
	ParentWaiting ParentState = "Waiting"
	// ParentHeld says that the parent is held back, or that deletions of its children are; the message says why.
	ParentHeld ParentState = "Held"
	// ParentPaused says that the controller is paused, or that the parent is.
	ParentPaused ParentState = "Paused"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerParentList is what the subresource parents returns: how a running controller is doing with each of its parents. It is
// read from the memory of the process, and costs no request to the cluster but reviews of the caller's rights.
type ControllerParentList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata. If there are more, continue is set, and remainingItemCount tells how many.
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`
	// hidden counts the parents that are left out because the caller may not get them. With labels,
	// parents that he may not get are not counted; a request that names one is forbidden.
	// +optional
	// +k8s:optional
	Hidden int64 `json:"hidden,omitempty"`
	// items are the parents, by resource, namespace and name.
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:optional
	Items []ControllerParent `json:"items"`
}

// ControllerParent is how a controller is doing with one parent.
type ControllerParent struct {
	ParentReference `json:",inline"`
	// state is Synced, Pending, Syncing, Failing, Waiting, Held or Paused.
	State ParentState `json:"state"`
	// message says what the parent waits for, or why it is held.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty"`
	// lastSyncTime is when the last sync ended, well or not. Absent: there was none since this process took the controller up.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`
	// lastSyncMilliseconds is how long the last sync took.
	// +optional
	// +k8s:optional
	LastSyncMilliseconds int64 `json:"lastSyncMilliseconds,omitempty"`
	// retries counts the syncs that failed in a row.
	// +optional
	// +k8s:optional
	Retries int32 `json:"retries,omitempty"`
	// nextSyncTime is when the parent is synced even if nothing changes, before the next resync of all parents. Absent: no such time
	// is set.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	NextSyncTime *metav1.Time `json:"nextSyncTime,omitempty"`
	// children counts the children.
	// +optional
	// +k8s:optional
	Children *ChildCounts `json:"children,omitempty"`
	// lastError is the error of the last sync, if it failed.
	// +optional
	// +k8s:optional
	LastError string `json:"lastError,omitempty"`
}

// ChildCounts count the children of a parent, as the informers of the controller show them.
type ChildCounts struct {
	// total counts all children.
	Total int32 `json:"total"`
	// ready counts the children that are not being deleted and whose conditions Ready and Available, if they have them, are True, and Pods that have
	// completed. Absent: no child has such a condition, so that it is not known.
	// +optional
	// +k8s:optional
	Ready *int32 `json:"ready,omitempty"`
	// outdated counts the children that a rolling update has not moved to the latest revision. Absent: none is under way.
	// +optional
	// +k8s:optional
	Outdated *int32 `json:"outdated,omitempty"`
}

// Text is how tables have the numbers, such as 2/3 (1 outdated); empty if they are not known.
func (c *ChildCounts) Text() string {
	if c == nil {
		return ""
	}
	counts := fmt.Sprint(c.Total)
	if c.Ready != nil {
		counts = fmt.Sprintf("%d/%d", *c.Ready, c.Total)
	}
	if c.Outdated != nil {
		counts += fmt.Sprintf(" (%d outdated)", *c.Outdated)
	}
	return counts
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:conversion-gen:explicit-from=net/url.Values

// HookRequestOptions are the query parameters of the subresource request.
type HookRequestOptions struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// resource is the resource of the parent, as in things.example.com, for a controller that has parents of several.
	// +optional
	// +k8s:optional
	Resource string `json:"resource,omitempty"`
	// namespace is that of the parent.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the parent. Required.
	// +optional
	// +k8s:optional
	Name string `json:"name,omitempty"`
	// hook is sync, finalize or customize. Empty: those that a sync would call now.
	// +optional
	// +k8s:optional
	Hook string `json:"hook,omitempty"`
	// call has the hooks called, with the values of Secrets that the bodies are shown without, and the known fields of their responses
	// returned, without credentials. It takes the right to create plans of the controller as well.
	// +optional
	// +k8s:optional
	Call bool `json:"call,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// HookRequestList is what the subresource request returns: the bodies that the hooks would get for one parent now, in the order in
// which a sync sends them. Values of Secrets are not shown.
type HookRequestList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`
	// parent is the parent.
	Parent ParentReference `json:"parent"`
	// items are the requests. There are several if the controller has a customize hook, or while a rolling update is under way: one for
	// each revision then, the latest first.
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:optional
	Items []HookRequest `json:"items"`
}

// HookRequest is what one call of a hook sends.
type HookRequest struct {
	// hook is sync, finalize or customize.
	Hook string `json:"hook"`
	// revision is the name of the former ControllerRevision as which the parent is shown. Empty: as it is.
	// +optional
	// +k8s:optional
	Revision string `json:"revision,omitempty"`
	// body is the body of the request.
	// +k8s:opaqueType
	Body runtime.RawExtension `json:"body"`
	// response is the body of the response, if it was asked for. Values of Secrets are not shown.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	Response *runtime.RawExtension `json:"response,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerResync is what is posted to the subresource resync: parents are synced now.
type ControllerResync struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata, of which nothing is used.
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which parents.
	// +optional
	Spec ControllerResyncSpec `json:"spec,omitempty"`
	// status says what was done. It is written by the server.
	// +optional
	Status ControllerResyncStatus `json:"status,omitempty"`
}

// ControllerResyncSpec says which parents are synced.
type ControllerResyncSpec struct {
	// parents selects the parents. Absent: all.
	// +optional
	// +k8s:optional
	Parents *ParentSelection `json:"parents,omitempty"`
}

// ControllerResyncStatus is what a resync did.
type ControllerResyncStatus struct {
	// parents counts the parents that were put into the queue.
	// +optional
	// +k8s:optional
	Parents int64 `json:"parents,omitempty"`
	// hidden counts the parents that are left out because the caller may not get them. With labels,
	// parents that he may not get are not counted; a request that names one is forbidden.
	// +optional
	// +k8s:optional
	Hidden int64 `json:"hidden,omitempty"`
}

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
	// hidden counts the parents that are left out because the caller may not get them, or children of them. With labels,
	// parents that he may not get are not counted; a request that names one is forbidden. Of a plan in parts each counts its own, and the first one those that no part has.
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
	// parents counts the parents that were planned.
	Parents int64 `json:"parents"`
	// changing counts the parents for which something would be written.
	Changing int64 `json:"changing"`
	// failing counts the parents whose sync would fail.
	Failing int64 `json:"failing"`
	// create counts the children that would be created.
	Create int64 `json:"create"`
	// update counts the children that would be changed in place.
	Update int64 `json:"update"`
	// recreate counts the children that would be deleted, to be created again.
	Recreate int64 `json:"recreate"`
	// delete counts the children that would be deleted.
	Delete int64 `json:"delete"`
	// adopt counts the objects that would be adopted.
	Adopt int64 `json:"adopt"`
	// release counts the children that would be released.
	Release int64 `json:"release"`
	// retain counts the children that would be taken off a parent that is deleted, and stay.
	// +optional
	// +k8s:optional
	Retain int64 `json:"retain,omitempty"`
	// leave counts the children that would be left as they are.
	Leave int64 `json:"leave"`
	// refuse counts the children that should be changed and could not be.
	Refuse int64 `json:"refuse"`
}

// Actions are how often each action on children is planned.
func (s *PlanSummary) Actions() map[ChildAction]*int64 {
	return map[ChildAction]*int64{
		ChildCreate: &s.Create, ChildUpdate: &s.Update, ChildRecreate: &s.Recreate, ChildDelete: &s.Delete, ChildAdopt: &s.Adopt,
		ChildRelease: &s.Release, ChildRetain: &s.Retain, ChildRefuse: &s.Refuse, ChildLeave: &s.Leave,
	}
}

// plannedActions are the actions in the order, and in the words, in which summaries have them.
var plannedActions = []struct {
	action ChildAction
	done   string
}{
	{ChildCreate, "created"},
	{ChildUpdate, "updated"},
	{ChildRecreate, "recreated"},
	{ChildDelete, "deleted"},
	{ChildAdopt, "adopted"},
	{ChildRelease, "released"},
	{ChildRetain, "kept without their parent"},
	{ChildRefuse, "refused"},
	{ChildLeave, "left as they are"},
}

// Add adds what is planned for other parents.
func (s *PlanSummary) Add(other PlanSummary) {
	s.Parents, s.Changing, s.Failing = s.Parents+other.Parents, s.Changing+other.Changing, s.Failing+other.Failing
	counts := s.Actions()
	for action, n := range other.Actions() {
		*counts[action] += *n
	}
}

// EachAction calls f with what would be done with children, such as created, and how often; not with what would not be done.
func (s *PlanSummary) EachAction(f func(n int64, done string)) {
	counts := s.Actions()
	for _, a := range plannedActions {
		if n := *counts[a.action]; n > 0 {
			f(n, a.done)
		}
	}
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
	// ChildRetain does the same because the parent is deleted and the child stays.
	ChildRetain ChildAction = "Retain"
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
	// action is Create, Update, Recreate, Delete, Adopt, Release, Retain, Leave or Refuse.
	Action ChildAction `json:"action"`
	// reason says in a word why a child is left or refused, such as Same, OnDelete, Deleting, Flapping, DeletionsHeld, Conflict.
	// +optional
	// +k8s:optional
	Reason string `json:"reason,omitempty"`
	// message says it in a sentence, or what the dry run of a child that is written warns of.
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
