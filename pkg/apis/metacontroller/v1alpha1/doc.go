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

// Package v1alpha1 is the versioned API of the group metacontroller.k8s.io: what clients send, read and store.
//
// CompositeController and DecoratorController declare controllers whose logic is a webhook; ControllerRevision keeps the
// history that rolling updates need. Field names are those of Metacontroller 4.17, so existing manifests decode
// unchanged. The package holds types, defaults and generated code only; rules that join several fields are in package
// validation, and the meaning at run time is in the packages under pkg/controller.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.k8s.metacontroller.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:conversion-gen=false
// +k8s:validation-gen=TypesWithField=TypeMeta
// +groupName=metacontroller.k8s.io
package v1alpha1
