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

package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// previewFinalizer is what ensureFinalizer does in a preview.
func (s *Sync) previewFinalizer() error {
	wanted, changes := s.controller.finalizer.Wanted(s.Parent)
	if !changes {
		return nil
	}
	s.preview.plan.Changes = append(s.preview.plan.Changes, fieldChange("metadata.finalizers", plainOf(s.Parent.Finalizers()), plainOf(wanted)))
	edited, err := edited(s.Parent, "finalizers", plainOf(wanted))
	if err != nil {
		return err
	}
	if s.Parent = edited; !s.controller.relevant(s.Source, edited) {
		s.Parent = nil
	}
	return nil
}

// edited returns an object with another value of a field of its metadata.
func edited(o *object.Object, field string, value any) (*object.Object, error) {
	content, err := o.Decode()
	if err != nil {
		return nil, err
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s has no metadata", o)
	}
	metadata[field] = value
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o, err)
	}
	return object.Parse(encoded, object.ParseOptions{KeepManagedFields: true})
}

// changeParent takes note of changes of the parent.
func (p *preview) changeParent(o *object.Object, changes parent.Changes) error {
	fields, err := changes.Fields(o)
	if err != nil {
		return err
	}
	for _, f := range fields {
		before := decoded(o, f.Path)
		p.plan.Changes = append(p.plan.Changes, differences(strings.Join(f.Path, "."), before, plainOf(f.Value))...)
	}
	return nil
}

// plainOf returns a value as it is decoded from JSON.
func plainOf(value any) any {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil // Not reached: it was decoded from JSON.
	}
	var plain any
	if utiljson.Unmarshal(encoded, &plain) != nil {
		return nil // Likewise.
	}
	return plain
}

// differences returns the places at which two values differ. Lists are one value.
func differences(path string, before, after any) []v1alpha1.FieldChange {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	one, isMap := before.(map[string]any)
	other, areMaps := after.(map[string]any)
	if !isMap && before != nil || !areMaps && after != nil || len(one)+len(other) == 0 {
		return []v1alpha1.FieldChange{fieldChange(path, before, after)}
	}
	keys := map[string]any{}
	maps.Copy(keys, one)
	maps.Copy(keys, other)
	var list []v1alpha1.FieldChange
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		below := path + "." + key
		if strings.ContainsAny(key, "./") {
			below = path + "[" + key + "]"
		}
		list = append(list, differences(below, one[key], other[key])...)
	}
	return list
}

func fieldChange(path string, before, after any) v1alpha1.FieldChange {
	return v1alpha1.FieldChange{Path: path, Observed: textOf(before), Desired: textOf(after)}
}

// textOf returns a value as JSON, nil for none.
func textOf(value any) *string {
	if value == nil {
		return nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil // Not reached: it was decoded from JSON.
	}
	return new(string(encoded))
}

// claim takes note of an adoption or release, and returns the object as it is then.
func (p *preview) claim(action v1alpha1.ChildAction, o *object.Object, patch []byte) (*object.Object, error) {
	p.plan.Children = append(p.plan.Children, of(o, action))
	var patched struct {
		Metadata struct {
			OwnerReferences any `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(patch, &patched); err != nil {
		return nil, fmt.Errorf("reading who owns %s: %w", o, err)
	}
	return edited(o, "ownerReferences", patched.Metadata.OwnerReferences)
}

// of returns the plan of an observed child.
func of(o *object.Object, action v1alpha1.ChildAction) v1alpha1.ChildPlan {
	return v1alpha1.ChildPlan{APIVersion: o.APIVersion(), Kind: o.Kind(), Namespace: o.Namespace(), Name: o.Name(), Action: action}
}

// leaveAll takes note that nothing is done with the children: the response is one that was carried out before.
func (p *preview) leaveAll(observed []*object.Object) {
	for _, o := range observed {
		left := of(o, v1alpha1.ChildLeave)
		left.Reason = string(plan.Same)
		p.plan.Children = append(p.plan.Children, left)
	}
}

// WouldWriteRevision takes note of a write of a ControllerRevision, and reports whether it must not be made.
func (s *Sync) WouldWriteRevision(operation, name string) bool {
	if s.preview == nil {
		return false
	}
	s.preview.plan.Revisions = append(s.preview.plan.Revisions, v1alpha1.RevisionPlan{Action: operation, Name: name})
	return true
}

// children takes note of what would be done with the children. The error is that of the sync.
func (p *preview) children(ctx context.Context, s *Sync, in plan.Input) error {
	c := s.controller
	made, held, err := c.children.Plan(in)
	errs := []error{err}
	var refused map[children.Key]error
	if p.dryRun {
		refused = c.shared.Applier.Check(ctx, made)
	}
	for i := range made.Steps {
		step := &made.Steps[i]
		child := stepPlan(step)
		cause := refused[step.Key]
		if conflict := c.children.Conflict(s.Key, s.Parent, step.Key); step.Action == plan.Create && conflict != nil {
			cause, child.Reason = conflict, reasonConflict
		}
		switch {
		case held && step.Deletes():
			child.Action, child.Reason = v1alpha1.ChildRefuse, reasonHeld
			child.Message = "spec.deletionGuard.maxDeletions does not allow it now: the deletion would be held until it is confirmed"
		case cause != nil:
			child.Action, child.Message = v1alpha1.ChildRefuse, message(cause)
			if child.Reason == "" {
				child.Reason = reasonRefused
			}
			errs = append(errs, cause)
		}
		p.plan.Children = append(p.plan.Children, child)
	}
	p.rest(s, made, err)
	return errors.Join(errs...)
}

// Reasons of a refusal, beside those of plans.
const (
	reasonConflict = "Conflict"
	reasonHeld     = "DeletionsHeld"
	reasonRefused  = "RefusedByDryRun"
	reasonFailed   = "Failed"
	reasonRollout  = "Rollout"
)

// rest takes note of the children that a plan does not deal with.
func (p *preview) rest(s *Sync, made plan.Plan, err error) {
	for _, key := range made.Failed {
		failed := v1alpha1.ChildPlan{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Action: v1alpha1.ChildRefuse, Reason: reasonFailed}
		if rule, ok := s.controller.rules.For(key.GroupKind()); ok {
			failed.APIVersion = rule.Kind.GroupVersion().String()
		}
		failed.Message = message(err)
		p.plan.Children = append(p.plan.Children, failed)
	}
	for _, o := range s.Observed {
		if slices.Contains(made.Kept, children.KeyOf(o)) {
			kept := of(o, v1alpha1.ChildLeave)
			kept.Reason, kept.Message = reasonRollout, "the rolling update has not reached it"
			p.plan.Children = append(p.plan.Children, kept)
		}
	}
}

// messages explain why a child is left as it is.
var messages = map[plan.Reason]string{
	plan.OnDelete: "it differs, and its update method OnDelete leaves it until it is deleted",
	plan.Deleting: "it is being deleted",
	plan.Flapping: "it differs again after many writes, and is left alone for a while",
	plan.Stale:    "it changed after it was observed, and is looked at again",
	plan.Untried:  "it would have to be deleted, and it cannot be tried whether the differences are the API server's doing",
}

// stepPlan returns a step as people see it.
func stepPlan(s *plan.Step) v1alpha1.ChildPlan {
	child := v1alpha1.ChildPlan{
		APIVersion: s.Resource.GroupVersion().String(), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name,
		Action: v1alpha1.ChildAction(s.Action), Reason: string(s.Reason), Message: messages[s.Reason], FieldManager: s.Manager,
	}
	for _, c := range s.ShownChanges() {
		child.Changes = append(child.Changes, fieldChange(c.Path, c.Observed, c.Desired))
	}
	if s.Action == plan.Create {
		body := slices.Clone(s.Body)
		if s.Secret() {
			body = redact(body)
		}
		child.Object = &runtime.RawExtension{Raw: bytes.TrimSpace(body)}
	}
	return child
}
