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

package hook

import (
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// DecoratorRequest is the body that the sync and finalize hooks of a DecoratorController get. All its fields are always
// present.
type DecoratorRequest struct {
	// Controller is the DecoratorController that calls. Its status is always empty here.
	Controller *v1alpha1.DecoratorController `json:"controller"`
	// Object is the observed target, as the cluster stores it.
	Object *Object `json:"object"`
	// Attachments are the observed objects that this controller attached to the target, with an entry for each of
	// spec.attachments that the cluster serves.
	Attachments ObjectMap `json:"attachments"`
	// Related are the objects that the customize hook selects, with an entry for each of its rules. Without a customize
	// hook it is empty.
	Related ObjectMap `json:"related"`
	// Finalizing is true when the finalize hook is called, and false for the sync hook.
	Finalizing bool `json:"finalizing"`
}

// DecoratorResponse is the response of the sync and finalize hooks of a DecoratorController.
type DecoratorResponse struct {
	// Labels are set on the target. A null value removes the label; labels that are not mentioned stay as they are.
	Labels map[string]*string `json:"labels,omitempty"`
	// Annotations are set on the target. A null value removes the annotation; annotations that are not mentioned stay as
	// they are.
	Annotations map[string]*string `json:"annotations,omitempty"`
	// Status replaces the target's status as a whole. Absent or null, the status stays as it is; {} empties it, but for
	// kinds of Kubernetes' own, such as Deployment. It is therefore encoded even when it is empty.
	Status map[string]any `json:"status"`
	// Attachments are all attachments that shall exist, in their desired state. Observed attachments that are not listed are
	// deleted: absent, null and [] all mean that none shall exist. Each needs apiVersion, kind and metadata.name; without
	// metadata.namespace it goes to the target's namespace. Nil elements and two attachments of the same kind and name
	// are rejected.
	Attachments []*Object `json:"attachments"`
	// ResyncAfterSeconds, when greater than 0, makes the server call again after that many seconds, of which fractions
	// count, even if nothing changed; after a year at the latest. A change calls earlier.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds,omitempty"`
	// Finalized says that nothing is left to clean up. The server then removes the controller's finalizer from the target.
	// It has no effect when the target does not carry it.
	Finalized bool `json:"finalized,omitempty"`
	// Delete says that the target shall be deleted, after the labels, annotations and status of this response are written.
	// Attachments are left to the garbage collector, or to the finalize hook. It has no effect on a target that is being
	// deleted already.
	Delete bool `json:"delete,omitempty"`
}
