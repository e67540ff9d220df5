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

package kinds

import (
	"errors"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// fieldsOf knows how the fields of a version are merged and owned.
type fieldsOf struct{}

func (k *Kind) fieldsFromDefinition(_ *apiextensionsv1.CustomResourceDefinitionSpec) {}

func (k *Kind) builtinFields() {}

// Owned returns an object with the managedFields that a write of it by a field manager makes.
func (v *Version) Owned(subresource string, live, o value.Object, manager string, now time.Time) value.Object {
	return o
}

// Applied returns what applying an object under a field manager makes of the live one.
func (v *Version) Applied(subresource string, live, patch value.Object, manager string, force bool, now time.Time) (value.Object, error) {
	return nil, errors.New("apply is not served yet")
}

// KeepTimes gives an object the managedFields of the live one if it differs from it in their times alone.
func KeepTimes(o, live value.Object) {}

// Schemas adds the schemas of a version to those of an OpenAPI document.
func (v *Version) Schemas(into map[string]any) {
	into[v.Kind.Kind] = map[string]any{"type": "object"}
}
