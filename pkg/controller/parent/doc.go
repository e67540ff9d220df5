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

// Package parent is what composites and decorators have in common in the treatment of the object that they sync: which
// of its changes matter, its finalizer, the conditions that the engine sets in its status, and how its own fields are written.
//
// Every write is conditional on the version that the cache showed, so no read precedes it; a conflict means that the
// cache is behind, and the sync is repeated when it has caught up (docs/reference/compatibility.md#d5.2, docs/reference/compatibility.md#d6).
package parent
