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

// Package metacontroller holds the rules of reading and writing the API group metacontroller.k8s.io.
//
// NewStorage builds every store once; all served versions share them. Each kind has a package; package controller has what the two kinds
// of controllers share: strategies, stores, endpoints. Package apiserver installs the result. Nothing here knows of the controllers that
// run the stored definitions.
package metacontroller
