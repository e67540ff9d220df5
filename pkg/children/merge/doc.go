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

// Package merge works out what an existing object becomes when its desired state is applied (docs/reference/contract.md#s12).
//
// It merges three ways: fields that were applied last and are no longer desired are removed, desired fields are set, all
// others stay. Lists are merged by the keys that the kind's schema names, and by guessing where there is no schema. It is
// pure: it changes none of its inputs, and shares what it does not change. Which differences stay as they are is decided by its
// caller (Keep); it knows nothing of what API servers do to values.
package merge
