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

	"k8s.io/apimachinery/pkg/runtime"
)

// Fields by which CompositeControllers can be selected, beside metadata.name.
const (
	// FieldParentAPIVersion is the API version of the parents.
	FieldParentAPIVersion = "spec.parentResource.apiVersion"
	// FieldParentResource is the resource of the parents.
	FieldParentResource = "spec.parentResource.resource"
)

// addFieldSelectors tells which fields the field selectors of requests may have.
func addFieldSelectors(scheme *runtime.Scheme) error {
	return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("CompositeController"),
		func(label, value string) (string, string, error) {
			switch label {
			case "metadata.name", "metadata.namespace", FieldParentAPIVersion, FieldParentResource:
				return label, value, nil
			default:
				return "", "", fmt.Errorf("%q is not a known field selector: only \"metadata.name\", %q and %q", label,
					FieldParentAPIVersion, FieldParentResource)
			}
		})
}
