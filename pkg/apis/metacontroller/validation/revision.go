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
	"bytes"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// ValidateControllerRevision checks a new or changed ControllerRevision.
func ValidateControllerRevision(o *metacontroller.ControllerRevision) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&o.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validateParentPatch(o.ParentPatch.Raw, field.NewPath("parentPatch"))...)
	for i := range bounded(o.Children) {
		errs = append(errs, validateRevisionChildren(&o.Children[i], field.NewPath("children").Index(i))...)
	}
	return errs
}

func validateParentPatch(raw []byte, path *field.Path) field.ErrorList {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return field.ErrorList{field.Required(path, "")}
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return field.ErrorList{invalid(path, string(raw), "must be an object")}
	}
	return nil
}

// validateRevisionChildren refuses names that no object can have. It stops at the first bad name: a parent may have thousands of
// children.
func validateRevisionChildren(children *v1alpha1.ControllerRevisionChildren, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if children.APIGroup != "" && len(validation.IsDNS1123Subdomain(children.APIGroup)) > 0 {
		errs = append(errs, invalid(at.Child("apiGroup"), children.APIGroup, "must be an API group such as apps, or empty for the core group"))
	}
	if children.Kind != "" && len(validation.IsDNS1035Label(strings.ToLower(children.Kind))) > 0 {
		errs = append(errs, invalid(at.Child("kind"), children.Kind, "must be a kind such as Deployment"))
	}
	if children.Names == nil {
		errs = append(errs, field.Required(at.Child("names"), "may be an empty list"))
	}
	for i, name := range children.Names {
		if !isChildName(name) {
			return append(errs, invalid(at.Child("names").Index(i), name, "must be a name, or namespace/name"))
		}
	}
	return errs
}

func isChildName(name string) bool {
	if namespace, rest, namespaced := strings.Cut(name, "/"); namespaced {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return false
		}
		name = rest
	}
	return name != "" && len(name) <= validation.DNS1123SubdomainMaxLength && len(content.IsPathSegmentName(name)) == 0
}
