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
	// observedGeneration is the metadata.generation of the definition that the running controller was built from.
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions tell whether the controller runs and, if not, what to do. Types: Ready.
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
	// counters count what the controller did since this server process took it up. They are brought up to date every few
	// seconds while they change.
	// +optional
	// +k8s:optional
	Counters *ControllerCounters `json:"counters,omitempty"`
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
	// rejectedAnswers is the number of hook answers that could not be used, because they were malformed or broke a rule.
	// Nothing of such an answer was applied.
	// +optional
	// +k8s:optional
	RejectedAnswers int64 `json:"rejectedAnswers,omitempty"`
	// conflicts is the number of times that a child could not be created because an object of its name exists that the
	// parent does not control.
	// +optional
	// +k8s:optional
	Conflicts int64 `json:"conflicts,omitempty"`
	// flapping is the number of times that a child was left alone because it kept changing back after each write.
	// +optional
	// +k8s:optional
	Flapping int64 `json:"flapping,omitempty"`
}

// Condition types and reasons of the controller kinds.
const (
	// ConditionReady is True while the controller runs with the definition of observedGeneration.
	ConditionReady = "Ready"

	// ReasonRunning says that the controller runs.
	ReasonRunning = "Running"
	// ReasonStarting says that the controller's caches are being filled.
	ReasonStarting = "Starting"
	// ReasonResourceNotFound says that the cluster does not serve a resource that the definition names. The controller
	// starts by itself when it appears.
	ReasonResourceNotFound = "ResourceNotFound"
	// ReasonInvalidDefinition says that the definition passed validation but cannot be run, for example without hooks.
	ReasonInvalidDefinition = "InvalidDefinition"
	// ReasonTerminating says that the controller is being deleted and its finalizers are being taken off the parents.
	ReasonTerminating = "Terminating"
)
