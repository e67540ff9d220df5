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

package plan

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/owned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// LegacyManager is the field manager of Metacontroller, and of this server's writes that are no server-side apply.
const LegacyManager = "metacontroller"

// appliedPlace is the only path in the baseline of a child that is applied by the API server: all that our manager owns.
const appliedPlace = "metadata.managedFields"

// applyStep works out the step for a child of a server-side rule. The child is as desired if what our field manager owns is what
// is desired (docs/reference/compatibility.md#d13).
func (in Input) applyStep(step Step, d children.Desired, o *object.Object, rule children.Rule) (Step, error) {
	step.Manager, step.Force = in.Manager, rule.Force
	step.content = in.owning(step.content)
	text, err := merge.Encode(step.content)
	if err != nil {
		return step, err
	}
	step.desired = maphash.String(in.Memory.seed, step.Manager+text)
	if o == nil {
		step.Action = Create
		step.Body, err = json.Marshal(step.content)
		return step, err
	}
	o, err = in.present(&step, d, o, rule)
	if err != nil || o == nil {
		return step, err
	}
	if err := in.compareApplied(&step, o); err != nil {
		return step, err
	}
	if len(step.Changed) == 0 {
		return in.same(step), nil
	}
	step.Changed = step.Changed[:min(len(step.Changed), maxChanged)]
	return in.decide(step, rule.Method, step.applyBody)
}

// owning returns what is applied: the desired object with the owner reference, so that it is put back like any other field, and
// without nulls, which own nothing.
func (in Input) owning(applicable map[string]any) map[string]any {
	content, _ := withoutNulls(merge.Observable(applicable)).(map[string]any)
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	owners, _ := metadata["ownerReferences"].([]any)
	metadata["ownerReferences"] = append(slices.Clone(owners), any(in.Owner))
	content["metadata"] = metadata
	return content
}

func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for name, field := range value {
			if field != nil {
				result[name] = withoutNulls(field)
			}
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, item := range value {
			result[i] = withoutNulls(item)
		}
		return result
	default:
		return value
	}
}

// applyBody is the body for an existing child. The UID makes the API server refuse it for any other object.
func (s Step) applyBody() ([]byte, error) {
	content := maps.Clone(s.content)
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	metadata["uid"] = string(s.Observed.UID())
	content["metadata"] = metadata
	return json.Marshal(content)
}

// compareApplied notes in the step where the observed child differs.
func (in Input) compareApplied(step *Step, o *object.Object) error {
	observed, err := o.Decode()
	if err != nil {
		return err
	}
	fields, applied := o.AppliedFields(in.Manager)
	_, annotated := o.Annotation(merge.Annotation)
	_, legacy := o.AppliedFields(LegacyManager)
	step.Migrate = annotated || legacy && in.Manager != LegacyManager
	if !applied || annotated {
		return in.compareMerged(step, o, observed)
	}
	part, err := owned.Extract(observed, fields)
	if err != nil {
		return fmt.Errorf("reading what %s owns: %w", in.Manager, err)
	}
	desired, schema := applicableTo(step.content), in.schema(o.GroupVersionKind())
	before, known := in.Memory.baseline(in.Parent, step.Key, step.desired)
	if known && before.values[appliedPlace] == in.hashOf(part) {
		result, err := merge.Objects(observed, desired, desired, schema, before.holds)
		step.Changed = result.Changed
		return err
	}
	if !known {
		now := in.appliedBaseline(observed, part, desired, schema)
		step.returned = &now
	}
	outline, err := owned.Outline(observed, fields)
	if err != nil {
		return fmt.Errorf("reading what %s owns: %w", in.Manager, err)
	}
	// What was taken from us is not in the part, and what has another value is in the object.
	for _, has := range []map[string]any{part, observed} {
		result, err := merge.Objects(has, outline, desired, schema, saysTheSame)
		if err != nil {
			return err
		}
		step.Changed = append(step.Changed, result.Changed...)
	}
	slices.Sort(step.Changed)
	step.Changed = slices.Compact(step.Changed)
	if step.Migrate && len(step.Changed) == 0 {
		step.recordOnly, step.Changed = true, []string{appliedPlace}
	}
	return nil
}

// compareMerged compares a child that our manager has not applied yet: it was written by the merge strategy, by Metacontroller, or
// by somebody else. If nothing else differs, the ownership of its fields is moved over and that is all.
func (in Input) compareMerged(step *Step, o *object.Object, observed map[string]any) error {
	last, _, err := in.lastApplied(o, "")
	if err != nil {
		return err
	}
	result, err := merge.Objects(observed, applicableTo(observable(last)), applicableTo(step.content), in.schema(o.GroupVersionKind()), saysTheSame)
	if err != nil {
		return err
	}
	step.recordOnly = len(result.Changed) == 0
	step.Changed = append(slices.Clone(result.Changed), appliedPlace)
	return nil
}

// saysTheSame judges a difference between what is owned and what is desired.
func saysTheSame(d merge.Difference) bool {
	d.Applied = !d.Removed
	return merge.Normalized(d)
}

// applicableTo returns what is applied without what nobody owns, because it names the object.
func applicableTo(content map[string]any) map[string]any {
	if content == nil {
		return nil
	}
	shown := maps.Clone(content)
	delete(shown, "apiVersion")
	delete(shown, "kind")
	metadata, ok := shown["metadata"].(map[string]any)
	if !ok {
		return shown
	}
	metadata = maps.Clone(metadata)
	delete(metadata, "name")
	delete(metadata, "namespace")
	shown["metadata"] = metadata
	return shown
}

func (in Input) hashOf(part map[string]any) uint64 {
	return hashOf(in.Memory.seed, merge.Difference{Present: true, Observed: part})
}

// appliedBaseline remembers what a manager owns, and where the object differs from what is desired all the same: what the API
// server dropped has no owner.
func (in Input) appliedBaseline(observed, part, desired map[string]any, schema merge.Schema) baseline {
	b := baseline{seed: in.Memory.seed, values: map[string]uint64{appliedPlace: in.hashOf(part)}}
	// An object that cannot be merged has no baseline; the plan says why.
	_, _ = merge.Objects(observed, desired, desired, schema, func(d merge.Difference) bool {
		b.add(d)
		return true
	})
	return b
}

// returnedBy returns the baseline of an object that the API server returned for a step.
func (in Input) returnedBy(step Step, o *object.Object) baseline {
	none := baseline{seed: in.Memory.seed, values: map[string]uint64{}}
	content, err := o.Decode()
	if err != nil {
		return none
	}
	fields, ok := o.AppliedFields(step.Manager)
	if !ok {
		return none
	}
	part, err := owned.Extract(content, fields)
	if err != nil {
		return none
	}
	return in.appliedBaseline(content, part, applicableTo(step.content), in.schema(o.GroupVersionKind()))
}

// appliedBefore returns what server-side apply has applied to an object, for the merge strategy to take over; nil if nothing.
func (in Input) appliedBefore(o *object.Object) (map[string]any, error) {
	fields, ok := o.AppliedFields(in.Manager)
	if !ok || in.Manager == "" {
		return nil, nil
	}
	content, err := o.Decode()
	if err != nil {
		return nil, err
	}
	part, err := owned.Extract(content, fields)
	if err != nil {
		return nil, fmt.Errorf("reading what %s owns: %w", in.Manager, err)
	}
	part = in.applicable(part)
	part["kind"] = o.Kind()
	part["apiVersion"] = o.APIVersion()
	return part, nil
}
