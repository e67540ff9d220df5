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
	"fmt"
	"maps"
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

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// The resources of our own group.
const (
	compositeControllers = "compositecontrollers"
	decoratorControllers = "decoratorcontrollers"
	controllerRevisions  = "controllerrevisions"
)

// servedVersion is the API version that this server serves, and nobody else can.
var servedVersion = schema.GroupVersion{Group: v1alpha1.GroupName, Version: "v1alpha1"}.String()

// validateResourceRule checks the names in a rule (docs/reference/compatibility.md#v-resource). That both are given is
// checked by the generated validation.
func validateResourceRule(rule v1alpha1.ResourceRule, path *field.Path) field.ErrorList {
	errs := validateAPIVersion(rule.APIVersion, path.Child("apiVersion"))
	at := path.Child("resource")
	switch own := []string{compositeControllers, controllerRevisions, decoratorControllers}; {
	case rule.Resource == "":
	case len(validation.IsDNS1123Label(rule.Resource)) > 0:
		errs = append(errs, invalid(at, rule.Resource,
			"must be the plural name of a resource in lower case, such as deployments, without a subresource"))
	case rule.APIVersion == servedVersion && !slices.Contains(own, rule.Resource):
		// The APIService of the version leads to this server, so a custom resource of it is never served
		// (docs/reference/compatibility.md#v-own-group).
		errs = append(errs, field.NotSupported(at, rule.Resource, own))
	}
	return errs
}

// validateAPIVersion accepts v1 and group/version.
func validateAPIVersion(apiVersion string, path *field.Path) field.ErrorList {
	if apiVersion == "" {
		return nil
	}
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	if len(validation.IsDNS1035Label(version)) > 0 || grouped && len(validation.IsDNS1123Subdomain(group)) > 0 {
		return field.ErrorList{invalid(path, apiVersion, "must be a group and version such as apps/v1, or v1 for the core group")}
	}
	return nil
}

// groupResource is what a rule names in any version; false if it names nothing.
func groupResource(rule v1alpha1.ResourceRule) (schema.GroupResource, bool) {
	version, err := schema.ParseGroupVersion(rule.APIVersion)
	if err != nil || rule.APIVersion == "" || rule.Resource == "" {
		return schema.GroupResource{}, false
	}
	return schema.GroupResource{Group: version.Group, Resource: rule.Resource}, true
}

// own reports whether a rule names a resource that this server serves.
func own(rule v1alpha1.ResourceRule, resources ...string) bool {
	return rule.APIVersion == servedVersion && slices.Contains(resources, rule.Resource)
}

func validateLabelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	if n := len(selector.MatchExpressions); n > maxItems {
		return field.ErrorList{field.TooMany(path.Child("matchExpressions"), n, maxItems)}
	}
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// selects reports whether a selector excludes anything at all.
func selects(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}

// validateAnnotationSelector demands what Metacontroller needs to build a label selector of it (docs/reference/contract.md#s1.2). Unlike
// with label selectors, the names of the errors' fields are those of the annotation selector.
func validateAnnotationSelector(selector *v1alpha1.AnnotationSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	if len(selector.MatchAnnotations) <= maxItems {
		for _, key := range slices.Sorted(maps.Keys(selector.MatchAnnotations)) {
			value := selector.MatchAnnotations[key]
			at := path.Child("matchAnnotations").Key(cut(key))
			for _, msg := range validation.IsQualifiedName(key) {
				errs = append(errs, invalid(at, key, msg))
			}
			for _, msg := range validation.IsValidLabelValue(value) {
				errs = append(errs, invalid(at, value, msg))
			}
		}
	}
	return append(errs, validateLabelSelector(&metav1.LabelSelector{MatchExpressions: bounded(selector.MatchExpressions)}, path)...)
}

const (
	// maxItems is the bound of every list, as the markers in v1alpha1 have it. A longer list is refused there, and its items
	// are not looked at here.
	maxItems = 256
	// maxShown is the longest value that an error repeats, in bytes.
	maxShown = 256
)

// bounded returns the items, or none of a list that is too long.
func bounded[T any](items []T) []T {
	if len(items) > maxItems {
		return nil
	}
	return items
}

// invalid is the error of a value that is not what is demanded. The value is repeated unless it is long.
func invalid(path *field.Path, value, demand string) *field.Error {
	if len(value) > maxShown {
		return secret(path, demand)
	}
	return field.Invalid(path, value, demand)
}

// secret is the error of a value that may hold a password, or a token. It is not repeated: errors are printed, logged and kept
// by audit.
func secret(path *field.Path, demand string) *field.Error {
	return field.Invalid(path, field.OmitValueType{}, demand)
}

// cut shortens a value that an error must repeat.
func cut(value string) string { return value[:min(len(value), maxShown)] }

var percentage = regexp.MustCompile(`^\d+%$`)

// validateAmount accepts a number that is least or more, and a percentage from least to 100.
func validateAmount(value *intstr.IntOrString, least int, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if value.Type == intstr.Int {
		if value.IntValue() < least {
			return field.ErrorList{field.Invalid(path, value.IntVal, fmt.Sprintf("must be greater than or equal to %d", least))}
		}
		return nil
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	if err != nil || !percentage.MatchString(value.StrVal) || percent < least || percent > 100 {
		return field.ErrorList{invalid(path, value.StrVal, fmt.Sprintf("must be a number, or a percentage from %d%% to 100%%", least))}
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
