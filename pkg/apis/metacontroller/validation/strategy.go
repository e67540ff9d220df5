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
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

var percentage = regexp.MustCompile(`^\d+%$`)

// validateMaxUnavailable accepts 1 and more, and 1% to 100%.
func validateMaxUnavailable(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if value.Type == intstr.Int {
		if value.IntVal < 1 {
			return field.ErrorList{field.Invalid(path, value.IntVal, "must be greater than or equal to 1")}
		}
		return nil
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	if err != nil {
		percent = math.MaxInt
	}
	if !percentage.MatchString(value.StrVal) || percent < 1 || percent > 100 {
		return field.ErrorList{invalid(path, value.StrVal, "must be a number, or a percentage from 1% to 100%")}
	}
	return nil
}

// validateDeletionGuard accepts 0 and more, and 0% to 100%. That the value is there is checked by the generated rules.
func validateDeletionGuard(guard *v1alpha1.DeletionGuard, path *field.Path) field.ErrorList {
	if guard == nil || guard.MaxDeletions == nil {
		return nil
	}
	value, at := guard.MaxDeletions, path.Child("maxDeletions")
	if value.Type == intstr.Int {
		if value.IntVal < 0 {
			return field.ErrorList{field.Invalid(at, value.IntVal, "must be greater than or equal to 0")}
		}
		return nil
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	if err != nil || !percentage.MatchString(value.StrVal) || percent > 100 {
		return field.ErrorList{invalid(at, value.StrVal, "must be a number, or a percentage from 0% to 100%")}
	}
	return nil
}

// validateFieldPaths refuses paths that no object can have (docs/reference/compatibility.md#v-field-paths).
func validateFieldPaths(history *v1alpha1.CompositeControllerRevisionHistory, path *field.Path) field.ErrorList {
	if history == nil {
		return nil
	}
	var errs field.ErrorList
	for i, fieldPath := range bounded(history.FieldPaths) {
		if slices.Contains(strings.Split(fieldPath, "."), "") {
			errs = append(errs, invalid(path.Child("fieldPaths").Index(i), fieldPath,
				"must be names of fields joined by dots, such as spec.template"))
		}
	}
	return errs
}

// rolls reports whether a rule updates a few children at a time.
func rolls(rule *v1alpha1.CompositeControllerChildResourceRule) bool {
	s := rule.UpdateStrategy
	return s != nil && (s.Method == v1alpha1.ChildUpdateRollingInPlace || s.Method == v1alpha1.ChildUpdateRollingRecreate)
}
