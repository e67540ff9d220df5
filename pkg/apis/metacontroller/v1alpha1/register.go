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

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every type in this package.
const GroupName = "metacontroller.k8s.io"

// Kinds of controller objects.
const (
	KindComposite = "CompositeController"
	KindDecorator = "DecoratorController"
)

// SchemeGroupVersion is the group and version under which the types are served and stored.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	// SchemeBuilder collects the functions that add this version to a scheme; generated code registers itself here. All defaults come from
	// the markers on the types: they are those of Metacontroller's CRDs (docs/reference/contract.md#s1.4, docs/reference/contract.md#s1.5). What
	// the contract defaults in code is not defaulted here, so that stored objects stay as their authors wrote them.
	SchemeBuilder      = runtime.NewSchemeBuilder(addKnownTypes, RegisterDefaults, addFieldSelectors)
	localSchemeBuilder = &SchemeBuilder

	// AddToScheme adds the types, defaults and conversions of this version to a scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&CompositeController{}, &CompositeControllerList{},
		&DecoratorController{}, &DecoratorControllerList{},
		&ControllerRevision{}, &ControllerRevisionList{},
	)
	AddReports(scheme, SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// AddReports adds the types of the subresources that are computed and never stored to a version. They have no hub types: there is nothing
// that an older version could have stored, so that the hub has these very types.
func AddReports(scheme *runtime.Scheme, version schema.GroupVersion) {
	scheme.AddKnownTypes(version,
		&ControllerParentList{}, &ControllerParentOptions{}, &HookRequestList{}, &HookRequestOptions{},
		&ControllerPlan{}, &ControllerResync{}, &ControllerSyncList{}, &ControllerSyncOptions{}, &ControllerRollback{},
	)
}

// Resource qualifies a resource name with this package's group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// Fields by which CompositeControllers can be selected, beside metadata.name.
const (
	// FieldParentAPIVersion is the API version of the parents.
	FieldParentAPIVersion = "spec.parentResource.apiVersion"
	// FieldParentResource is the resource of the parents.
	FieldParentResource = "spec.parentResource.resource"
)

// Fields by which DecoratorControllers can be selected, beside metadata.name. A controller has several targets, and is selected if one of
// them has the value: see [FieldOfTarget].
const (
	// FieldTargetAPIVersion is the API version of a target.
	FieldTargetAPIVersion = "spec.resources.apiVersion"
	// FieldTargetResource is the resource of a target.
	FieldTargetResource = "spec.resources.resource"
)

// FieldOfTarget returns the field, and its only value, that a DecoratorController has for each value of FieldTargetAPIVersion and
// FieldTargetResource. In it the API server looks for a requirement of a request, since a field has one value.
func FieldOfTarget(label, value string) (name, is string) { return label + "=" + value, "true" }

// addFieldSelectors tells which fields the field selectors of requests may have.
func addFieldSelectors(scheme *runtime.Scheme) error {
	err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(KindComposite),
		func(label, value string) (string, string, error) {
			switch label {
			case fieldName, fieldNamespace, FieldParentAPIVersion, FieldParentResource:
				return label, value, nil
			}
			return "", "", unknownField(label, FieldParentAPIVersion, FieldParentResource)
		})
	if err != nil {
		return err
	}
	return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(KindDecorator),
		func(label, value string) (string, string, error) {
			switch label {
			case fieldName, fieldNamespace:
				return label, value, nil
			case FieldTargetAPIVersion, FieldTargetResource:
				label, value = FieldOfTarget(label, value)
				return label, value, nil
			}
			return "", "", unknownField(label, FieldTargetAPIVersion, FieldTargetResource)
		})
}

// The fields by which every kind can be selected.
const fieldName, fieldNamespace = "metadata.name", "metadata.namespace"

func unknownField(label, first, second string) error {
	return fmt.Errorf("%q is not a known field selector: only %q, %q and %q", label, fieldName, first, second)
}
