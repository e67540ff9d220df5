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

import "k8s.io/apimachinery/pkg/runtime"

// addDefaultingFuncs registers the defaults, all of which come from the default markers on the types: they are those of
// Metacontroller's CRDs (docs/reference/contract.md#s1.4, docs/reference/contract.md#s1.5) and appear in the published OpenAPI. What the contract defaults in code,
// such as the update method or the timeout, is not defaulted here, so that stored objects stay as their authors wrote them.
func addDefaultingFuncs(scheme *runtime.Scheme) error {
	return RegisterDefaults(scheme)
}
