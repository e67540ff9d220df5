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

// Package claim decides which objects are a parent's children (docs/reference/contract.md#s8).
//
// It is pure: it says which of the candidates are claimed, which are to be adopted and which released, and builds the
// patches that do so. They carry the version that the cache showed, so no read precedes them.
package claim
