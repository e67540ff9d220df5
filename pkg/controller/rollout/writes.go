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

package rollout

import (
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Operation is a kind of write of a ControllerRevision.
type Operation string

const (
	// Create the revision.
	Create Operation = "Create"
	// Update the revision. It carries the observed resourceVersion, so that a concurrent change is a conflict.
	Update Operation = "Update"
	// Delete the revision, with its UID as a precondition.
	Delete Operation = "Delete"
)

// Write is one change of a ControllerRevision.
type Write struct {
	// Operation to do.
	Operation Operation
	// Revision to write, or the observed one to delete. The caller may modify it.
	Revision *v1alpha1.ControllerRevision
}

// writes returns the writes after which the revisions hold the claims. The latest revision comes first and deletions come last,
// so that a child stays claimed even if a write in between fails. Older revisions without children are deleted.
func (p *Planner) writes(parent *unstructured.Unstructured, revisions []Revision, c claims) []Write {
	var changes, deletions []Write
	for index, r := range revisions {
		children := c.children(parent.GetNamespace(), index)
		switch {
		case !r.Exists:
			created := r.Object.DeepCopy()
			created.Children = children
			changes = append(changes, Write{Create, created})
		case index != 0 && len(children) == 0:
			if r.Object.DeletionTimestamp == nil {
				deletions = append(deletions, Write{Delete, r.Object.DeepCopy()})
			}
		default:
			if updated, changed := p.update(parent, r, children, index == 0); changed {
				changes = append(changes, Write{Update, updated})
			}
		}
	}
	return append(changes, deletions...)
}

// update returns the revision with the children, its owner, and, when it is the latest, with the right patch.
func (p *Planner) update(parent *unstructured.Unstructured, r Revision, children []v1alpha1.ControllerRevisionChildren, latest bool) (*v1alpha1.ControllerRevision, bool) {
	updated, changed := r.Object.DeepCopy(), false
	if !sameChildren(updated.Children, children) {
		updated.Children, changed = children, true
	}
	if metav1.GetControllerOfNoCopy(updated) == nil {
		own(updated, parent)
		changed = true
	}
	if latest {
		if patch, ok := repaired(r); ok {
			updated.ParentPatch.Raw, changed = patch, true
		}
		if changed && updated.Annotations[AnnotationFieldPaths] != p.recordedPaths() {
			if updated.Annotations == nil {
				updated.Annotations = map[string]string{}
			}
			updated.Annotations[AnnotationFieldPaths] = p.recordedPaths()
		}
	}
	return updated, changed
}

// repaired returns the patch that the latest revision must have; false when it has it.
func repaired(r Revision) ([]byte, bool) {
	if recorded, err := decodePatch(r.Object); err == nil && reflect.DeepEqual(recorded, r.patch) {
		return nil, false
	}
	patch, err := json.Marshal(r.patch)
	return patch, err == nil
}
