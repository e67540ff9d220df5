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

// Package sbom says what programs and images are made of: documents of SPDX 2.3 as JSON, one for each program and each image of a
// platform.
//
// The modules are those that the go command wrote into the program, not those of a go.mod, so that the document says what was linked.
// Their licenses are recognized by the texts that the modules have; a text that is not recognized is NOASSERTION. The same program gives
// the same document.
package sbom
