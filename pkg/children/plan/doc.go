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

// Package plan works out what has to be done so that the observed children of a parent become the desired ones.
//
// A Plan is a value: steps with their reasons, and the bodies to be sent. It is made from facts alone (Input), so making one asks
// nobody and changes nothing; Missing says which facts are needed. Package apply carries a plan out, and Plan.Next returns the
// records of the children after that, which the caller keeps.
//
// # What is remembered of a child
//
// A Record says in which version and for which desired state the child needed nothing, what the API server returned in place of what
// it was sent, and how often the child was written lately. Records are values: a plan reads those of its parent and works out the next
// ones, and nothing else does. What the API server does to values is known only from comparing what was sent with what came back, in a
// write or a dry run, and for as long as the schemas and what mutates objects are the same (an epoch), some hours at most.
//
// # What counts as a difference
//
// API servers store other values than they are sent, and a child must not be written for ever because of that
// (docs/reference/compatibility.md#d12.4). A difference is explained if the API server is known to return the observed value
// for the desired one at that place, from a write or a dry run. Any other difference is real. If nothing is known, as after
// a restart, the child is a Doubt, and a Trial resolves it (docs/design/0013-plans-and-records.md).
package plan
