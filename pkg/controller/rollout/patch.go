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
	"maps"
	"slices"
	"strings"
)

// extract returns an object that holds only the fields at the paths. Missing fields are left out.
func extract(parent map[string]any, paths [][]string) map[string]any {
	patch := map[string]any{}
	for _, path := range paths {
		if value, ok := field(parent, path); ok {
			patch = set(patch, path, value)
		}
	}
	return patch
}

// restore returns the parent as it was in the revision that patch records. Every field at the paths is taken from the
// patch. A field that the patch lacks is removed if the revision recorded its path, because then the parent did not have it;
// otherwise the parent's present field stays. The result shares what is not changed with the parent.
func restore(parent, patch map[string]any, paths [][]string, recorded []string) map[string]any {
	for _, path := range paths {
		if value, ok := field(patch, path); ok {
			parent = set(parent, path, value)
		} else if covers(recorded, path) {
			parent = remove(parent, path)
		}
	}
	return parent
}

// covers reports whether one of the recorded paths is the path or a prefix of it.
func covers(recorded, path []string) bool {
	dotted := strings.Join(path, ".") + "."
	return slices.ContainsFunc(recorded, func(r string) bool { return strings.HasPrefix(dotted, r+".") })
}

func field(object map[string]any, path []string) (any, bool) {
	for n, name := range path {
		value, ok := object[name]
		if !ok || n == len(path)-1 {
			return value, ok
		}
		if object, ok = value.(map[string]any); !ok {
			return nil, false
		}
	}
	return nil, false
}

// set returns a copy of object with the value at the path. Missing objects above it are created.
func set(object map[string]any, path []string, value any) map[string]any {
	changed := make(map[string]any, len(object)+1)
	maps.Copy(changed, object)
	if len(path) > 1 {
		below, _ := object[path[0]].(map[string]any)
		value = set(below, path[1:], value)
	}
	changed[path[0]] = value
	return changed
}

// remove returns object without the field at the path.
func remove(object map[string]any, path []string) map[string]any {
	if _, ok := field(object, path); !ok {
		return object
	}
	changed := maps.Clone(object)
	if len(path) == 1 {
		delete(changed, path[0])
	} else if below, ok := object[path[0]].(map[string]any); ok {
		changed[path[0]] = remove(below, path[1:])
	}
	return changed
}
