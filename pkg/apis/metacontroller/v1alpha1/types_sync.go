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
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:conversion-gen:explicit-from=net/url.Values

// ControllerSyncOptions are the query parameters of the subresource syncs.
type ControllerSyncOptions struct {
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
	// labelSelector selects parents by their labels, as in app=web,tier!=cache. Empty: all.
	// +optional
	// +k8s:optional
	LabelSelector string `json:"labelSelector,omitempty"`
	// limit is how many syncs are returned at most, the latest ones. Default 100, at most 500.
	// +optional
	// +k8s:optional
	Limit int64 `json:"limit,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerSyncList is what the subresource syncs returns: the recent syncs of a running controller, as far as the process remembers
// them, and the last sync of each parent.
type ControllerSyncList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata. If there are more than the limit, remainingItemCount tells how many.
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`
	// hidden counts the parents that are left out because the caller may not get them, or children of them. With labels,
	// parents that he may not get are not counted; a request that names one is forbidden.
	// +optional
	// +k8s:optional
	Hidden int64 `json:"hidden,omitempty"`
	// items are the syncs, the latest first.
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:optional
	Items []ControllerSync `json:"items"`
}

// ControllerSync is one sync of one parent. It has the places of fields, and never what is in them.
type ControllerSync struct {
	ParentReference `json:",inline"`
	// time is when the sync began.
	// +k8s:opaqueType
	Time metav1.MicroTime `json:"time"`
	// waitMilliseconds is how long the parent waited for the sync, from the first of its triggers on.
	// +optional
	// +k8s:optional
	WaitMilliseconds int64 `json:"waitMilliseconds,omitempty"`
	// hookMilliseconds is how long the calls of hooks took, with the wait until fewer other calls of the controller were under way.
	// +optional
	// +k8s:optional
	HookMilliseconds int64 `json:"hookMilliseconds,omitempty"`
	// durationMilliseconds is how long the sync took.
	// +optional
	// +k8s:optional
	DurationMilliseconds int64 `json:"durationMilliseconds,omitempty"`
	// triggers are why the parent was synced: the first ones, by time.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Triggers []SyncTrigger `json:"triggers,omitempty"`
	// moreTriggers counts the triggers that are not in triggers.
	// +optional
	// +k8s:optional
	MoreTriggers int32 `json:"moreTriggers,omitempty"`
	// fields are the places of the parent that the sync wrote.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Fields []string `json:"fields,omitempty"`
	// dropped are fields of the status that the hook returned and the API server did not store, as it does with those that a schema does not declare.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Dropped []string `json:"dropped,omitempty"`
	// changedBackBy names who changed fields of the parent back after former syncs had written them: field managers, or controllers.
	// Empty: nobody, or it is not known.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	ChangedBackBy []string `json:"changedBackBy,omitempty"`
	// children are what was done with children. Those that were as desired are left out.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Children []SyncChild `json:"children,omitempty"`
	// moreChildren counts the children that are not in children.
	// +optional
	// +k8s:optional
	MoreChildren int32 `json:"moreChildren,omitempty"`
	// error is the error of the sync, if it failed or has to wait.
	// +optional
	// +k8s:optional
	Error string `json:"error,omitempty"`
	// abridged says that the sync is an older one, which is remembered as the last of its parent, without fields and children.
	// +optional
	// +k8s:optional
	Abridged bool `json:"abridged,omitempty"`
}

// SyncReason is why a parent is synced.
type SyncReason string

// The reasons of syncs.
const (
	// SyncParentCreated says that the parent was created, or is selected now.
	SyncParentCreated SyncReason = "ParentCreated"
	// SyncSpecChanged says that the spec of the parent changed, or what else is neither its metadata nor its status.
	SyncSpecChanged SyncReason = "SpecChanged"
	// SyncMetadataChanged says that labels, annotations, owners or finalizers of the parent changed.
	SyncMetadataChanged SyncReason = "MetadataChanged"
	// SyncStatusChanged says that the status of the parent changed.
	SyncStatusChanged SyncReason = "StatusChanged"
	// SyncParentDeleted says that the parent is being deleted.
	SyncParentDeleted SyncReason = "ParentDeleted"
	// SyncChildChanged says that a child, or an object that may be adopted, was created or changed.
	SyncChildChanged SyncReason = "ChildChanged"
	// SyncChildDeleted says that a child was deleted, or lost its parent.
	SyncChildDeleted SyncReason = "ChildDeleted"
	// SyncRelatedChanged says that a related object, or the namespace of one, was created, changed or deleted.
	SyncRelatedChanged SyncReason = "RelatedChanged"
	// SyncTimer says that the time came which a hook named by resyncAfterSeconds, or until which a child or the parent was left alone.
	SyncTimer SyncReason = "Timer"
	// SyncResyncPeriod says that all parents are synced from time to time.
	SyncResyncPeriod SyncReason = "ResyncPeriod"
	// SyncRetry says that the last sync failed, or had to wait.
	SyncRetry SyncReason = "Retry"
	// SyncOwnWrite says that the informers showed what the last sync wrote.
	SyncOwnWrite SyncReason = "OwnWrite"
	// SyncStarted says that this process took the controller up.
	SyncStarted SyncReason = "Started"
	// SyncControllerChanged says that the controller was edited or resumed, or was built anew because the kinds that it needs changed.
	SyncControllerChanged SyncReason = "ControllerChanged"
	// SyncResyncRequested says that a user asked for it by the subresource resync.
	SyncResyncRequested SyncReason = "ResyncRequested"
	// SyncKindChanged says that the schema of a kind of children changed, or what admits them, or that a kind of related objects is not served
	// any more, or in another way.
	SyncKindChanged SyncReason = "KindChanged"
	// SyncWaitEnded says that what the last sync waited for is there.
	SyncWaitEnded SyncReason = "WaitEnded"
	// SyncObstacleGone says that an object changed or went that has the name of a child.
	SyncObstacleGone SyncReason = "ObstacleGone"
)

// SyncTrigger is why a parent is synced.
type SyncTrigger struct {
	// reason is the cause, such as SpecChanged or ChildChanged.
	Reason SyncReason `json:"reason"`
	// object is what changed. Absent: the reason is no change of an object, or the caller may not get it.
	// +optional
	// +k8s:optional
	Object *SyncObject `json:"object,omitempty"`
	// fields are the places that changed, such as spec.replicas; none if the object was created or deleted.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Fields []string `json:"fields,omitempty"`
	// moreFields says that more places changed than are in fields.
	// +optional
	// +k8s:optional
	MoreFields bool `json:"moreFields,omitempty"`
	// hidden says that the caller may not get the object, so that it is not named.
	// +optional
	// +k8s:optional
	Hidden bool `json:"hidden,omitempty"`
}

// SyncObject names an object.
type SyncObject struct {
	// group is the API group of the object, empty for the core group.
	// +optional
	// +k8s:optional
	Group string `json:"group,omitempty"`
	// resource is the plural name of the object's resource.
	Resource string `json:"resource"`
	// kind is that of the object.
	Kind string `json:"kind"`
	// namespace is that of the object, empty for one that is cluster-scoped.
	// +optional
	// +k8s:optional
	Namespace string `json:"namespace,omitempty"`
	// name is that of the object.
	Name string `json:"name"`
}

// SyncChild is what a sync did with one child.
type SyncChild struct {
	SyncObject `json:",inline"`
	// action is Create, Update, Recreate, Delete, Adopt, Release, Retain, Leave or Refuse.
	Action ChildAction `json:"action"`
	// reason says in a word why a child was left or refused, such as Flapping, OnDelete, Stale or DeletionsHeld. The error of the sync
	// says more about what was refused.
	// +optional
	// +k8s:optional
	Reason string `json:"reason,omitempty"`
	// fields are the places at which the child differed from what is desired.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	Fields []string `json:"fields,omitempty"`
	// moreFields says that it differed at more places than are in fields.
	// +optional
	// +k8s:optional
	MoreFields bool `json:"moreFields,omitempty"`
	// changedBackBy names who changed the fields back after former syncs had written them: field managers, or controllers. Empty: nobody,
	// or it is not known.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	ChangedBackBy []string `json:"changedBackBy,omitempty"`
}
