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

package deferredstatus

// TurnsFalse reports whether a condition that a status had with another value is "False" in the next one. Such a status says that
// something went wrong, and is not deferred.
func TurnsFalse(before, after map[string]any) bool {
	former := conditions(before)
	for name, now := range conditions(after) {
		if was, ok := former[name]; ok && was != "False" && now == "False" {
			return true
		}
	}
	return false
}

// conditions returns the values of the conditions of a status by their types. What is not shaped as one is none.
func conditions(status map[string]any) map[string]string {
	list, _ := status["conditions"].([]any)
	values := make(map[string]string, len(list))
	for _, each := range list {
		condition, _ := each.(map[string]any)
		name, _ := condition["type"].(string)
		if value, ok := condition["status"].(string); ok && name != "" {
			values[name] = value
		}
	}
	return values
}
