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
	// SchemeBuilder collects the functions that add this version to a scheme; generated code registers itself here.
	SchemeBuilder      = runtime.NewSchemeBuilder(addKnownTypes, addDefaultingFuncs, addFieldSelectors)
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
