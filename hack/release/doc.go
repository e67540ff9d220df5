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

// Command release writes what a release publishes: `make release-artifacts` and `make image` start it.
//
// There are archives of the plugin of kubectl and of the server, images of the server, the manifests that name these images, the chart,
// what programs and images are made of as SPDX, the notes of the release, the file SHA256SUMS, and the manifest with which krew installs
// the plugin. The packages below make each of them from values; this one says what a release has, and writes it.
//
// The same commit and the same version of Go give the same bytes, wherever and whenever it runs. It is a Go module of its own for its
// dependencies, and imports nothing of the product: it builds the product with the go command.
package main
