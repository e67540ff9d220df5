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

// Package image makes container images of the server without a container engine: a base of its own, the program, and the papers of both.
//
// There is no distribution in an image. It has the static program at /usr/local/bin, and a link to it where Metacontroller's images have
// theirs, so that Metacontroller's manifests start it; certificate authorities (those that Mozilla trusts
// and that a PEM file can express), time zones (policies of the cluster may compute with them), users (the program runs as nonroot,
// 65532:65532), the folders that are written (/tmp, and the program's data at /var/lib/metacontroller-apiserver, both meant to be
// volumes), and under /usr/share/doc the licenses of all of it and what the image is made of as SPDX. So its root file system can be
// read-only, and there is nothing in it that a vulnerability scanner knows but Go modules.
//
// The same program and the same commit give the same bytes: every file has the commit's date, and the compression is that of Go's
// standard library. The library go-containerregistry makes manifests, layouts and archives; it is why hack/release is a Go module of its
// own, so that no dependency of it reaches those who import the product.
package image
