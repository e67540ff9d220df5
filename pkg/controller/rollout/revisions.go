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
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Revision is one revision of a parent for which the hook is called.
type Revision struct {
	// Object is the ControllerRevision: as observed, or as it is to be created.
	Object *v1alpha1.ControllerRevision
	// Exists is false for the latest revision when it has no ControllerRevision yet.
	Exists bool
	// Parent is the parent in the hook's request. It shares data with the parents of the other revisions.
	Parent map[string]any

	patch map[string]any
}

// ParentJSON returns Parent, encoded.
func (r *Revision) ParentJSON() ([]byte, error) {
	encoded, err := json.Marshal(r.Parent)
	if err != nil {
		return nil, fmt.Errorf("encoding the parent of ControllerRevision %s: %w", r.Object.Name, err)
	}
	return encoded, nil
}

// Revisions returns the revisions of the parent: first the latest, whose Parent is the parent itself, then the older ones
// from the newest to the oldest. The parent is its decoded content with integers as int64 and other numbers as float64.
// Candidates may be any ControllerRevisions; those that are not the parent's are ignored. The error is an *UnreadableError
// when one of the parent's revisions cannot be decoded.
func (p *Planner) Revisions(parent map[string]any, candidates []*v1alpha1.ControllerRevision) ([]Revision, error) {
	object := &unstructured.Unstructured{Object: parent}
	patch := extract(parent, p.paths)
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the revision of %s %s: %w", p.config.Kind, object.GetName(), err)
	}
	latest := Revision{Object: p.create(object, encoded), Parent: parent, patch: patch}
	name := latest.Object.Name
	var older []Revision
	for _, r := range candidates {
		if !p.owns(object, r) {
			continue
		}
		recorded, err := decodePatch(r)
		switch {
		case r.Name == name, err == nil && !latest.Exists && reflect.DeepEqual(recorded, patch):
			if latest.Exists {
				older = append(older, latest)
			}
			latest.Object, latest.Exists = r, true
		case err != nil:
			return nil, &UnreadableError{Namespace: r.Namespace, Name: r.Name, Err: err}
		default:
			older = append(older, Revision{
				Object: r, Exists: true, patch: recorded,
				Parent: restore(parent, recorded, p.paths, fieldPaths(r)),
			})
		}
	}
	slices.SortStableFunc(older, func(a, b Revision) int {
		return cmp.Or(b.Object.CreationTimestamp.Compare(a.Object.CreationTimestamp.Time), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return append([]Revision{latest}, older...), nil
}

func decodePatch(r *v1alpha1.ControllerRevision) (map[string]any, error) {
	if len(r.ParentPatch.Raw) == 0 {
		return nil, errors.New("it is empty")
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(r.ParentPatch.Raw, &patch); err != nil {
		return nil, err
	}
	if patch == nil {
		return nil, errors.New("it is null")
	}
	return patch, nil
}

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
