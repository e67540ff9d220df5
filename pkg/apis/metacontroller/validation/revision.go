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

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// ValidateControllerRevision checks a new or changed ControllerRevision.
func ValidateControllerRevision(o *metacontroller.ControllerRevision) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&o.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	patch := field.NewPath("parentPatch")
	raw := bytes.TrimSpace(o.ParentPatch.Raw)
	if len(raw) == 0 || string(raw) == "null" {
		return append(errs, field.Required(patch, ""))
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		errs = append(errs, field.Invalid(patch, string(raw), "must be an object"))
	}
	return errs
}
