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

// Package metacontroller holds the hub types of the API group metacontroller.k8s.io, on which registry and admission work. Clients never
// see them.
//
// As long as v1alpha1 is the only version, the kinds are the types of v1alpha1 under other names, and all that is in them is of v1alpha1. Why
// they need other names is in docs/design/0005-hub-types.md.
//
// +k8s:deepcopy-gen=package
// +groupName=metacontroller.k8s.io
package metacontroller
