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
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// ValidateCompositeController checks a new CompositeController.
func ValidateCompositeController(o *metacontroller.CompositeController) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&o.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateComposite(o)...)
}

// ValidateCompositeControllerUpdate checks a changed CompositeController. An unchanged spec is not checked again; of a changed
// one all errors are returned, those of fields that the update left alone as well.
func ValidateCompositeControllerUpdate(o, was *metacontroller.CompositeController) field.ErrorList {
	if apiequality.Semantic.DeepEqual(o.Spec, was.Spec) {
		return nil
	}
	return validateComposite(o)
}

func validateComposite(o *metacontroller.CompositeController) field.ErrorList {
	spec, path := &o.Spec, field.NewPath("spec")
	errs := validateParent(spec, path.Child("parentResource"))
	errs = append(errs, validateChildren(spec, path.Child("childResources"))...)
	hooks := ptr.Deref(spec.Hooks, v1alpha1.CompositeControllerHooks{})
	errs = append(errs, validateShared(spec.ServiceAccountRef, spec.DeletionGuard, false, hooks.Sync, hooks.Finalize, hooks.Customize)...)
	errs = append(errs, validateFinalizer(hooks.Finalize != nil, spec.Retains(), o.Name, "compositecontroller-")...)
	return append(errs, validateEndpointConfigs(spec.EndpointConfigs, path.Child("endpointConfigs"), hooks.Sync, hooks.Finalize, hooks.Customize)...)
}

// validateShared checks what definitions of both kinds have.
func validateShared(
	account *v1alpha1.ServiceAccountReference, guard *v1alpha1.DeletionGuard, decorator bool, sync, finalize, customize *v1alpha1.Hook,
) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if account != nil {
		errs = validateReference(account.Name, account.Namespace, "a service account", path.Child("serviceAccountRef"))
	}
	if guard != nil {
		errs = append(errs, validateAmount(guard.MaxDeletions, 0, path.Child("deletionGuard", "maxDeletions"))...)
	}
	return append(errs, validateHooks(sync, finalize, customize, decorator, path.Child("hooks"))...)
}

func validateParent(spec *v1alpha1.CompositeControllerSpec, path *field.Path) field.ErrorList {
	parent := &spec.ParentResource
	errs := validateResourceRule(parent.ResourceRule, path)
	if own(parent.ResourceRule, compositeControllers, decoratorControllers) {
		// Each of the two would replace what the other one wrote, for ever (docs/reference/compatibility.md#v-own-parent).
		errs = append(errs, field.Invalid(path.Child("resource"), parent.Resource,
			"this server writes the status of these objects itself: use a DecoratorController"))
	}
	errs = append(errs, validateLabelSelector(parent.LabelSelector, path.Child("labelSelector"))...)
	return append(errs, validateFieldPaths(parent.RevisionHistory, path.Child("revisionHistory"))...)
}

// validateChildren refuses children that would have children without end (docs/reference/compatibility.md#v-recursion),
// and those that the server itself keeps.
func validateChildren(spec *v1alpha1.CompositeControllerSpec, path *field.Path) field.ErrorList {
	rules := bounded(spec.ChildResources)
	rolling := slices.ContainsFunc(rules, func(r v1alpha1.CompositeControllerChildResourceRule) bool { return rolls(&r) })
	parent, known := groupResource(spec.ParentResource.ResourceRule)
	var errs field.ErrorList
	for i := range rules {
		rule, child := &rules[i], path.Index(i)
		errs = append(errs, validateResourceRule(rule.ResourceRule, child)...)
		if rule.UpdateStrategy != nil {
			errs = append(errs, validateAmount(rule.UpdateStrategy.MaxUnavailable, 1, child.Child("updateStrategy", "maxUnavailable"))...)
		}
		resource, ok := groupResource(rule.ResourceRule)
		switch {
		case ok && known && resource == parent && !selects(spec.ParentResource.LabelSelector):
			errs = append(errs, invalid(child.Child("resource"), rule.Resource, fmt.Sprintf(
				"is the parent's resource too, so that each child would have children: set %s", "spec.parentResource.labelSelector")))
		case rolling && own(rule.ResourceRule, controllerRevisions):
			errs = append(errs, field.Invalid(child.Child("resource"), rule.Resource,
				"the server keeps its own objects of this kind for each parent while a child resource has a rolling update strategy"))
		}
	}
	return errs
}

// maxNamePart is the longest name after the slash of a finalizer.
const maxNamePart = 63

// validateFinalizer refuses a name that cannot be part of the finalizer that a finalize hook or a rule with Retain needs
// (docs/reference/compatibility.md#v-finalizer).
func validateFinalizer(finalizes, retains bool, name, prefix string) field.ErrorList {
	longest := maxNamePart - len(prefix)
	if !finalizes && !retains || len(name) <= longest {
		return nil
	}
	what := "a finalize hook"
	if !finalizes {
		what = "onParentDeletion: Retain"
	}
	return field.ErrorList{invalid(field.NewPath("metadata", "name"), name, fmt.Sprintf(
		"must be no more than %d characters, because %s needs a finalizer that ends in the name", longest, what))}
}

// ValidateDecoratorController checks a new DecoratorController.
func ValidateDecoratorController(o *metacontroller.DecoratorController) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&o.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateDecorator(o)...)
}

// ValidateDecoratorControllerUpdate checks a changed DecoratorController. An unchanged spec is not checked again; of a changed
// one all errors are returned, those of fields that the update left alone as well.
func ValidateDecoratorControllerUpdate(o, was *metacontroller.DecoratorController) field.ErrorList {
	if apiequality.Semantic.DeepEqual(o.Spec, was.Spec) {
		return nil
	}
	return validateDecorator(o)
}

func validateDecorator(o *metacontroller.DecoratorController) field.ErrorList {
	spec, path := &o.Spec, field.NewPath("spec")
	errs := validateTargets(spec.Resources, path.Child("resources"))
	errs = append(errs, validateAttachments(spec, path.Child("attachments"))...)
	hooks := ptr.Deref(spec.Hooks, v1alpha1.DecoratorControllerHooks{})
	errs = append(errs, validateShared(spec.ServiceAccountRef, spec.DeletionGuard, true, hooks.Sync, hooks.Finalize, hooks.Customize)...)
	errs = append(errs, validateFinalizer(hooks.Finalize != nil, spec.Retains(), o.Name, "decoratorcontroller-")...)
	return append(errs, validateEndpointConfigs(spec.EndpointConfigs, path.Child("endpointConfigs"), hooks.Sync, hooks.Finalize, hooks.Customize)...)
}

func validateTargets(rules []v1alpha1.DecoratorControllerResourceRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rules == nil {
		// An empty list is admitted, as Metacontroller's schema does; a missing one is not.
		errs = append(errs, field.Required(path, ""))
	}
	seen := map[schema.GroupResource]bool{}
	for i, rule := range bounded(rules) {
		target := path.Index(i)
		errs = append(errs, validateResourceRule(rule.ResourceRule, target)...)
		errs = append(errs, validateLabelSelector(rule.LabelSelector, target.Child("labelSelector"))...)
		errs = append(errs, validateAnnotationSelector(rule.AnnotationSelector, target.Child("annotationSelector"))...)
		resource, ok := groupResource(rule.ResourceRule)
		if !ok {
			continue
		}
		if seen[resource] {
			// Metacontroller kept the last of the rules and forgot the others (docs/reference/contract.md#s17.1).
			errs = append(errs, field.Duplicate(target.Child("resource"), resource.String()))
		}
		seen[resource] = true
	}
	return errs
}

func validateAttachments(spec *v1alpha1.DecoratorControllerSpec, path *field.Path) field.ErrorList {
	targets := targetsOf(spec)
	var errs field.ErrorList
	for i, rule := range bounded(spec.Attachments) {
		errs = append(errs, validateResourceRule(rule.ResourceRule, path.Index(i))...)
		resource, ok := groupResource(rule.ResourceRule)
		if target := targets[resource]; ok && target != nil && !narrowed(target) {
			errs = append(errs, invalid(path.Index(i).Child("resource"), rule.Resource,
				"is a target's resource too, so that each attachment would have attachments: set a selector in spec.resources"))
		}
	}
	return errs
}

// targetsOf finds the rules about targets by resource.
func targetsOf(spec *v1alpha1.DecoratorControllerSpec) map[schema.GroupResource]*v1alpha1.DecoratorControllerResourceRule {
	targets := map[schema.GroupResource]*v1alpha1.DecoratorControllerResourceRule{}
	for i := range bounded(spec.Resources) {
		if resource, ok := groupResource(spec.Resources[i].ResourceRule); ok {
			targets[resource] = &spec.Resources[i]
		}
	}
	return targets
}

// narrowed reports whether a rule excludes any object of its resource.
func narrowed(rule *v1alpha1.DecoratorControllerResourceRule) bool {
	annotations := rule.AnnotationSelector
	return selects(rule.LabelSelector) ||
		annotations != nil && len(annotations.MatchAnnotations)+len(annotations.MatchExpressions) > 0
}

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

// SamePatch compares two parentPatches by meaning, since server-side apply may order keys differently.
func SamePatch(a, b []byte) bool {
	var x, y any
	return bytes.Equal(a, b) || json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && apiequality.Semantic.DeepEqual(x, y)
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
