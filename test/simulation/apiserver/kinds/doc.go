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

// Package kinds knows what each kind of the simulated API server demands of its objects: versions, schemas, defaults, pruning,
// validation, what an update may change, and how fields are merged. It has no objects.
//
// Custom kinds are made from CustomResourceDefinitions with the libraries of kube-apiserver; Metacontroller's kinds follow the
// product's own strategies; the others are decoded into their Go types. All values are immutable and shared by all servers of a process.
package kinds
