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

import "k8s.io/apimachinery/pkg/util/intstr"

// DeletionGuard bounds how many children of a controller its hooks may have deleted within a minute.
type DeletionGuard struct {
	// maxDeletions is the largest number of children of all parents together that may be deleted within a minute: a number, or a
	// percentage of the children that there were before (rounded down, but at least 1 unless it is 0%). Children that are deleted to
	// be created again count; those that the garbage collector deletes do not. A sync that would pass the limit deletes nothing, and
	// from then on no sync of the controller does, until the annotation metacontroller.k8s.io/confirm-deletions confirms the
	// deletions or no hook wants those that are held. 0: each deletion has to be confirmed. Required.
	// +required
	// +k8s:required
	// +k8s:opaqueType
	MaxDeletions *intstr.IntOrString `json:"maxDeletions"`
}

// AnnotationConfirmDeletions confirms, on a controller object, the deletions that its spec.deletionGuard holds. The value is the one that
// the condition DeletionsHeld names. It confirms that one hold, for ten minutes.
const AnnotationConfirmDeletions = "metacontroller.k8s.io/confirm-deletions"
