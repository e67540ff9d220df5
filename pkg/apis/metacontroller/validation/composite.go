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
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// ValidateCompositeController checks a new CompositeController.
func ValidateCompositeController(o *metacontroller.CompositeController) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&o.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateCompositeSpec(&o.Spec, field.NewPath("spec"))...)
}

// ValidateCompositeControllerUpdate checks a changed CompositeController. An unchanged spec is not checked again.
func ValidateCompositeControllerUpdate(o, was *metacontroller.CompositeController) field.ErrorList {
	if apiequality.Semantic.DeepEqual(o.Spec, was.Spec) {
		return nil
	}
	return validateCompositeSpec(&o.Spec, field.NewPath("spec"))
}

func validateCompositeSpec(spec *metacontroller.CompositeControllerSpec, path *field.Path) field.ErrorList {
	parent := path.Child("parentResource")
	errs := validateAPIVersion(spec.ParentResource.APIVersion, parent.Child("apiVersion"))
	errs = append(errs, validateLabelSelector(spec.ParentResource.LabelSelector, parent.Child("labelSelector"))...)
	for i, rule := range spec.ChildResources {
		child := path.Child("childResources").Index(i)
		errs = append(errs, validateAPIVersion(rule.APIVersion, child.Child("apiVersion"))...)
		if rule.UpdateStrategy != nil {
			errs = append(errs, validateMaxUnavailable(rule.UpdateStrategy.MaxUnavailable,
				child.Child("updateStrategy", "maxUnavailable"))...)
		}
	}
	if hooks := spec.Hooks; hooks != nil {
		errs = append(errs, validateHooks(hooks.Sync, hooks.Finalize, hooks.Customize, path.Child("hooks"))...)
	}
	return append(errs, validateEndpointConfigs(spec.EndpointConfigs, path.Child("endpointConfigs"))...)
}
