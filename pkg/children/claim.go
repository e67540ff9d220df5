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

package children

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Decision is what becomes of a candidate.
type Decision int

const (
	// Ignore leaves the object alone: another parent controls it, or it is an orphan that is not selected.
	Ignore Decision = iota
	// Claim takes the object as a child; it is controlled by the parent already.
	Claim
	// Adopt makes the parent the controller of an object that has none.
	Adopt
	// Release takes the parent's reference off an object that it no longer selects.
	Release
)

// Parent is what a decision must know of the parent.
type Parent struct {
	UID      types.UID
	Deleting bool
	// Selector selects the parent's children. Nil selects nothing.
	Selector labels.Selector
}

// Decide returns what becomes of a candidate.
func (p Parent) Decide(o *object.Object) Decision {
	matches := p.Selector != nil && p.Selector.Matches(o.LabelSet())
	owner, controlled := o.ControllerUID()
	// The same owner controls the attachments of a DecoratorController. A composite that does not select them leaves them alone (docs/reference/compatibility.md#d8).
	_, attached := o.Annotation(DecoratorMark)
	switch {
	case controlled && owner != p.UID:
		return Ignore
	case controlled && matches:
		return Claim
	case controlled && (p.Deleting || attached):
		return Ignore
	case controlled:
		return Release
	case !matches || p.Deleting || o.Deleting():
		return Ignore
	}
	return Adopt
}

// DecoratorMark is the annotation by which a DecoratorController knows its attachments; its value is the controller's name
// (docs/reference/contract.md#s17.2).
const DecoratorMark = "metacontroller.k8s.io/decorator-controller"

// Stays reports whether a child that has changed is still one of the parent and of its controller.
func Stays(before, now *object.Object, parent types.UID) bool {
	mark, marked := before.Annotation(DecoratorMark)
	markNow, markedNow := now.Annotation(DecoratorMark)
	return now.UID() == before.UID() && now.ControlledBy(parent) && now.Deleting() == before.Deleting() && mark == markNow && marked == markedNow &&
		maps.Equal(now.Labels(), before.Labels())
}

// OwnerOf returns the reference that a child has to its parent.
func OwnerOf(parent *object.Object) object.OwnerReference {
	return object.OwnerReference{
		APIVersion: parent.APIVersion(), Kind: parent.Kind(), Name: parent.Name(), UID: parent.UID(),
		Controller: true, BlockOwnerDeletion: true,
	}
}

// OwnerContent returns that reference as it stands in a decoded object.
func OwnerContent(parent *object.Object) map[string]any {
	r := OwnerOf(parent)
	return map[string]any{
		"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "uid": string(r.UID),
		"controller": r.Controller, "blockOwnerDeletion": r.BlockOwnerDeletion,
	}
}

// AdoptPatch returns the merge patch that makes owner the controller of o.
func AdoptPatch(o *object.Object, owner object.OwnerReference) ([]byte, error) {
	return encode(o, metadataOf(o, append(others(o, owner.UID), owner)))
}

// ReleasePatch returns the merge patch that takes all references to a parent off o.
func ReleasePatch(o *object.Object, parent types.UID) ([]byte, error) {
	return encode(o, metadataOf(o, others(o, parent)))
}

// RetainPatch returns the merge patch that takes off o what says that it belongs to a parent and its controller: all references to the parent, and
// labels and annotations with these values. What says which fields were applied stays: whoever adopts o can remove them.
func RetainPatch(o *object.Object, parent types.UID, labels, annotations map[string]string) ([]byte, error) {
	keeper, _ := KeptBy(o)
	metadata := metadataOf(o, slices.DeleteFunc(others(o, parent), func(r object.OwnerReference) bool { return r.UID == keeper }))
	for field, marks := range map[string]struct{ ours, has map[string]string }{
		"labels": {labels, o.Labels()}, "annotations": {annotations, o.Annotations()},
	} {
		gone := map[string]any{}
		for name, value := range marks.ours {
			if marks.has[name] == value {
				gone[name] = nil
			}
		}
		if len(gone) > 0 {
			metadata[field] = gone
		}
	}
	return encode(o, metadata)
}

// Immortal is the namespace that owns cluster-scoped children that stay without their parent: no API server deletes it.
const Immortal = "kube-system"

// KeeperOf returns the name of the namespace that owns a child beside its parent if it is to stay without that: the one that it is in, or
// [Immortal]. The garbage collector, which acts before any controller can when the parent is deleted in the foreground, deletes no object that has an
// owner left. It takes the parent off the owners instead. The namespace changes nothing else: what is in it goes with it anyway.
func KeeperOf(child Key) string { return cmp.Or(child.Namespace, Immortal) }

// KeptBy returns the UID of that owner of an object, false if it has none.
func KeptBy(o *object.Object) (keeper types.UID, kept bool) {
	for _, r := range o.OwnerReferences() {
		if r.APIVersion == "v1" && r.Kind == "Namespace" && !r.Controller && r.Name == KeeperOf(KeyOf(o)) {
			return r.UID, true
		}
	}
	return "", false
}

// others returns the owners of an object that are not the one with a UID; never nil, which would not take them off.
func others(o *object.Object, uid types.UID) []object.OwnerReference {
	owners := append([]object.OwnerReference{}, o.OwnerReferences()...)
	return slices.DeleteFunc(owners, func(r object.OwnerReference) bool { return r.UID == uid })
}

func metadataOf(o *object.Object, owners []object.OwnerReference) map[string]any {
	return map[string]any{"uid": o.UID(), "resourceVersion": o.ResourceVersion(), "ownerReferences": owners}
}

func encode(o *object.Object, metadata map[string]any) ([]byte, error) {
	encoded, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encoding the owners of %s: %w", o, err)
	}
	return encoded, nil
}
