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
	"maps"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

// systemFields are the fields of metadata that a hook does not decide (docs/reference/contract.md#s12.2).
var systemFields = []string{
	"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
	"managedFields",
}

// applicable returns what of an object that a hook returned is applied: not what the system decides, nor the status, nor
// the annotation and the owner reference that are ours. Hooks return such fields when they change and return an object that
// they were sent; they differ after every write (docs/reference/contract.md#s12.5). The object itself stays as it is.
func (in *Input) applicable(content map[string]any) map[string]any {
	if content == nil {
		return nil
	}
	result := maps.Clone(content)
	delete(result, "status")
	metadata, ok := result["metadata"].(map[string]any)
	if !ok {
		return result
	}
	metadata = maps.Clone(metadata)
	for _, field := range systemFields {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		if _, ours := annotations[merge.Annotation]; ours {
			annotations = maps.Clone(annotations)
			delete(annotations, merge.Annotation)
			metadata["annotations"] = annotations
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
	if owners, ok := metadata["ownerReferences"].([]any); ok {
		others := slices.DeleteFunc(slices.Clone(owners), func(o any) bool {
			owner, ok := o.(map[string]any)
			return ok && owner["uid"] == in.Owner["uid"]
		})
		metadata["ownerReferences"] = others
		if len(others) == 0 {
			delete(metadata, "ownerReferences")
		}
	}
	result["metadata"] = metadata
	return result
}

// observable returns what is applied in the form in which it can be compared with an observed object.
func observable(applied map[string]any) map[string]any {
	if applied == nil {
		return nil
	}
	shown := maps.Clone(merge.Observable(applied))
	// The version in which the object is written may differ from the one that was applied last.
	delete(shown, "apiVersion")
	return shown
}

// ofSystem reports whether a path is that of a field that is the system's. What is applied has none; it is a second guard.
func ofSystem(path string) bool {
	if within(path, "status") {
		return true
	}
	field, ok := strings.CutPrefix(path, "metadata.")
	return ok && slices.Contains(systemFields, field)
}
