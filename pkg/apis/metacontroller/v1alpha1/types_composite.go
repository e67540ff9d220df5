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
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:method=Plan,verb=create,subresource=plan,input=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerPlan,result=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerPlan
// +genclient:method=Resync,verb=create,subresource=resync,input=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerResync,result=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerResync
// +genclient:method=Rollback,verb=create,subresource=rollback,input=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerRollback,result=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerRollback
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// CompositeController declares a controller that creates and maintains child objects for every object of one parent
// kind. Its sync hook receives a parent with its observed children, and returns the desired children.
type CompositeController struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The object is cluster-scoped; a namespace given in a manifest is ignored.
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the controller's definition. A change takes effect at once: the running controller is replaced.
	Spec CompositeControllerSpec `json:"spec"`
	// status is what the server reports about the running controller. It is written by the server alone.
	// +optional
	Status CompositeControllerStatus `json:"status,omitempty"`
}

// CompositeControllerSpec says which parents are watched, which children they may have, and which hooks decide.
type CompositeControllerSpec struct {
	// parentResource is the one kind whose objects this controller handles. Required. Any served kind will do: a custom
	// resource, a built-in kind, or a kind of another aggregated API server. Without a status subresource no status is
	// written to the parents.
	ParentResource CompositeControllerParentResourceRule `json:"parentResource"`
	// childResources lists the kinds that the hooks may return as children. A hook's response that holds a child of a kind
	// not listed here is rejected as a whole. Empty means that the controller manages the parent's status only. When two
	// entries name the same kind, the last one's update strategy is used. The parent's own kind is refused unless
	// parentResource has a labelSelector. At most 256 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	ChildResources []CompositeControllerChildResourceRule `json:"childResources,omitempty"`
	// hooks are the webhooks that decide. Without at least one of sync and finalize the controller does not start; its
	// condition Ready says so.
	// +optional
	// +k8s:optional
	Hooks *CompositeControllerHooks `json:"hooks,omitempty"`
	// endpointConfigs give TLS and credentials to all webhooks of this controller by host. They are used by a webhook that
	// sets none of caBundle, clientTLS, authorization and basicAuth itself; the first entry whose host matches wins. At most
	// 256 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	EndpointConfigs []EndpointConfig `json:"endpointConfigs,omitempty"`
	// serviceAccountRef names the service account as which the controller acts: what it writes to parents and children, and what it
	// reads of the Secrets and ConfigMaps of its hooks, is requested in that account's name, and the controller is held while the
	// account may not list and watch its kinds. Setting or changing it takes the right to impersonate the account. Absent: the
	// controller acts with the rights of the server.
	// +optional
	// +k8s:optional
	ServiceAccountRef *ServiceAccountReference `json:"serviceAccountRef,omitempty"`
	// resyncPeriodSeconds makes every parent be synced again after so many seconds even if nothing changed. Values below
	// 1 count as 1, and those above --cache-flush-interval as that. Absent: parents are synced only when something changes, and every
	// --cache-flush-interval.
	// +optional
	// +k8s:optional
	ResyncPeriodSeconds *int32 `json:"resyncPeriodSeconds,omitempty"`
	// generateSelector, when true, makes the server label every child with controller-uid=<uid of the parent> and select
	// children by that label, so that parents need no spec.selector. Default false: each parent must carry a
	// spec.selector that its children match.
	// +optional
	// +k8s:optional
	GenerateSelector *bool `json:"generateSelector,omitempty"`
	// workers is the number of calls of this controller's hooks that are made at the same time. While hooks are
	// called for some parents, responses for others are applied; with 1, one parent is synced after the other. Must be
	// between 1 and 1000. Default: the server's --workers (20).
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=1000
	Workers *int32 `json:"workers,omitempty"`
	// paused, when true, stops the controller without forgetting anything: no hook is called, nothing is written to parents, children
	// and revisions, and no finalizer is added or removed. Changes are noted, and synced once paused is false again. Deleting a paused
	// controller removes its finalizer from all parents, as with a running one. Default false.
	// +optional
	// +k8s:optional
	Paused *bool `json:"paused,omitempty"`
	// deletionGuard holds deletions of children when too many are decided within a minute, until somebody confirms them. Absent: none
	// is held.
	// +optional
	// +k8s:optional
	DeletionGuard *DeletionGuard `json:"deletionGuard,omitempty"`
}

// CompositeControllerParentResourceRule names the parent kind and selects parents.
type CompositeControllerParentResourceRule struct {
	ResourceRule `json:",inline"`
	// labelSelector restricts the controller to parents with matching labels. Absent or empty: all parents. A parent that
	// stops matching is finalized when the controller has a finalize hook, and left alone otherwise.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// revisionHistory says what of the parent makes up a revision, and how many are kept. It matters only when a child resource has a
	// rolling update strategy.
	// +optional
	// +k8s:optional
	RevisionHistory *CompositeControllerRevisionHistory `json:"revisionHistory,omitempty"`
	// ignoreStatusChanges, when true, ignores updates of a parent that change neither its generation nor its labels nor
	// its annotations, such as updates of its status. Default false.
	// +optional
	// +k8s:optional
	IgnoreStatusChanges *bool `json:"ignoreStatusChanges,omitempty"`
	// conditions are the types of the conditions that the server keeps in status.conditions of each parent, beside those that hooks
	// return: Synced says whether the last sync ended well, and if not, why and what to do. Hooks do not see them, and their change
	// causes no sync of the controller. The kind needs a status subresource whose schema has conditions. Absent: none.
	// +optional
	// +k8s:optional
	// +listType=set
	// +k8s:listType=set
	// +k8s:maxItems=16
	Conditions []ParentCondition `json:"conditions,omitempty"`
}

// CompositeControllerRevisionHistory says what of the parent makes up a revision, and how many are kept.
type CompositeControllerRevisionHistory struct {
	// fieldPaths are the dot-separated paths of parent fields whose change starts a rolling update, for example
	// "spec.template". Changes of other fields reach all children at once. Default when empty or absent: ["spec"]. At most
	// 256 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	// +k8s:eachVal=+k8s:maxLength=1024
	FieldPaths []string `json:"fieldPaths,omitempty"`
	// limit is how many former revisions of each parent are kept after all children have left them, so that it can be rolled back to them: what
	// a Deployment calls revisionHistoryLimit. Zero keeps none. Default 10.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +k8s:maximum=100
	Limit *int32 `json:"limit,omitempty"`
}

// CompositeControllerChildResourceRule names a child kind and says how its objects are updated.
type CompositeControllerChildResourceRule struct {
	ResourceRule `json:",inline"`
	// updateStrategy says how an existing child is changed when the hook returns something different. Absent: OnDelete.
	// +optional
	// +k8s:optional
	UpdateStrategy *CompositeControllerChildUpdateStrategy `json:"updateStrategy,omitempty"`
	// onParentDeletion says what becomes of a child when its parent is deleted: Delete (the garbage collector deletes it; the default) or
	// Retain (it stays, without owner). Of several rules for one kind the last one counts.
	// +optional
	// +k8s:optional
	OnParentDeletion ParentDeletion `json:"onParentDeletion,omitempty"`
}

// CompositeControllerChildUpdateStrategy says how an existing child is changed.
type CompositeControllerChildUpdateStrategy struct {
	// method is one of OnDelete (never change an existing child; the default), Recreate (delete it, then create it anew),
	// InPlace (update it), RollingRecreate and RollingInPlace (the same, a few children at a time, each waiting for the
	// children changed before it to pass statusChecks).
	// +optional
	// +k8s:optional
	Method ChildUpdateMethod `json:"method,omitempty"`
	// statusChecks are what a child must show before a rolling update continues with the next one. They have no effect with
	// other methods.
	// +optional
	StatusChecks ChildUpdateStatusChecks `json:"statusChecks,omitempty,omitzero"`
	// maxUnavailable is how many children of this kind a rolling update may have in work at the same time: a number, or
	// a percentage of the children that the hook desires (rounded down, at least 1). Default 1. It has no effect with
	// methods that do not roll.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// apply says who works out what an existing child becomes: Merge (this server, from what the hook returned now and before)
	// or ServerSide (the API server, by server-side apply with a field manager of this controller). Empty: what the server's
	// flag --apply-strategy says.
	// +optional
	// +k8s:optional
	Apply ChildApplyStrategy `json:"apply,omitempty"`
	// force says whether server-side apply takes fields that other field managers own. Default true. With false such fields
	// are a conflict, nothing of the child is applied, and an event names the fields and their managers. It has no effect
	// with Merge.
	// +optional
	// +k8s:optional
	Force *bool `json:"force,omitempty"`
}

// ChildUpdateStatusChecks are what an updated child must show before a rolling update continues.
type ChildUpdateStatusChecks struct {
	// conditions must all be present in the child's status.conditions with the given values.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	Conditions []StatusConditionCheck `json:"conditions,omitempty"`
}

// StatusConditionCheck is the demand on one entry of a child's status.conditions.
type StatusConditionCheck struct {
	// type is the condition's type, for example Ready. Required. The condition must exist.
	// +required
	// +k8s:required
	// +k8s:maxLength=1024
	Type string `json:"type"`
	// status, when given, must equal the condition's status: True, False or Unknown.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1024
	Status *string `json:"status,omitempty"`
	// reason, when given, must equal the condition's reason.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1024
	Reason *string `json:"reason,omitempty"`
}

// CompositeControllerHooks are the webhooks of a CompositeController.
type CompositeControllerHooks struct {
	// customize returns which further objects (related objects) the other hooks receive with a parent.
	// +optional
	// +k8s:optional
	Customize *Hook `json:"customize,omitempty"`
	// sync returns the desired children and status whenever a parent or something that belongs to it changed.
	// +optional
	// +k8s:optional
	Sync *Hook `json:"sync,omitempty"`
	// finalize is called instead of sync while a parent is being deleted or no longer matches labelSelector, until it
	// returns finalized: true. The server keeps the parent with a finalizer until then.
	// +optional
	// +k8s:optional
	Finalize *Hook `json:"finalize,omitempty"`
	// preUpdateChild is accepted for compatibility and has no effect.
	// +optional
	// +k8s:optional
	PreUpdateChild *Hook `json:"preUpdateChild,omitempty"`
	// postUpdateChild is accepted for compatibility and has no effect.
	// +optional
	// +k8s:optional
	PostUpdateChild *Hook `json:"postUpdateChild,omitempty"`
}

// CompositeControllerStatus is what the server reports about a CompositeController.
type CompositeControllerStatus struct {
	ControllerStatus `json:",inline"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CompositeControllerList is a list of CompositeControllers.
type CompositeControllerList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the CompositeControllers.
	Items []CompositeController `json:"items"`
}
