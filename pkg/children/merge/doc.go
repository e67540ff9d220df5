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
// others stay. Lists are merged by the keys that the kind's schema names, and by guessing where there is no schema. Of a map or
// such a list that is no longer desired at all, entries that others added stay, too; a struct goes whole, since what else is in it
// is mostly defaults. The package is pure: it changes none of its inputs, and shares what it does not change.
//
// # What counts as a difference
//
// API servers store other values than they are sent: they add defaults, prune fields, write quantities in their own way, and run
// admission webhooks. A child must not be written for ever because of that (docs/reference/compatibility.md#d12.4). This package
// knows nothing of it: every value that is not the desired one is a [Difference], and a [Keep] decides which of them stay. Package
// plan keeps those of which it is known, from a write or a trial, that the API server returned them for what it was sent.
package merge
