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

// Package invariant says what must be true of an engine whatever happens to it.
//
// A Tracker gets every write that the API server did and every call of a hook, in their order, and checks what must be true at every step.
// AtRest checks what must be true when everything has come to rest. Each invariant has a name and a place in the specification; what is
// excepted under faults is said where it is checked. The package knows the hooks of package hooks, and neither the engine's code nor
// its memory.
package invariant
