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

// Package chart checks the Helm chart of artifacts/chart: that it makes the same objects as the manifests, for each of their shapes, that a
// cluster accepts both, that mistakes in values are refused in words, and that values of Metacontroller's chart mean the same.
//
// It is a Go module of its own for the sake of Helm's libraries, and nobody imports it.
package chart
