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

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ControllerStatus is what the server reports about a running controller of either kind.
type ControllerStatus struct {
	// observedGeneration is the metadata.generation of the definition that the running controller was built from.
	ObservedGeneration int64
	// conditions tell whether the controller runs and, if not, what to do. Types: Ready, Established, HooksHealthy,
	// Permitted, Progressing, ResourcesServed, FinalizersReleased, Paused, DeletionsHeld.
	Conditions []metav1.Condition
	// finalizedResources are the resources of which objects may carry the controller's finalizer: those that the definition
	// finalizes now, and those that it finalized before until the finalizer is off all their objects.
	FinalizedResources []FinalizedResource
	// counters count what the controller did since this server process took it up. They are published at most every 30
	// seconds while they change, and with every change of a condition.
	Counters *ControllerCounters
	// hooks tell how the calls of each hook that the definition declares have gone since this server process took the
	// controller up.
	Hooks []HookStatus
	// lastErrors are the errors of parents whose last sync failed, the latest first: at most 10, one for each parent.
	LastErrors []ParentError
}

// FinalizedResource is a resource in any version.
type FinalizedResource struct {
	// group is the API group, empty for the core group.
	Group string
	// resource is the plural name of the resource.
	Resource string
}

// ControllerCounters count what a controller did.
type ControllerCounters struct {
	// parents is the number of objects that the controller handles now: the parents or targets that it selects.
	Parents int64
	// syncs is the number of syncs that ended without an error.
	Syncs int64
	// failedSyncs is the number of syncs that ended with an error; each is retried.
	FailedSyncs int64
	// rejectedAnswers is the number of hook responses that were rejected, because they were malformed or violated a rule.
	// Nothing of such a response was applied.
	RejectedAnswers int64
	// conflicts is the number of times that a child could not be created because an object of its name exists that the
	// parent does not control.
	Conflicts int64
	// flapping is the number of times that a child was left alone because it kept changing back, or was deleted by somebody else, after each write.
	Flapping int64
	// failing is the number of parents whose last sync failed.
	Failing int64
	// pending is the number of parents that wait to be synced now, or are being synced. Those that wait for a retry after an
	// error are not among them.
	Pending int64
	// unsettled is the number of parents that are slowed down because their syncs never come to an end: each response of the hook
	// differs from the one before, or another client changes back what is written to the parent.
	Unsettled int64
	// synced is the number of parents whose last sync ended without an error.
	Synced int64
}

// HookStatus tells how the calls of one hook have gone.
type HookStatus struct {
	// name is that of the hook in spec.hooks: sync, finalize or customize.
	Name string
	// lastSuccessTime is when the hook last returned a response that could be used.
	LastSuccessTime *metav1.Time
	// lastFailureTime is when a call last failed, or its response could not be used.
	LastFailureTime *metav1.Time
	// lastFailure is the cause of that failure, and what to do.
	LastFailure string
	// calls is the number of calls since this server process took the controller up.
	Calls int64
	// p50Milliseconds is the time within which half of the calls of the last minutes ended, as far as there were any.
	P50Milliseconds *int64
	// p99Milliseconds is the time within which 99 of 100 calls of the last minutes ended.
	P99Milliseconds *int64
}

// ParentError is why the last sync of a parent failed.
type ParentError struct {
	// group is the API group of the parent, empty for the core group.
	Group string
	// resource is the plural name of the parent's resource.
	Resource string
	// namespace is that of the parent, empty for one that is cluster-scoped.
	Namespace string
	// name is that of the parent.
	Name string
	// time is when the sync failed.
	Time metav1.Time
	// message is the beginning of the error.
	Message string
}

// Condition types and reasons of the controller kinds.
const (
	// ConditionReady is True while the controller runs with the definition of observedGeneration and syncs can succeed. It is
	// the one to wait for.
	ConditionReady = "Ready"
	// ConditionEstablished is True while the cluster serves every resource that the definition names, and the controller's
	// caches are filled.
	ConditionEstablished = "Established"
	// ConditionHooksHealthy is False while all recent calls of one of the hooks have failed, or its credentials are missing. It is
	// Unknown before the first call.
	ConditionHooksHealthy = "HooksHealthy"
	// ConditionProgressing is True while the first sync of all parents, a rolling update or a release of finalizers is under way, or
	// the finalize hook takes more than a minute.
	ConditionProgressing = "Progressing"
	// ConditionResourcesServed is True while the cluster serves every resource that the definition names.
	ConditionResourcesServed = "ResourcesServed"
	// ConditionFinalizersReleased is False while objects carry the controller's finalizer that the definition does not
	// finalize any more. It is there once there was something to release.
	ConditionFinalizersReleased = "FinalizersReleased"

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
	// ReasonFirstSync says that parents have not been synced since the controller started.
	ReasonFirstSync = "FirstSync"
	// ReasonRollingUpdate says that children are being updated to the latest revision, a few at a time.
	ReasonRollingUpdate = "RollingUpdate"
	// ReasonFinalizing says that a finalize hook has not returned "finalized": true for more than a minute, or that the syncs which call it fail.
	ReasonFinalizing = "Finalizing"
	// ReasonSettled says that nothing is under way.
	ReasonSettled = "Settled"
)
