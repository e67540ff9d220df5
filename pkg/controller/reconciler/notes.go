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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// maxSize is the most that the requests about one parent, with their responses, may have in bytes. Each of those during a rolling update
// repeats the children and the related objects.
const maxSize = 32 << 20

// show notes that an object of a resource is shown.
func (n *noting) show(resource schema.GroupResource, o *object.Object) {
	if n.shown == nil {
		n.shown = map[inspection.Place]struct{}{}
	}
	n.shown[inspection.Place{GroupResource: resource, Namespace: o.Namespace()}] = struct{}{}
}

func (n *noting) places() []inspection.Place { return slices.Collect(maps.Keys(n.shown)) }

// request notes the body of a request and that of the response, nil if it was not asked for, as people may see them. The error,
// inspection.ErrTooLarge, says that they are more than are shown of one parent.
func (n *noting) request(name hook.Name, revision string, body, response []byte) error {
	if n.size += len(body) + len(response); n.size > maxSize {
		return fmt.Errorf("%w: they have more than %d MiB", inspection.ErrTooLarge, maxSize>>20)
	}
	noted := v1alpha1.HookRequest{Hook: string(name), Revision: revision, Body: runtime.RawExtension{Raw: body}}
	if response != nil {
		noted.Response = &runtime.RawExtension{Raw: response}
	}
	n.requests = append(n.requests, noted)
	return nil
}

// finalizers notes that the parent gets other finalizers, and returns it as it is then.
func (n *noting) finalizers(o *object.Object, wanted []string) (*object.Object, error) {
	n.plan.Changes = append(n.plan.Changes, fieldChange("metadata.finalizers", plainOf(o.Finalizers()), plainOf(wanted)))
	return edited(o, "finalizers", plainOf(wanted))
}

// change notes changes of the parent, as people may see them: of a Secret, the copies of its values in annotations are hidden.
func (n *noting) change(o *object.Object, changes parent.Changes) error {
	fields, err := changes.Fields(o)
	if err != nil {
		return err
	}
	for _, f := range fields {
		before := o.Value(f.Path...)
		list := differences(strings.Join(f.Path, "."), before, plainOf(f.Value))
		for i := range list {
			if isSecret(o) && isCopy(list[i].Path) {
				hideValues(&list[i])
			}
		}
		n.plan.Changes = append(n.plan.Changes, list...)
	}
	return nil
}

// isCopy reports whether a change is one of an annotation with a second copy of the object.
func isCopy(path string) bool {
	return slices.ContainsFunc(lastApplied, func(name string) bool { return path == "metadata.annotations["+name+"]" })
}

// Claim implements Writer.
func (n *noting) Claim(_ context.Context, action v1alpha1.ChildAction, _ client.Target, o *object.Object, patch []byte) (*object.Object, error) {
	n.plan.Children = append(n.plan.Children, childPlan(o, action))
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

// childPlan returns the plan of an observed child.
func childPlan(o *object.Object, action v1alpha1.ChildAction) v1alpha1.ChildPlan {
	return v1alpha1.ChildPlan{APIVersion: o.APIVersion(), Kind: o.Kind(), Namespace: o.Namespace(), Name: o.Name(), Action: action}
}

// leave implements Writer: the response is one that was carried out before.
func (n *noting) leave() {
	for _, o := range n.s.Observed {
		left := childPlan(o, v1alpha1.ChildLeave)
		left.Reason = string(plan.Same)
		n.plan.Children = append(n.plan.Children, left)
	}
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

// reconcile notes what would be done with the children. The error is that of the sync.
func (n *noting) reconcile(ctx context.Context, in plan.Input) error {
	s, c := n.s, n.s.controller
	made, err := makePlan(in)
	held := !c.guard.Would(made.Deletions(), time.Now())
	s.deletedChildren = err == nil && !held && !slices.ContainsFunc(made.Steps, func(step plan.Step) bool {
		return step.Action == plan.Recreate || step.HoldsDeletion()
	})
	var refused map[children.Key]error
	var untried sets.Set[children.Key]
	if n.dryRun {
		refused, untried = c.shared.Applier.Check(ctx, made)
	}
	errs := []error{err}
	for i := range made.Steps {
		step := &made.Steps[i]
		child := stepPlan(step)
		cause := refused[step.Key]
		if step.Action == plan.Create {
			if conflict := s.conflict(step.Key); conflict != nil {
				cause, child.Reason = conflict, reasonConflict
			}
		}
		switch {
		case held && step.Deletes():
			child.Action, child.Reason = v1alpha1.ChildRefuse, reasonHeld
			child.Message = "spec.deletionGuard.maxDeletions does not allow it now: the deletion would be held until it is confirmed"
		case cause != nil:
			child.Action, child.Reason, child.Message = v1alpha1.ChildRefuse, cmp.Or(child.Reason, reasonRefused), message(cause)
			errs = append(errs, cause)
		case untried.Has(step.Key):
			child.Message = "no dry run was made: its namespace is created first"
		}
		n.plan.Children = append(n.plan.Children, child)
	}
	n.rest(made, err)
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

// rest notes the children that a plan does not deal with: err is about those for which no step could be worked out.
func (n *noting) rest(made plan.Plan, err error) {
	for _, key := range made.Failed {
		failed := v1alpha1.ChildPlan{
			Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Action: v1alpha1.ChildRefuse, Reason: reasonFailed, Message: message(err),
		}
		if rule, ok := n.s.controller.rules.For(key.GroupKind()); ok {
			failed.APIVersion = rule.Kind.GroupVersion().String()
		}
		n.plan.Children = append(n.plan.Children, failed)
	}
	left := sets.New(made.Kept...)
	for _, o := range n.s.Observed {
		if left.Has(children.KeyOf(o)) {
			kept := childPlan(o, v1alpha1.ChildLeave)
			kept.Reason, kept.Message = reasonRollout, "the rolling update has not reached it"
			n.plan.Children = append(n.plan.Children, kept)
		}
	}
}

// messages explain why a child is left as it is.
var messages = map[plan.Reason]string{
	plan.OnDelete: "it differs, and its update method OnDelete leaves it until it is deleted",
	plan.Deleting: "it is being deleted",
	plan.Flapping: "it is changed back after every write, and is left alone for a while",
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

// changesOf returns the places at which an object changes to what after is, as people may see them: values of Secrets are hidden.
func changesOf(o *object.Object, after map[string]any) ([]v1alpha1.FieldChange, error) {
	before, err := o.Decode()
	if err != nil {
		return nil, err
	}
	list := []v1alpha1.FieldChange{}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		list = append(list, differences(key, before[key], after[key])...)
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[key]; !stays {
			list = append(list, differences(key, before[key], nil)...)
		}
	}
	if isSecret(o) {
		for i := range list {
			hideValues(&list[i])
		}
	}
	return list, nil
}

func isSecret(o *object.Object) bool { return o.GroupVersionKind().Group == "" && o.Kind() == "Secret" }

// hideValues says that there are values and not which.
func hideValues(c *v1alpha1.FieldChange) {
	for _, value := range []**string{&c.Observed, &c.Desired} {
		if *value != nil {
			*value = textOf(plan.Hidden)
		}
	}
}
