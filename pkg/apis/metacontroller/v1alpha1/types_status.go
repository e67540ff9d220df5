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

// ControllerStatus is what the server reports about a running controller of either kind.
type ControllerStatus struct {
	// observedGeneration is the metadata.generation of the definition that the server looked at last, and that the conditions are about.
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions tell whether the controller runs and, if not, what to do. Types: Ready, Stalled, Established, HooksHealthy,
	// Permitted, Progressing, ResourcesServed, FinalizersReleased, Paused, DeletionsHeld.
	// +optional
	// +k8s:optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:listType=map
	// +k8s:listMapKey=type
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
	// finalizedResources are the resources of which objects may carry the controller's finalizer: those that the definition
	// finalizes now, and those that it finalized before until the finalizer is off all their objects.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	FinalizedResources []FinalizedResource `json:"finalizedResources,omitempty"`
	// counters count what the controller did since this server process took it up. They are published at most every 30
	// seconds while they change, and with every change of a condition.
	// +optional
	// +k8s:optional
	Counters *ControllerCounters `json:"counters,omitempty"`
	// hooks tell how the calls of each hook that the definition declares have gone since this server process took the
	// controller up.
	// +optional
	// +k8s:optional
	// +listType=map
	// +listMapKey=name
	// +k8s:listType=map
	// +k8s:listMapKey=name
	Hooks []HookStatus `json:"hooks,omitempty"`
	// lastErrors are the errors of parents whose last sync failed, the latest first: at most 10, one for each parent.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	LastErrors []ParentError `json:"lastErrors,omitempty"`
}

// FinalizedResource is a resource in any version.
type FinalizedResource struct {
	// group is the API group, empty for the core group.
	Group string `json:"group"`
	// resource is the plural name of the resource.
	Resource string `json:"resource"`
}

// ControllerCounters count what a controller did.
type ControllerCounters struct {
	// parents is the number of objects that the controller handles now: the parents or targets that it selects.
	// +optional
	// +k8s:optional
	Parents int64 `json:"parents,omitempty"`
	// syncs is the number of syncs that ended without an error.
	// +optional
	// +k8s:optional
	Syncs int64 `json:"syncs,omitempty"`
	// failedSyncs is the number of syncs that ended with an error; each is retried.
	// +optional
	// +k8s:optional
	FailedSyncs int64 `json:"failedSyncs,omitempty"`
	// rejectedAnswers is the number of hook responses that were rejected, because they were malformed or violated a rule.
	// Nothing of such a response was applied.
	// +optional
	// +k8s:optional
	RejectedAnswers int64 `json:"rejectedAnswers,omitempty"`
	// conflicts is the number of times that a child could not be created because an object of its name exists that the
	// parent does not control.
	// +optional
	// +k8s:optional
	Conflicts int64 `json:"conflicts,omitempty"`
	// flapping is the number of times that a child was left alone because it kept changing back, or was deleted by somebody else, after each write.
	// +optional
	// +k8s:optional
	Flapping int64 `json:"flapping,omitempty"`
	// failing is the number of parents whose last sync failed.
	// +optional
	// +k8s:optional
	Failing int64 `json:"failing,omitempty"`
	// pending is the number of parents that wait to be synced now, or are being synced. Those that wait for a retry after an
	// error are not among them.
	// +optional
	// +k8s:optional
	Pending int64 `json:"pending,omitempty"`
	// unsettled is the number of parents that are slowed down because their syncs never come to an end: each response of the hook
	// differs from the one before, or another client changes back what is written to the parent.
	// +optional
	// +k8s:optional
	Unsettled int64 `json:"unsettled,omitempty"`
	// synced is the number of parents whose last sync ended without an error.
	// +optional
	// +k8s:optional
	Synced int64 `json:"synced,omitempty"`
}

// HookStatus tells how the calls of one hook have gone.
type HookStatus struct {
	// name is that of the hook in spec.hooks: sync, finalize or customize.
	Name string `json:"name"`
	// lastSuccessTime is when the hook last returned a response that could be used.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// lastFailureTime is when a call last failed, or its response could not be used.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`
	// lastFailure is the cause of that failure, and what to do.
	// +optional
	// +k8s:optional
	LastFailure string `json:"lastFailure,omitempty"`
	// calls is the number of calls since this server process took the controller up.
	// +optional
	// +k8s:optional
	Calls int64 `json:"calls,omitempty"`
	// p50Milliseconds is the time within which half of the calls of the last minutes ended, as far as there were any.
	// +optional
	// +k8s:optional
	P50Milliseconds *int64 `json:"p50Milliseconds,omitempty"`
	// p99Milliseconds is the time within which 99 of 100 calls of the last minutes ended.
	// +optional
	// +k8s:optional
	P99Milliseconds *int64 `json:"p99Milliseconds,omitempty"`
}

// ParentError is why the last sync of a parent failed.
type ParentError struct {
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
	// time is when the sync failed.
	// +k8s:opaqueType
	Time metav1.Time `json:"time"`
	// message is the beginning of the error.
	Message string `json:"message"`
}

// Condition types and reasons of the controller kinds.
const (
	// ConditionReady is True while the controller runs with the definition of observedGeneration and syncs can succeed. It is
	// the one to wait for. A new object has it as Unknown.
	ConditionReady = "Ready"
	// ConditionStalled is True while Ready is False for a reason that does not go away by itself, and has the same reason and message. It is
	// not there otherwise.
	ConditionStalled = "Stalled"
	// ConditionEstablished is True while the cluster serves every resource that the definition names, and the controller's
	// caches are filled.
	ConditionEstablished = "Established"
	// ConditionHooksHealthy is False while all recent calls of one of the hooks have failed, its credentials are missing, or its
	// responses about a parent differ each time without a reason. It is Unknown before the first call.
	ConditionHooksHealthy = "HooksHealthy"
	// ConditionPermitted is False while the controller's service account lacks a right that the controller needs, or was refused a
	// write. It is Unknown while the cluster does not say, and True for a controller without a service account.
	ConditionPermitted = "Permitted"
	// ConditionProgressing is True while the first sync of all parents, a rolling update or a release of finalizers is under way, the
	// finalize hook takes more than a minute, or another client changes back what is written to parents.
	ConditionProgressing = "Progressing"
	// ConditionResourcesServed is True while the cluster serves every resource that the definition names.
	ConditionResourcesServed = "ResourcesServed"
	// ConditionFinalizersReleased is False while objects carry the controller's finalizer that the definition does not
	// finalize any more. It is there once there was something to release.
	ConditionFinalizersReleased = "FinalizersReleased"
	// ConditionPaused is True while spec.paused is true and nothing of the controller is under way any more. It is there once the
	// controller was paused.
	ConditionPaused = "Paused"
	// ConditionDeletionsHeld is True while spec.deletionGuard holds deletions. It is there once it held some.
	ConditionDeletionsHeld = "DeletionsHeld"

	// ReasonPending says that no server has looked at the definition yet.
	ReasonPending = "Pending"
	// ReasonRunning says that the controller runs.
	ReasonRunning = "Running"
	// ReasonStarting says that the controller's caches are being filled.
	ReasonStarting = "Starting"
	// ReasonResourceNotFound says that the cluster does not serve a resource that the definition names. The controller
	// takes it up by itself when it appears.
	ReasonResourceNotFound = "ResourceNotFound"
	// ReasonInvalidDefinition says that the definition passed validation but cannot be run, for example without hooks.
	ReasonInvalidDefinition = "InvalidDefinition"
	// ReasonInternalError says that the server's own code failed. It tries again by itself.
	ReasonInternalError = "InternalError"
	// ReasonNotSelected says that the labels of the definition do not match the server's --target-label-selector.
	ReasonNotSelected = "NotSelected"
	// ReasonTerminating says that the controller is being deleted and its finalizers are being taken off the parents.
	ReasonTerminating = "Terminating"
	// ReasonServed says that the cluster serves what the definition names.
	ReasonServed = "Served"
	// ReasonReleasing says that finalizers are being taken off.
	ReasonReleasing = "Releasing"
	// ReasonReleaseFailed says that a finalizer could not be taken off. The server tries again by itself.
	ReasonReleaseFailed = "ReleaseFailed"
	// ReasonReleased says that no finalizer is left to take off.
	ReasonReleased = "Released"
	// ReasonHookFailing says that all recent calls of a hook have failed.
	ReasonHookFailing = "HookFailing"
	// ReasonCredentialsMissing says that a Secret or ConfigMap that a hook refers to cannot be read or used.
	ReasonCredentialsMissing = "CredentialsMissing"
	// ReasonSyncsFailing says that the last sync of every parent has failed.
	ReasonSyncsFailing = "SyncsFailing"
	// ReasonEstablished says that all resources are served and all caches are filled.
	ReasonEstablished = "Established"
	// ReasonResponding says that the hooks return responses that can be used.
	ReasonResponding = "Responding"
	// ReasonNotCalled says that no hook was called yet.
	ReasonNotCalled = "NotCalled"
	// ReasonNotRunning says that the controller does not run; the condition Ready says why.
	ReasonNotRunning = "NotRunning"
	// ReasonPermitted says that the service account has the rights that the controller needs.
	ReasonPermitted = "Permitted"
	// ReasonServerRights says that the controller has no service account, and acts with the rights of the server.
	ReasonServerRights = "ServerRights"
	// ReasonRightMissing says that the service account lacks a right, or that the server may not impersonate it, or not watch what the controller
	// needs. The message names it.
	ReasonRightMissing = "RightMissing"
	// ReasonServiceAccountNotFound says that the service account does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonRightsUnknown says that the cluster does not say which rights the service account has.
	ReasonRightsUnknown = "RightsUnknown"
	// ReasonFirstSync says that parents have not been synced since the controller started.
	ReasonFirstSync = "FirstSync"
	// ReasonRollingUpdate says that children are being updated to the latest revision, a few at a time.
	ReasonRollingUpdate = "RollingUpdate"
	// ReasonFinalizing says that for more than a minute a finalize hook has not returned "finalized": true and no child has gone, or that the syncs
	// which call it fail.
	ReasonFinalizing = "Finalizing"
	// ReasonResponsesDiffer says that a hook returns something else each time, although it is shown nothing new but what it returned.
	ReasonResponsesDiffer = "ResponsesDiffer"
	// ReasonChangedBack says that another client writes parents as well, and changes back what the controller wrote.
	ReasonChangedBack = "ChangedBack"
	// ReasonSettled says that nothing is under way.
	ReasonSettled = "Settled"
	// ReasonPaused says that spec.paused is true.
	ReasonPaused = "Paused"
	// ReasonPausing says that spec.paused is true, and that syncs which were under way are ending.
	ReasonPausing = "Pausing"
	// ReasonNotPaused says that spec.paused is not true.
	ReasonNotPaused = "NotPaused"
	// ReasonLimitPassed says that more children were to be deleted within a minute than spec.deletionGuard allows.
	ReasonLimitPassed = "LimitPassed"
	// ReasonNoneHeld says that no deletion is held.
	ReasonNoneHeld = "NoneHeld"
)
