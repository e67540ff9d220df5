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

package parent

import (
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// LostOfStatus returns the paths, such as status.phase, of fields that were sent as the status of an object and that it lacks as the API
// server returned it, in order. A field stands for all that was in it; one of elements of a list has a path such as status.nodes[].ready, as
// often as it is missing. Values that are empty are not missed: kinds that are built in leave them out.
func LostOfStatus(sent map[string]any, written *object.Object) []string {
	stored, _, err := StatusOf(written)
	if err != nil {
		return nil
	}
	found := lost(nil, "status", sent, stored)
	slices.Sort(found)
	return found
}

func lost(found []string, path string, sent, stored any) []string {
	switch s := sent.(type) {
	case map[string]any:
		now, _ := stored.(map[string]any)
		for name, value := range s {
			at := path + "." + name
			if kept, there := now[name]; there {
				found = lost(found, at, value, kept)
			} else if !isEmpty(value) {
				found = append(found, at)
			}
		}
	case []any:
		now, _ := stored.([]any)
		for i := range min(len(s), len(now)) {
			found = lost(found, path+"[]", s[i], now[i])
		}
	}
	return found
}

// isEmpty reports whether a value, or everything in it, is the zero value of its type.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, each := range v {
			if !isEmpty(each) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return value == nil || value == false || value == "" || value == int64(0) || value == float64(0)
}
