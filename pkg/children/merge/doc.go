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
// pure: it changes none of its inputs, and shares what it does not change.
//
// # What counts as a difference
//
// API servers store other values than they are sent, and a child must not be written for ever because of that (docs/reference/compatibility.md#d12.4). Two rules, each a [Keep], tell such values from somebody else's changes. Package plan uses the first one that can
// be used:
//
//   - When this process wrote the child in its present desired state, what the API server returned for the fields that were
//     sent is exact knowledge: any other value is drift, and is put back.
//   - Otherwise, which is after a restart and for the fields that do not change when others do, [Normalized] knows what API
//     servers do: they leave out what is empty, give defaults to what is null or an empty text and within the elements of
//     lists, and write quantities, durations, times and base64 in their own way. It looks only at what was applied last and
//     is still desired. What it overlooks are changes that say the same, and another value where the hook returns null or
//     an empty text; texts that API servers store as they are (data, labels, annotations, environment variables) are
//     compared to the letter.
//
// Other differences count. What was pruned because the schema does not know it, or was changed by an admission webhook, is
// therefore noticed once by a process that starts later, and is exact knowledge from then on: an update in place writes it
// in vain, and package apply asks the API server with a dry run before it deletes a child because of it.
package merge
