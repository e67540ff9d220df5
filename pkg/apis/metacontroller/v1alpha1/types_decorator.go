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

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +genclient:nonNamespaced
// +genclient:method=Plan,verb=create,subresource=plan,input=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerPlan,result=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerPlan
// +genclient:method=Resync,verb=create,subresource=resync,input=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerResync,result=github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1.ControllerResync
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// DecoratorController declares a controller that adds behavior to existing objects: it attaches further objects to them
// and sets labels, annotations and status on them. Its sync hook receives a target object with the attachments observed,
// and returns the desired attachments.
type DecoratorController struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The object is cluster-scoped; a namespace given in a manifest is ignored.
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the controller's definition. A change takes effect at once: the running controller is replaced.
	Spec DecoratorControllerSpec `json:"spec"`
	// status is what the server reports about the running controller. It is written by the server alone.
	// +optional
	Status DecoratorControllerStatus `json:"status,omitempty"`
}

// DecoratorControllerSpec says which objects are decorated, what may be attached to them, and which hooks decide.
type DecoratorControllerSpec struct {
	// resources lists the kinds whose objects are decorated, each with selectors. Required; a kind may be listed only once.
	// With an empty list the controller does nothing. At most 256 entries.
	// +required
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	Resources []DecoratorControllerResourceRule `json:"resources"`
	// attachments lists the kinds that the hooks may return as attachments. A hook's response that holds an attachment of a
	// kind not listed here is rejected as a whole. The kind of a target is refused unless the target's rule has a selector. At
	// most 256 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	Attachments []DecoratorControllerAttachmentRule `json:"attachments,omitempty"`
	// hooks are the webhooks that decide. Without at least one of sync and finalize the controller does not start; its
	// condition Ready says so.
	// +optional
	// +k8s:optional
	Hooks *DecoratorControllerHooks `json:"hooks,omitempty"`
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
	// resyncPeriodSeconds makes every target be synced again after so many seconds even if nothing changed. Values below
	// 1 count as 1, and those above --cache-flush-interval as that. Absent: targets are synced only when something changes, and every
	// --cache-flush-interval.
	// +optional
	// +k8s:optional
	ResyncPeriodSeconds *int32 `json:"resyncPeriodSeconds,omitempty"`
	// workers is the number of calls of this controller's hooks that are made at the same time. While hooks are
	// called for some targets, responses for others are applied; with 1, one target is synced after the other. Must be
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
	// deletionGuard holds deletions of attachments when too many are decided within a minute, until somebody confirms them. Absent: none
	// is held.
	// +optional
	// +k8s:optional
	DeletionGuard *DeletionGuard `json:"deletionGuard,omitempty"`
}

// DecoratorControllerResourceRule names a target kind and selects targets.
type DecoratorControllerResourceRule struct {
	ResourceRule `json:",inline"`
	// labelSelector restricts the rule to objects with matching labels. Absent or empty: all objects of the kind. Both
	// selectors must match when both are given.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// annotationSelector restricts the rule to objects with matching annotations. Absent or empty: all objects of the kind.
	// +optional
	// +k8s:optional
	AnnotationSelector *AnnotationSelector `json:"annotationSelector,omitempty"`
	// ignoreStatusChanges, when true, ignores updates of a target that change neither its generation nor its labels nor
	// its annotations, such as updates of its status. Default false.
	// +optional
	// +k8s:optional
	IgnoreStatusChanges *bool `json:"ignoreStatusChanges,omitempty"`
	// allowDelete, when true, lets hooks delete targets of this rule by "delete": true in a response. Otherwise such a response is
	// rejected as a whole. Default false.
	// +optional
	// +k8s:optional
	AllowDelete *bool `json:"allowDelete,omitempty"`
	// conditions are the types of the conditions that the server keeps in status.conditions of each target, beside those that hooks
	// return: Synced says whether the last sync ended well, and if not, why and what to do. Hooks do not see them, and their change
	// causes no sync of the controller. The kind needs a status subresource whose schema has conditions. Absent: none.
	// +optional
	// +k8s:optional
	// +listType=set
	// +k8s:listType=set
	// +k8s:maxItems=16
	Conditions []ParentCondition `json:"conditions,omitempty"`
}

// AnnotationSelector selects objects by their annotations, as a label selector does by labels. Keys and
// values in it must have the syntax of label keys and values.
// +structType=atomic
type AnnotationSelector struct {
	// matchAnnotations are annotations that must all be present with exactly these values.
	// +optional
	// +k8s:optional
	// +k8s:maxProperties=256
	MatchAnnotations map[string]string `json:"matchAnnotations,omitempty"`
	// matchExpressions are set-based requirements on annotations (In, NotIn, Exists, DoesNotExist) that must all hold.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:eachVal=+k8s:opaqueType
	// +k8s:maxItems=256
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// DecoratorControllerAttachmentRule names an attachment kind and says how its objects are updated.
type DecoratorControllerAttachmentRule struct {
	ResourceRule `json:",inline"`
	// updateStrategy says how an existing attachment is changed when the hook returns something different. Absent: OnDelete.
	// +optional
	// +k8s:optional
	UpdateStrategy *DecoratorControllerAttachmentUpdateStrategy `json:"updateStrategy,omitempty"`
	// onParentDeletion says what becomes of an attachment when its target is deleted: Delete (the garbage collector deletes it; the default) or
	// Retain (it stays, without owner). Of several rules for one kind the last one counts.
	// +optional
	// +k8s:optional
	OnParentDeletion ParentDeletion `json:"onParentDeletion,omitempty"`
}

// DecoratorControllerAttachmentUpdateStrategy says how an existing attachment is changed.
type DecoratorControllerAttachmentUpdateStrategy struct {
	// method is one of OnDelete (never change an existing attachment; the default), Recreate (delete it, then create it
	// anew) and InPlace (update it). RollingRecreate and RollingInPlace are accepted and mean Recreate and InPlace.
	// +optional
	// +k8s:optional
	Method ChildUpdateMethod `json:"method,omitempty"`
	// apply says who works out what an existing attachment becomes: Merge (this server, from what the hook returned now and before)
	// or ServerSide (the API server, by server-side apply with a field manager of this controller). Empty: what the server's
	// flag --apply-strategy says.
	// +optional
	// +k8s:optional
	Apply ChildApplyStrategy `json:"apply,omitempty"`
	// force says whether server-side apply takes fields that other field managers own. Default true. With false such fields
	// are a conflict, nothing of the attachment is applied, and an event names the fields and their managers. It has no effect
	// with Merge.
	// +optional
	// +k8s:optional
	Force *bool `json:"force,omitempty"`
}

// DecoratorControllerHooks are the webhooks of a DecoratorController.
type DecoratorControllerHooks struct {
	// customize returns which further objects (related objects) the other hooks receive with a target.
	// +optional
	// +k8s:optional
	Customize *Hook `json:"customize,omitempty"`
	// sync returns the desired attachments, labels, annotations and status whenever a target or something that
	// belongs to it changed.
	// +optional
	// +k8s:optional
	Sync *Hook `json:"sync,omitempty"`
	// finalize is called instead of sync while a target is being deleted or no longer matches the selectors, until it
	// returns finalized: true. The server keeps the target with a finalizer until then.
	// +optional
	// +k8s:optional
	Finalize *Hook `json:"finalize,omitempty"`
}

// DecoratorControllerStatus is what the server reports about a DecoratorController.
type DecoratorControllerStatus struct {
	ControllerStatus `json:",inline"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DecoratorControllerList is a list of DecoratorControllers.
type DecoratorControllerList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the DecoratorControllers.
	Items []DecoratorController `json:"items"`
}
