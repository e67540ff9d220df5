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

package preview

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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

// decoded returns a field of an object, nil if it is not there.
func decoded(o *object.Object, path []string) any {
	var value any
	raw, ok := o.Field(path...)
	if !ok || utiljson.Unmarshal(raw, &value) != nil {
		return nil
	}
	return value
}

// Differences returns the places at which an object changes to what after is, as people may see them: values of Secrets are hidden.
func Differences(o *object.Object, after map[string]any) ([]v1alpha1.FieldChange, error) {
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
