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

// CompositeRequest is the body that the sync and finalize hooks of a CompositeController get. All its fields are always
// present.
type CompositeRequest struct {
	// Controller is the CompositeController that calls. Its status is always empty here.
	Controller *v1alpha1.CompositeController `json:"controller"`
	// Parent is the observed parent, as the cluster stores it.
	Parent *Object `json:"parent"`
	// Children are the observed children that the parent controls, with an entry for each of spec.childResources that the
	// cluster serves.
	Children ObjectMap `json:"children"`
	// Related are the objects that the customize hook selects, with an entry for each of its rules. Without a customize
	// hook it is empty.
	Related ObjectMap `json:"related"`
	// Finalizing is true when the finalize hook is called, and false for the sync hook.
	Finalizing bool `json:"finalizing"`
}

// CompositeResponse is the response of the sync and finalize hooks of a CompositeController.
type CompositeResponse struct {
	// Status replaces the parent's status as a whole. The server sets observedGeneration in it. Absent, null
	// or {}, the new status holds observedGeneration only; a parent of a kind of Kubernetes' own, such as Deployment, keeps its
	// status then, and also when the status has a field that the kind does not have.
	Status map[string]any `json:"status,omitempty"`
	// Children are all children that shall exist, in their desired state. Observed children that are not listed are deleted:
	// absent, null and [] all mean that none shall exist. Each child needs apiVersion, kind and metadata.name; without
	// metadata.namespace it goes to the parent's namespace. The order matters to rolling updates only. Nil elements and
	// two children of the same kind and name are rejected.
	Children []*Object `json:"children"`
	// ResyncAfterSeconds, when greater than 0, makes the server call again after that many seconds, of which fractions
	// count, even if nothing changed; after a year at the latest. A change calls earlier.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds,omitempty"`
	// Finalized says that nothing is left to clean up. The server then removes the controller's finalizer from the parent.
	// It has no effect when the parent does not carry it.
	Finalized bool `json:"finalized,omitempty"`
}
