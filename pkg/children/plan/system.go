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
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

// systemFields are the fields of metadata that a hook does not decide (contract §12.2).
var systemFields = []string{
	"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
	"managedFields",
}

// observable is what of a desired object can be compared with an observed one: without what the system decides, the
// status, and the annotation that is ours.
func observable(desired map[string]any) map[string]any {
	shown := maps.Clone(merge.Observable(desired))
	delete(shown, "status")
	// The version in which the object is written may differ from the one in which it was read.
	delete(shown, "apiVersion")
	metadata, ok := shown["metadata"].(map[string]any)
	if !ok {
		return shown
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
		}
	}
	shown["metadata"] = metadata
	return shown
}

func observableLast(text string) map[string]any {
	last := merge.Decode(text)
	if last == nil {
		return nil
	}
	return observable(last)
}

// restoreSystemFields is a second guard: what the merge did to fields that are the system's is undone.
func restoreSystemFields(observed map[string]any, result merge.Result) (map[string]any, []string) {
	changed := slices.DeleteFunc(slices.Clone(result.Changed), func(path string) bool {
		if path == "status" || strings.HasPrefix(path, "status.") {
			return true
		}
		field, ok := strings.CutPrefix(path, "metadata.")
		return ok && slices.Contains(systemFields, field)
	})
	if len(changed) == len(result.Changed) {
		return result.Object, changed
	}
	merged := maps.Clone(result.Object)
	restore(merged, observed, "status")
	was, _ := observed["metadata"].(map[string]any)
	if is, ok := merged["metadata"].(map[string]any); ok {
		is = maps.Clone(is)
		for _, field := range systemFields {
			restore(is, was, field)
		}
		merged["metadata"] = is
	}
	return merged, changed
}

func restore(to, from map[string]any, field string) {
	if value, ok := from[field]; ok {
		to[field] = value
	} else {
		delete(to, field)
	}
}

func joined(errs []error) error { return errors.Join(errs...) }
