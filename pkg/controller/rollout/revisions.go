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
// when one of the parent's revisions cannot be decoded, or holds another patch than the one of which its name has the digest. The
// latest revision is known by its name and repaired.
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
		if err == nil && r.Name != name {
			// Hooks are shown what is in it as the parent's.
			err = checkDigest(object.GetUID(), r.Name, recorded)
		}
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
