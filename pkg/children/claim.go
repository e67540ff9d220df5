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
	switch {
	case controlled && owner != p.UID:
		return Ignore
	case controlled && matches:
		return Claim
	case controlled && (p.Deleting || isAttachment(o)):
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

// isAttachment reports whether o is the attachment of a DecoratorController, which controls it by the same owner. A composite that
// does not select it leaves it alone (docs/reference/compatibility.md#d8).
func isAttachment(o *object.Object) bool {
	_, ok := o.Annotation(DecoratorMark)
	return ok
}

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
	return patch(o, append(others(o, owner.UID), owner))
}

// ReleasePatch returns the merge patch that takes all references to a parent off o.
func ReleasePatch(o *object.Object, parent types.UID) ([]byte, error) {
	return patch(o, others(o, parent))
}

// others returns the owners of an object that are not the one with a UID; never nil, which would not take them off.
func others(o *object.Object, uid types.UID) []object.OwnerReference {
	owners := append([]object.OwnerReference{}, o.OwnerReferences()...)
	return slices.DeleteFunc(owners, func(r object.OwnerReference) bool { return r.UID == uid })
}

func patch(o *object.Object, owners []object.OwnerReference) ([]byte, error) {
	encoded, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID(), "resourceVersion": o.ResourceVersion(), "ownerReferences": owners,
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the owners of %s: %w", o, err)
	}
	return encoded, nil
}
