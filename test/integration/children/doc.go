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

// Package children proves on a real control plane that children of built-in kinds settle: written once, as people write
// them, they are not written again, by the process that wrote them nor by one that starts later (docs/reference/compatibility.md#d12.4, docs/reference/compatibility.md#d12.5).
//
// Each file in testdata is one manifest of one kind.
package children
