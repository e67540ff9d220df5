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
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// validateAPIVersion accepts v1 and group/version. That it is given at all is checked by the generated validation.
func validateAPIVersion(apiVersion string, path *field.Path) field.ErrorList {
	if apiVersion == "" {
		return nil
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || version.Version == "" || (strings.Contains(apiVersion, "/") && version.Group == "") {
		return field.ErrorList{field.Invalid(path, apiVersion, "must be a group and version such as apps/v1, or v1 for the core group")}
	}
	return nil
}

func groupResource(rule metacontroller.ResourceRule) (schema.GroupResource, bool) {
	version, err := schema.ParseGroupVersion(rule.APIVersion)
	if err != nil || rule.Resource == "" {
		return schema.GroupResource{}, false
	}
	return schema.GroupResource{Group: version.Group, Resource: rule.Resource}, true
}

func validateLabelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// validateAnnotationSelector demands what Metacontroller needs to build a label selector of it (docs/reference/contract.md#s1.2). Unlike
// with label selectors, the names of the errors' fields are those of the annotation selector.
func validateAnnotationSelector(selector *metacontroller.AnnotationSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(selector.MatchAnnotations)) {
		value := selector.MatchAnnotations[key]
		at := path.Child("matchAnnotations").Key(key)
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, msg))
		}
		for _, msg := range validation.IsValidLabelValue(value) {
			errs = append(errs, field.Invalid(at, value, msg))
		}
	}
	return append(errs, validateLabelSelector(&metav1.LabelSelector{MatchExpressions: selector.MatchExpressions}, path)...)
}

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
		return field.ErrorList{field.Invalid(path, value.StrVal, "must be a number, or a percentage from 1% to 100%")}
	}
	return nil
}
