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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// maxChanged is how many places of a difference are kept to be told.
const maxChanged = 5

// inVersion returns the observed child in the version of the step, nil if it is gone meanwhile.
func (in Input) inVersion(step *Step, rule children.Rule, o *object.Object) (*object.Object, error) {
	if in.Read == nil {
		step.Resource = rule.ResourceIn(o.APIVersion())
		return o, nil
	}
	read, err := in.Read(step.Resource, step.Namespace, step.Name)
	if err != nil {
		return nil, fmt.Errorf("reading it in version %s: %w", step.Resource.Version, err)
	}
	if read == nil || read.UID() != o.UID() || read.Deleting() {
		return nil, nil
	}
	step.Observed = read
	return read, nil
}

// merge merges what is applied into the observed object and notes in the step what that changes. The result is nil if
// nothing changes.
func (in Input) merge(step *Step, o *object.Object, text string) (map[string]any, error) {
	observed, err := o.Decode()
	if err != nil {
		return nil, err
	}
	last, fresh, err := in.lastApplied(o, text)
	if err != nil {
		return nil, err
	}
	result, err := merge.Objects(observed, observable(last), observable(step.content), in.schema(o.GroupVersionKind()),
		in.keep(step, fresh))
	if err != nil {
		return nil, err
	}
	merged, changed := restoreSystemFields(observed, result)
	if !fresh {
		step.recordOnly = len(changed) == 0 && last != nil
		changed = append(changed, "metadata.annotations["+merge.Annotation+"]")
	}
	if len(changed) == 0 {
		return nil, nil
	}
	step.Changed = changed[:min(len(changed), maxChanged)]
	return withAnnotation(merged, text), nil
}

// lastApplied returns what was applied to an object last, and whether that is what is to be applied now.
func (in Input) lastApplied(o *object.Object, text string) (last map[string]any, fresh bool, err error) {
	recorded, ok := o.Annotation(merge.Annotation)
	if !ok {
		last, err = in.appliedBefore(o)
		return last, false, err
	}
	last = in.applicable(merge.Decode(recorded))
	if recorded == text || last == nil || merge.IsSecret(last) {
		// What Metacontroller recorded of a Secret in clear is never up to date.
		return last, recorded == text, nil
	}
	// Metacontroller recorded fields, too, that are not ours to apply; that alone is no reason to write the child.
	again, err := merge.Encode(last)
	return last, err == nil && again == text, err
}

// keep returns how differences are judged that are no change of what is desired. When the desired state was applied before,
// what the API server returned after our own write is as desired. When that is not known, because this process made no
// write, or where only other fields are desired anew, it is what API servers are known to do.
func (in Input) keep(step *Step, fresh bool) merge.Keep {
	if !fresh {
		return merge.Normalized
	}
	if returned, known := in.Memory.baseline(in.Parent, step.Key, step.desired); known {
		return returned.holds
	}
	step.returned = &baseline{seed: in.Memory.seed, values: map[string]uint64{}}
	return func(d merge.Difference) bool {
		if !merge.Normalized(d) {
			return false
		}
		step.returned.add(d)
		return true
	}
}

func (in Input) schema(kind schema.GroupVersionKind) merge.Schema {
	if in.Schema == nil {
		return nil
	}
	return in.Schema(kind)
}

// createBody returns the body that creates a child. The status is sent as the hook returned it: kinds without a status
// subresource take it (docs/reference/contract.md#s12.2).
func (in Input) createBody(content map[string]any, status any, text string) ([]byte, error) {
	created := withAnnotation(content, text)
	metadata, _ := created["metadata"].(map[string]any)
	owners, _ := metadata["ownerReferences"].([]any)
	metadata["ownerReferences"] = append(slices.Clone(owners), in.Owner)
	if status != nil {
		created["status"] = status
	}
	body, err := json.Marshal(created)
	if err != nil {
		return nil, fmt.Errorf("encoding the new object: %w", err)
	}
	return body, nil
}

// withAnnotation returns a copy of an object, as deep as needed, with the last-applied annotation.
func withAnnotation(content map[string]any, text string) map[string]any {
	result := maps.Clone(content)
	metadata, _ := result["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	annotations, _ := metadata["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = make(map[string]any, 1)
	}
	annotations[merge.Annotation] = text
	metadata["annotations"] = annotations
	result["metadata"] = metadata
	return result
}
