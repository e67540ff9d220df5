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

package validation

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// MalformedDurations finds the timeouts of webhooks that are not durations, such as 1d, in an object as JSON or YAML. They are looked for before
// the object is decoded, since decoding fails without naming the field. Nothing is found in what is neither JSON nor YAML.
func MalformedDurations(data []byte) field.ErrorList {
	var tree any
	if json.Unmarshal(data, &tree) != nil && yaml.Unmarshal(data, &tree) != nil {
		return nil
	}
	errs := walkDurations(tree, nil)
	slices.SortFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	return errs
}

func walkDurations(node any, path *field.Path) field.ErrorList {
	object, ok := node.(map[string]any)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	for key, value := range object {
		at := path.Child(key)
		if webhook, ok := value.(map[string]any); ok && key == "webhook" {
			if err := checkDuration(webhook["timeout"]); err != nil {
				errs = append(errs, field.Invalid(at.Child("timeout"), webhook["timeout"], err.Error()))
			}
		}
		errs = append(errs, walkDurations(value, at)...)
	}
	return errs
}

var errDuration = errors.New(`must be a duration in hours, minutes and seconds, such as "1h30m", "90s" or "500ms"`)

func checkDuration(value any) error {
	if value == nil {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return errDuration
	}
	if _, err := time.ParseDuration(text); err != nil {
		return errDuration
	}
	return nil
}
